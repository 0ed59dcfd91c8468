"""Question pairs for the sample corpus: 1 where both ask the same, 0 where they do not.

Pairs that ask the same are worded by different templates and synonyms. Pairs that do not are
mostly near misses: one detail changed, two of them swapped, or another question about the
same things; so shared words say little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from model.data.sample.corpus import Dice, SampleDraft

# A meaning is a tuple of its wordings.
Meaning = tuple[str, ...]
Filling = dict[str, Meaning]


def _plain(words: str) -> tuple[Meaning, ...]:
    return tuple((word.strip(),) for word in words.split(","))


SLOTS: dict[str, tuple[Meaning, ...]] = {
    "skill": (
        *_plain("chess, welding, juggling, Portuguese, sailing, knitting, typing, the violin"),
        *_plain("sign language, archery, pottery, algebra, ballroom dancing, beekeeping"),
        *(("photography", "taking good photos"), ("cooking", "how to cook")),
    ),
    "time": (
        *(("a month", "four weeks"), ("a week", "seven days"), ("a year", "twelve months")),
        *(("half a year", "six months"), ("two days", "48 hours"), ("a fortnight", "two weeks")),
        *(("one evening", "a single evening"), ("three years",), ("ten days",)),
    ),
    "city": (
        *_plain("Lisbon, Oslo, Kyoto, Quito, Tunis, Vienna, Perth, Cork, Hanoi, Lima, Riga"),
        *_plain("Seville, Ghent, Porto, Izmir, Bergen, Dakar, Turin, Leeds, Montreal, Havana"),
    ),
    "thing": (
        *(("bicycle", "bike"), ("sofa", "couch"), ("fridge", "refrigerator")),
        *(("television", "TV set"), ("mobile phone", "cell phone"), ("raincoat", "rain jacket")),
        *_plain("kettle, tent, wardrobe, sewing machine, piano, carpet, microscope, lawnmower"),
        *_plain("dishwasher, telescope, rucksack, canoe, bookcase, wheelbarrow, toaster"),
    ),
    "food": (
        *(("aubergines", "eggplants"), ("chickpeas", "garbanzo beans"), ("prawns", "shrimps")),
        *_plain("lentils, mushrooms, rice, pumpkin, walnuts, cherries, beetroot, oats, cheese"),
        *_plain("potatoes, spinach, mangoes, honey, barley, figs, plums, leeks"),
    ),
    "animal": (
        *(("rabbit", "bunny"), ("donkey",), ("pig", "hog")),
        *_plain("horse, camel, goose, hedgehog, goat, parrot, squirrel, zebra, kangaroo, dog"),
        *_plain("cat, tortoise, wolf, fox, badger, giraffe, ostrich, hamster"),
    ),
    "trade": (
        *(("doctor", "physician"), ("lawyer", "attorney"), ("farmer", "grower")),
        *_plain("plumber, baker, pilot, judge, nurse, tailor, carpenter, translator, librarian"),
        *_plain("firefighter, dentist, gardener, bus driver, surveyor, blacksmith, midwife"),
    ),
    "kin": (
        *(("mother", "mum"), ("father", "dad"), ("grandmother", "gran")),
        *_plain("brother, sister, uncle, aunt, cousin, neighbour, landlord, flatmate, teacher"),
        *_plain("boss, best friend, nephew, niece"),
    ),
    "chore": (
        *(("paint the walls", "give the walls a coat of paint"), ("mow the lawn", "cut the grass")),
        *(("wash the windows", "clean the windows"), ("walk the dog", "take the dog out")),
        *_plain("fix the roof, water the plants, sweep the chimney, sand the floor, eat dinner"),
        *_plain("take a shower, prune the trees, feed the hens, bake the bread, polish the table"),
    ),
    "month": _plain("January, February, March, April, June, July, August, October, November"),
}


class Ask(NamedTuple):
    """One question in several wordings, and a different one about the same things."""

    wordings: tuple[str, ...]
    instead: tuple[str, ...]
    slots: dict[str, str]  # name in the wordings -> key of SLOTS; a and b may be swapped


ASKS: tuple[Ask, ...] = (
    Ask(
        (
            "How can I learn {skill} in {time}?",
            "What is the best way to learn {skill} within {time}?",
            "I have {time}; how should I go about learning {skill}?",
            "Could a beginner pick up {skill} in {time}, and how?",
        ),
        (
            "How can I teach {skill} in {time}?",
            "What is the best way to teach {skill} within {time}?",
            "Why can nobody learn {skill} in {time}?",
        ),
        {"skill": "skill", "time": "time"},
    ),
    Ask(
        (
            "How do I get from {a} to {b} by train?",
            "What is the easiest way to go to {b} from {a} by rail?",
            "Which trains run from {a} to {b}?",
            "I am in {a}; can I take a train to {b}?",
        ),
        (
            "How do I get from {a} to {b} by bus?",
            "What is the easiest way to go to {b} from {a} on foot?",
            "Which trains between {a} and {b} were cancelled?",
        ),
        {"a": "city", "b": "city"},
    ),
    Ask(
        (
            "Is a {a} faster than a {b}?",
            "Does a {a} outrun a {b}?",
            "Is a {b} slower than a {a}?",
            "In a race between a {b} and a {a}, would the {a} win?",
        ),
        ("Is a {a} heavier than a {b}?", "Does a {a} outlive a {b}?", "Is a {a} afraid of a {b}?"),
        {"a": "animal", "b": "animal"},
    ),
    Ask(
        (
            "Should I {a} before I {b}?",
            "Is it better to {b} after I {a}?",
            "Is it right to {a} first and {b} later?",
            "Which order is best: {a}, then {b}?",
        ),
        ("Should I {a} or {b}?", "Is it safe to {a} while others {b}?", "Who should {a} and {b}?"),
        {"a": "chore", "b": "chore"},
    ),
    Ask(
        (
            "How much does a {thing} cost in {city}?",
            "What is the price of a {thing} in {city}?",
            "What would I pay for a {thing} if I bought it in {city}?",
            "In {city}, how expensive is a {thing}?",
        ),
        (
            "How much does it cost to repair a {thing} in {city}?",
            "Where can I find a {thing} in {city}?",
            "In {city}, who invented the {thing}?",
        ),
        {"thing": "thing", "city": "city"},
    ),
    Ask(
        (
            "Can a {animal} eat {food}?",
            "Is it safe to feed {food} to a {animal}?",
            "Will {food} do a {animal} any harm?",
            "May I give my {animal} some {food}?",
        ),
        (
            "Can a {animal} smell {food}?",
            "Why does my {animal} refuse {food}?",
            "Is it legal to trade a {animal} for {food}?",
        ),
        {"animal": "animal", "food": "food"},
    ),
    Ask(
        (
            "How do I tell my {a} that my {b} is moving out?",
            "What is a good way to let my {a} know that my {b} is leaving?",
            "My {b} is moving out; how do I break it to my {a}?",
            "How should my {a} hear from me that my {b} is moving away?",
        ),
        (
            "How do I hide from my {a} that my {b} is moving out?",
            "Why did my {a} not tell me that my {b} is leaving?",
            "Should my {a} and my {b} move in together?",
        ),
        {"a": "kin", "b": "kin"},
    ),
    Ask(
        (
            "How do I become a {trade} in {city}?",
            "What does it take to work as a {trade} in {city}?",
            "Which steps lead to a career as a {trade} in {city}?",
            "I live in {city} and want to be a {trade}; where do I start?",
        ),
        (
            "How do I find a good {trade} in {city}?",
            "What does a {trade} earn in {city}?",
            "I live in {city} and need a {trade}; whom do I call?",
        ),
        {"trade": "trade", "city": "city"},
    ),
    Ask(
        (
            "Is {month} a good time to visit {city}?",
            "Should I go to {city} in {month}?",
            "Would you recommend a trip to {city} in {month}?",
            "Is {city} worth a visit in {month}?",
        ),
        (
            "Is {month} too warm a time to leave {city}?",
            "What is on in {city} in {month}?",
            "Did it snow in {city} in {month}?",
        ),
        {"month": "month", "city": "city"},
    ),
    Ask(
        (
            "How long can I keep cooked {food} in a {thing}?",
            "For how many days does boiled {food} last in a {thing}?",
            "When does cooked {food} go bad if I store it in a {thing}?",
            "If I leave cooked {food} in a {thing}, how long is it good for?",
        ),
        (
            "How long must I cook {food} in a {thing}?",
            "How do I get the smell of {food} out of a {thing}?",
            "When did people first keep {food} in a {thing}?",
        ),
        {"food": "food", "thing": "thing"},
    ),
)
LEADS = ("", "", "", "", "", "Quick question: ", "Does anyone know? ", "Just wondering: ")


def question_pair(dice: Dice) -> SampleDraft:
    from model.data.sample.corpus import SampleDraft

    ask = dice.pick(ASKS)
    filling = _fill(dice, ask)
    if dice.chance(0.44):
        first, second = dice.two(ask.wordings)
        texts, label = (_say(dice, first, filling), _say(dice, second, filling)), 1.0
    else:
        texts, label = (
            (_say(dice, dice.pick(ask.wordings), filling), _miss(dice, ask, filling)),
            0.0,
        )
    if dice.chance(0.5):
        texts = texts[::-1]
    return SampleDraft(texts[0], texts[1], label)


def _fill(dice: Dice, ask: Ask) -> Filling:
    if "a" in ask.slots:
        first, second = dice.two(SLOTS[ask.slots["a"]])
        return {"a": first, "b": second}
    return {name: dice.pick(SLOTS[key]) for name, key in ask.slots.items()}


def _miss(dice: Dice, ask: Ask, filling: Filling) -> str:
    """A question that is near the one asked and is not the same."""
    kind = dice.share()
    if kind < 0.2:
        return _say(dice, dice.pick(ask.instead), filling)
    if kind < 0.3:
        other = dice.pick([other for other in ASKS if other is not ask])
        return _say(
            dice, dice.pick(other.wordings), {**_fill(dice, other), **_same(other, filling)}
        )
    if kind < 0.7 and "a" in filling:
        changed = {"a": filling["b"], "b": filling["a"]}
    else:
        name = dice.pick(sorted(filling))
        choices = [item for item in SLOTS[ask.slots[name]] if item not in filling.values()]
        changed = {**filling, name: dice.pick(choices)}
    return _say(dice, dice.pick(ask.wordings), changed)


def _same(ask: Ask, filling: Filling) -> Filling:
    """What another question can take over from this one."""
    return {name: filling[name] for name in ask.slots if name in filling and name not in "ab"}


def _say(dice: Dice, wording: str, filling: Filling) -> str:
    words = {name: dice.pick(meaning) for name, meaning in filling.items()}
    text = dice.pick(LEADS) + wording.format(**words)
    for vowel in "aeio":  # an ostrich
        text = text.replace(f" a {vowel}", f" an {vowel}")
    return text
