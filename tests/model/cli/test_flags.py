from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from model.cli.flags import Flag, faults_of, flags_of, given_for, settle, sound
from model.cli.parser import Parser, add_quiet, command_parser
from model.common.errors import InputError, PartlyRead
from model.common.typed import Above, AtLeast


@dataclass(frozen=True, kw_only=True)
class Soup:
    salt: Annotated[int, AtLeast(1), Flag("Grains of it.", "what", "N")] = 3
    heat: Annotated[float | None, Above(0), Flag("Degrees.", "how", "X", "the pot's")] = None
    pot: Annotated[Path, Flag("Where it is made.", "how", "DIR")] = Path("pots")
    kind: Annotated[Literal["thick", "thin"], Flag("What it is like.", "what")] = "thick"
    lid: Annotated[bool, Flag("Leave the lid off.", "how")] = True
    more: Annotated[dict[str, Any], Flag("What else.", "what", "K=V", "nothing")] = field(
        default_factory=dict
    )
    secret: str = "no flag"

    def __post_init__(self) -> None:
        settle(self)


def make_parser() -> Parser:
    parser = command_parser("soup", "Make one.", {"one": "", "two": "--salt 2"}, "Eat it.")
    parser.add_table(Soup)
    add_quiet(parser.group("how"))
    return parser


def test_help_follows_from_the_table() -> None:
    lines = make_parser().format_help().splitlines()
    told = [line.strip() for line in lines]
    assert "--salt N             Grains of it (default: 3)." in told
    assert "--kind {thick,thin}  What it is like (default: thick)." in told
    assert "--heat X             Degrees (default: the pot's)." in told
    assert "--no-lid             Leave the lid off." in told
    assert told.index("what:") < told.index("how:") < told.index("examples:")
    assert lines[-4:] == [
        "  one  python -m tuner.soup",
        "  two  python -m tuner.soup --salt 2",
        "",
        "Eat it.",
    ]
    assert "secret" not in " ".join(told)


def test_only_what_is_given_is_in_the_namespace() -> None:
    found = vars(make_parser().parse_args(["--salt", "7", "--no-lid", "--heat=1e2"]))
    assert given_for(Soup, found) == {"salt": "7", "lid": False, "heat": "1e2"}
    soup = Soup(**given_for(Soup, found))
    assert (soup.salt, soup.lid, soup.heat, soup.pot) == (7, False, 100.0, Path("pots"))


def test_every_fault_of_the_flags_is_told_at_once() -> None:
    with pytest.raises(InputError) as refused:
        make_parser().parse_args(["--slat", "1", "--salt", "no", "--kind", "thik", "--xyz"])
    assert refused.value.where == "python -m tuner.soup"
    assert refused.value.faults == [
        "'--slat' is not a flag; did you mean --salt?",
        "'--xyz' is not a flag; --help shows all",
        "--salt must be a whole number >= 1, but is 'no'",
        "--kind must be one of thick, thin, but is 'thik'; did you mean 'thick'?",
    ]


def test_what_argparse_would_stop_at_is_told_with_the_rest() -> None:
    parser = make_parser()
    parser.add_argument("what", metavar="WHAT")
    parser.add_argument("-n", "--times", type=int)
    parser.check = lambda found: [f"seen: {sorted(vars(found))}", "seen twice", "seen twice"]
    with pytest.raises(InputError) as refused:
        parser.parse_args(["--heat", "--times", "two", "--slat", "--salt", "0", "--more"])
    assert refused.value.faults == [
        "'--slat' is not a flag; did you mean --salt?",
        "--heat: expected one argument; --help shows all",
        "-n/--times must be a whole number, but is 'two'",
        "--more: expected one argument; --help shows all",
        "the following arguments are required: WHAT; --help shows all",
        "--salt must be a whole number >= 1, but is '0'",
        "seen: ['quiet', 'salt', 'times', 'what']",
        "seen twice",
    ]


def test_what_of_a_flag_can_be_read_stands_in_for_it() -> None:
    def read(given: Any) -> Any:
        raise PartlyRead("--more", ["half of it is wrong"], {"rest": 1})

    flag = flags_of(Soup)["more"]
    half = replace(flag, flag=replace(flag.flag, read=read))
    assert half.faults(["x"]) == ["--more: half of it is wrong"]
    assert half.mended(["x"]) == {"rest": 1} and flag.mended([1]) == {}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["more"], "'more' is one too many; --help shows what there is"),
        (["--salt"], "--salt: expected one argument; --help shows all"),
    ],
)
def test_what_cannot_be_parsed_is_told_without_the_usage(words: list[str], fault: str) -> None:
    with pytest.raises(InputError) as refused:
        make_parser().parse_args(words)
    assert refused.value.faults == [fault]


def test_what_does_not_fit_is_told_and_its_default_stands_in() -> None:
    soup = Soup(salt=0, heat="hot", pot=7, lid="on", more=[1])  # type: ignore[arg-type]
    assert faults_of(Soup, vars(soup)) == [
        "--salt must be a whole number >= 1, but is 0",
        "--heat must be a number > 0, but is 'hot'",
        "--pot must be a path, but is 7",
        "--no-lid must be true or false, but is 'on'",
        "--more must be values by their keys, but is [1]",
    ]
    assert sound(soup) == Soup()
    assert faults_of(Soup, {}) == []


def test_a_flag_is_written_as_it_is_typed() -> None:
    flags = flags_of(Soup)
    assert flags["heat"].arguments(2.0) == ["--heat", "2"]
    assert flags["pot"].arguments(Path("a b")) == ["--pot", "a b"]
    assert flags["lid"].arguments(False) == ["--no-lid"] and flags["lid"].shown(False) is True


def test_a_subcommand_s_flags_are_known_too() -> None:
    parser = command_parser("data", "Do.", {"it": "look"})
    parser.add_subparsers(dest="command").add_parser("look").add_argument("--deep")
    with pytest.raises(InputError, match="did you mean --deep"):
        parser.parse_args(["look", "--deeep"])
    with pytest.raises(InputError, match="'lok' is not a command; did you mean 'look'"):
        parser.parse_args(["lok"])
    with pytest.raises(InputError, match="--deep: expected one argument"):
        parser.parse_args(["look", "--deep"])
