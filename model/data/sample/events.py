"""Sentence pairs for the sample corpus, graded 0 to 5 by how much of one event they share.

An event has an agent, an action, an object, a place and a time. Synonyms, the passive and the
order of the parts change the words and not the grade; a related object, or agent and object
changing places, keeps part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.data.sample.corpus import Dice, SampleDraft

Meaning = tuple[str, ...]  # its wordings
Event = dict[str, Meaning]

WEIGHTS = {"agent": 1.2, "action": 1.2, "object": 1.2, "place": 0.7, "time": 0.7}
RELATED = 0.5  # of a part's weight, where the objects are of one sort
SWAPPED = 0.3  # where agent and object are each other's


def _meanings(text: str) -> tuple[Meaning, ...]:
    """'doctor/physician, baker' -> (('doctor', 'physician'), ('baker',))"""
    return tuple(tuple(item.strip().split("/")) for item in text.split(","))


PEOPLE = _meanings(
    "doctor/physician, lawyer/attorney, child/kid, thief/burglar, sailor/seaman, teacher, baker, "
    "soldier, painter, nurse, tourist/holidaymaker, farmer, widow, twin brothers, waiter, "
    "police officer/constable, student/undergraduate, old man/elderly man, young woman, "
    "postman/mail carrier"
)
SORTS: tuple[tuple[Meaning, ...], ...] = tuple(
    _meanings(line)
    for line in (
        "violin/fiddle, cello, guitar, trumpet",
        "bicycle/bike, car/automobile, motorbike/motorcycle, lorry/truck",
        "sofa/couch, armchair, wardrobe/closet, bookcase/bookshelf",
        "letter, parcel/package, postcard, telegram",
        "cat, dog/hound, parrot, donkey",
        "ring, necklace, bracelet, brooch",
        "cake, loaf of bread, pie, basket of apples",
    )
)
DEEDS = _meanings(  # on things: past tense, which is the participle too
    "repaired/fixed, bought/purchased, sold, hid/concealed, photographed, found/discovered, "
    "cleaned/washed, painted, carried away/took away, lost/mislaid, sketched, delivered/brought"
)
DEALINGS = _meanings(  # with people
    "thanked, warned/alerted, followed/trailed, greeted/welcomed, insulted/offended, "
    "rescued/saved, hired/took on, photographed, fooled/tricked, interviewed"
)
PARTICIPLES = {"hid": "hidden", "took away": "taken away", "took on": "taken on"}
PLACES = _meanings(
    "in the kitchen, at the harbour/by the docks, behind the church, in the woods/in the forest, "
    "on the bridge, at the airport, in the cellar/in the basement, next to the school, "
    "on the beach/by the sea, in the market square, at the station, on the roof, in the hospital"
)
TIMES = _meanings(
    "this morning/earlier today, at midnight/at twelve at night, last winter, on Tuesday, "
    "during the storm, a week ago/seven days ago, after lunch, before dawn/just before sunrise, "
    "in 1997, on New Year's Eve/on the last day of the year, two years ago, after the match"
)
SHARES = (0.0, 0.25, 0.45, 0.65, 0.85, 1.0)  # how likely each part is to be kept


def event_pair(dice: Dice) -> SampleDraft:
    from model.data.sample.corpus import SampleDraft

    social = dice.chance(0.4)
    first = _event(dice, social)
    second, grade = _variant(dice, first, social)
    texts = _say(dice, first), _say(dice, second)
    if texts[0] == texts[1]:
        return event_pair(dice)
    return SampleDraft(*texts, label=grade)


def _event(dice: Dice, social: bool) -> Event:
    agent, other = dice.two(PEOPLE)
    return {
        "agent": agent,
        "action": dice.pick(DEALINGS if social else DEEDS),
        "object": other if social else dice.pick(dice.pick(SORTS)),
        "place": dice.pick(PLACES),
        "time": dice.pick(TIMES),
    }


def _variant(dice: Dice, event: Event, social: bool) -> tuple[Event, float]:
    """Another event that keeps some of this one, and the grade of the pair."""
    share = dice.pick(SHARES)
    other = _event(dice, social)
    for part in WEIGHTS:
        if dice.chance(share):
            other[part] = event[part]
    if social and dice.chance(0.25):
        other["agent"], other["object"] = event["object"], event["agent"]
    elif other["agent"] == other["object"]:
        return _variant(dice, event, social)
    elif not social and other["object"] != event["object"] and dice.chance(0.4):
        sort = next(sort for sort in SORTS if event["object"] in sort)
        other["object"] = dice.pick(sort)
    return other, sum(weight * _kept(event, other, part) for part, weight in WEIGHTS.items())


def _kept(event: Event, other: Event, part: str) -> float:
    if event[part] == other[part]:
        return 1.0
    if part == "object" and any(event[part] in sort and other[part] in sort for sort in SORTS):
        return RELATED
    if (event["agent"], event["object"]) == (other["object"], other["agent"]):
        return SWAPPED if part in ("agent", "object") else 0.0
    return 0.0


def _say(dice: Dice, event: Event) -> str:
    words = {part: dice.pick(meaning) for part, meaning in event.items()}
    agent, action, target = words["agent"], words["action"], words["object"]
    where, when = words["place"], words["time"]
    done = f"the {agent} {action} the {target}"
    if dice.chance(0.3):
        was = "were" if target == "twin brothers" else "was"
        done = f"the {target} {was} {PARTICIPLES.get(action, action)} by the {agent}"
    text = dice.pick(
        (f"{done} {where} {when}", f"{when}, {done} {where}", f"{where}, {done} {when}")
    )
    return text[0].upper() + text[1:] + "."
