"""What is asked of a study: the table of its flags, beside those of every search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from model.cli.flags import Flag, settle
from model.common.errors import InputError
from model.common.typed import Above, AtLeast, AtMost
from tuner.runs.request import read_set, settled, settled_settings, write_set

WHAT = "what to run"


def read_files(given: Any) -> Any:
    """['wiki=text.txt'] -> {'wiki': the file's full path}"""
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        return given
    pairs = [text.partition("=") for text in given]
    faults = [f"'{''.join(pair)}' is not NAME=PATH" for pair in pairs if not (pair[0] and pair[2])]
    if faults:
        raise InputError("--file", faults)
    return {name: str(Path(path).absolute()) for name, _, path in pairs}


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    tasks: Annotated[str | None, Flag("Train on this task set.", WHAT, "SET", "the study's")] = None
    data: Annotated[
        str | None, Flag("Read the tasks' files in this folder.", WHAT, "DIR", "none")
    ] = None
    encoder: Annotated[
        str | None,
        Flag("Train this encoder: minilm, a folder or a Hub id.", WHAT, "NAME", "the paper's"),
    ] = None
    scale: Annotated[
        float,
        Above(0),
        AtMost(10),
        Flag(
            *("Train for this share of the paper's training.", WHAT, "X"),
            write=lambda share: [repr(share)],  # to the digit, or another length comes of it
        ),
    ] = 1.0
    examples: Annotated[
        int | None,
        AtLeast(1),
        Flag("Train every row for so many examples.", WHAT, "N", "the paper's times --scale"),
    ] = None
    evaluations: Annotated[
        int | None,
        AtLeast(1),
        Flag("Evaluate every training N times.", WHAT, "N", "the study's"),
    ] = None
    seeds: Annotated[
        int, AtLeast(1), AtMost(50), Flag("Train every row with so many seeds.", WHAT, "N")
    ] = 1
    seed: Annotated[int, AtLeast(0), Flag("Begin with this seed.", WHAT, "N")] = 0
    set: Annotated[
        dict[str, Any],
        Flag(
            *("Hold a setting in all rows; may be repeated.", WHAT, "K=V", "none"),
            read=read_set,
            write=write_set,
        ),
    ] = field(default_factory=dict)
    file: Annotated[
        dict[str, str],
        Flag(
            "Give a file that a row needs; may be repeated.",
            WHAT,
            "N=FILE",
            "none",
            read=read_files,
            write=lambda files: [f"{name}={path}" for name, path in files.items()],
        ),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("tasks", "data", "encoder"):  # a study may go on from another folder
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, settled(name, str(value)))
        settle(self)
        if isinstance(self.set, Mapping):  # else its fault is told later
            object.__setattr__(self, "set", settled_settings(self.set))
