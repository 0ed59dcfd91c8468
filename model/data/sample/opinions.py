"""Graded opinions for the sample corpus, from -2 to 2 (classes 0 to 4).

What decides is not which words occur but how they stand: negation turns or weakens a word,
and of two clauses in contrast the main one counts most, wherever it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.data.sample.corpus import Dice, SampleDraft

THINGS = (
    *("the harbour tour", "this desk lamp", "the second season", "her latest novel"),
    *("the hotel breakfast", "the night train", "our cooking class", "the puppet show"),
    *("this rain jacket", "the museum café", "the new keyboard", "his first album"),
    *("the garden party", "the walking guide", "the mountain hut", "that board game"),
    *("the opening concert", "the lentil soup", "the campsite", "this folding bike"),
    *("the evening lecture", "the ferry crossing", "the corner bakery", "the radio play"),
    *("the language course", "the coffee grinder", "the holiday flat", "the film's ending"),
    *("the choir", "the dance workshop", "the phone's camera", "the swimming pool"),
)
ASPECTS = (
    *("the staff", "the sound", "the first hour", "the price", "the design", "the finish"),
    *("the pace", "the setting", "the instructions", "the middle part", "the seating"),
    *("the colour", "the lighting", "the last part", "the packaging", "the idea behind it"),
)
WORDS: dict[int, tuple[str, ...]] = {
    2: (
        *("superb", "wonderful", "brilliant", "delightful", "outstanding", "magnificent"),
        *("thrilling", "gorgeous", "perfect", "unforgettable"),
    ),
    1: (
        *("pleasant", "decent", "charming", "likeable", "solid", "clever", "comfortable"),
        *("friendly", "well made", "enjoyable", "inspired", "welcoming"),
    ),
    0: (
        *("ordinary", "average", "unremarkable", "so-so", "standard", "neither good nor bad"),
        *("much as expected", "nothing special", "middling", "passable"),
    ),
    -1: (
        *("dull", "clumsy", "bland", "flimsy", "tiresome", "stale", "awkward", "gloomy"),
        *("overpriced", "confusing", "disappointing", "careless"),
    ),
    -2: (
        *("dreadful", "awful", "terrible", "appalling", "miserable", "unbearable"),
        *("disastrous", "horrid", "atrocious", "abysmal"),
    ),
}
PHRASES: dict[int, tuple[str, ...]] = {
    2: ("swept us off our feet", "beat every hope I had", "left everyone beaming"),
    1: ("won me over", "kept its promise", "never bored us", "lost none of its charm"),
    0: ("did its job and no more", "came and went", "left me without an opinion"),
    -1: ("failed to impress", "wore me out", "lacked any charm", "lost me halfway"),
    -2: ("ruined the whole week", "made me want my money back", "was a torment throughout"),
}
# How a frame changes the grade of the word inside it.
FRAMES: tuple[tuple[tuple[str, ...], dict[int, int]], ...] = (
    (("was {}", "turned out {}", "seemed {} to me"), {2: 2, 1: 1, 0: 0, -1: -1, -2: -2}),
    (("was really {}", "was remarkably {}", "was extremely {}", "was so {}"), {1: 2, -1: -2}),
    (("was almost {}", "came close to being {}"), {2: 1, -2: -1}),
    (("was not {}", "wasn't {}", "was hardly {}"), {2: 0, 1: -1, -1: 1, -2: 0}),
    (("was not at all {}", "was never {}", "was far from {}"), {2: -1, 1: -1, -1: 1, -2: 1}),
    (("was anything but {}", "was the opposite of {}"), {2: -2, 1: -2, -1: 2, -2: 2}),
)
OPENERS = (
    *("", "", "", "", "Honestly, ", "In the end, ", "To my surprise, ", "This time, "),
    *("For once, ", "As a gift, ", "On a rainy Sunday, ", "With two children, "),
)
CLOSERS = (
    *("", "", "", "", ", my sister thought", " on the second try", " this summer"),
    *(", at least for us", " last week", ", if you ask me"),
)
CONTRASTS = (  # {a} gives way, {b} decides
    *("{a}, but {b}", "although {a}, {b}", "{b}, even though {a}", "while {a}, {b}"),
    *("{a}; still, {b}", "{b}, despite the fact that {a}"),
)


def opinion(dice: Dice) -> SampleDraft:
    from model.data.sample.corpus import SampleDraft

    if dice.chance(0.45):
        body, grade = _contrast(dice)
    else:
        body, grade = _clause(dice, dice.pick(THINGS))
    text = f"{dice.pick(OPENERS)}{body}{dice.pick(CLOSERS)}."
    return SampleDraft(text[0].upper() + text[1:], None, float(grade + 2))


def _clause(dice: Dice, subject: str) -> tuple[str, int]:
    if dice.chance(0.15):
        grade = dice.pick((-2, -1, 0, 1, 2))
        return f"{subject} {dice.pick(PHRASES[grade])}", grade
    forms, effect = dice.pick(FRAMES)
    word_grade = dice.pick(tuple(effect))
    words = dice.pick(forms).format(dice.pick(WORDS[word_grade]))
    return f"{subject} {words}", effect[word_grade]


def _contrast(dice: Dice) -> tuple[str, int]:
    (first, given), (second, decides) = (
        _clause(dice, dice.pick(THINGS)),
        _clause(dice, dice.pick(ASPECTS)),
    )
    if dice.chance(0.5):
        first, second, given, decides = second, first, decides, given
    quarters = given + 3 * decides
    grade = (abs(quarters) + 2) // 4 * (1 if quarters > 0 else -1)
    return dice.pick(CONTRASTS).format(a=first, b=second), grade
