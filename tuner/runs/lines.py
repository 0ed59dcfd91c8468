"""The lines of a ledger: how an event is written as one, and what a file of them says.

A line has its number and the checksum of the line before, so that lines which were removed, moved
or put there by somebody else are seen. It ends with the CRC of the rest of it. That is against
damage and accidents: whoever wants to deceive can write checksums too.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field

from model.common.untrusted import parse_json
from tuner.runs.schema import misfit
from tuner.runs.state import Event

HEAD = b'{"event":"'
SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')
OWN = ("line", "before", "crc")  # of a line, and no part of its event
FIRST = "00000000"  # in place of a checksum before the first line
DAMAGED = "damaged (its checksum does not fit what it says)"
NO_EVENT = "not an event that this version knows"
NOT_NEXT = "does not follow the line before it"


@dataclass(frozen=True)
class Fault:
    line: int
    why: str
    breaks: bool = False  # whether what comes after it can be told


@dataclass(frozen=True)
class Content:
    events: list[Event]
    whole: int  # bytes up to the end of the last line that is whole
    faults: list[Fault]  # lines that are not what was written
    lines: int = 0  # the last one's number
    before: str = FIRST  # its checksum
    behind: bytes = field(default=b"", repr=False)  # from the first fault on
    sound: int = 0  # events before it; without one there is nothing to go on from

    @property
    def damaged(self) -> list[int]:
        return [fault.line for fault in self.faults]

    def told(self) -> list[str]:
        """For whoever wants to go on with it."""
        first = self.faults[0].line
        said = [f"line {fault.line}: {fault.why}" for fault in self.faults[:20]]
        remedy = "put back a copy of the file"
        if self.sound:
            cut = f"go on from line {first - 1} with --force; then {lost(self.behind)}"
            remedy = f"{remedy}, or {cut}"
        return [*said[:-1], f"{said[-1]}; {remedy}"]


def parse(data: bytes) -> Content:
    """Tell whole lines from a torn last one, from damaged ones, and from those that do not follow.

    Every line was on disk before the next was begun, so a crash can tear the last one only.
    Anything else was done to the file later, and is damage. Lines of versions that did not number
    them can stand before those that are numbered, and nowhere else.
    """
    *lines, rest = data.split(b"\n")
    events: list[Event] = []
    faults: list[Fault] = []
    whole = position = last = sound = 0
    behind = len(data)
    before: str | None = FIRST  # None after a damaged line, whose checksum nobody knows
    numbered = False
    for number, line in enumerate(lines, 1):
        start, position = position, position + len(line) + 1
        if not line.strip():
            whole = position
            continue
        found = read_line(line)
        if not isinstance(found, str) and (why := too_far(found[0], number)):
            found = f"{NO_EVENT} ({why})"
        if isinstance(found, str):
            if not rest and number == len(lines) and found == DAMAGED:
                break  # with its newline, but not what was meant: torn as well
            faults.append(Fault(number, found))
            behind = min(behind, start)
            before = None
        else:
            event, own, crc = found
            if own is None:
                why = f"{NOT_NEXT} (it has no number)" if numbered else None
                own = (last + 1, before or FIRST)
            else:
                why = _break(own, last, before)
                numbered = True
            if why is not None:
                faults.append(Fault(number, why, breaks=True))
                behind = min(behind, start)
                break
            last, before = own[0], crc
            events.append(event)
            sound += not faults
        whole = position
    torn = data[whole:]
    if not events and not faults and torn[: len(HEAD)] != HEAD[: len(torn)]:
        # Never the beginning of a ledger; do not take it for an empty one.
        faults.append(Fault(1, DAMAGED))
    return Content(events, whole, faults, last, before or FIRST, data[behind:], sound)


def _break(own: tuple[int, str], last: int, before: str | None) -> str | None:
    """Why a line does not follow the one before it."""
    line, said = own
    if before is None:
        return None if line > last else f"{NOT_NEXT} (it is line {line} of a ledger)"
    if line != last + 1:
        return f"{NOT_NEXT} (it is line {line} of a ledger, and should be {last + 1})"
    return None if said == before else f"{NOT_NEXT} (the checksum that it has of that differs)"


def encode(event: Event, line: int | None = None, before: str = FIRST) -> bytes:
    """A line; without a number as versions before 0.2 wrote it."""
    if line is not None:
        event = {**event, "line": line, "before": before}
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii")
    return body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> Event | None:
    """The event of a line, or None if the line is not exactly what was written."""
    found = read_line(line)
    return None if isinstance(found, str) else found[0]


def read_line(line: bytes) -> tuple[Event, tuple[int, str] | None, str] | str:
    """The event, its number with the checksum before it, and its own; or why it is none."""
    seal = SEAL.search(line)
    if seal is None:
        return DAMAGED
    body = line[: seal.start()] + b"}"
    if zlib.crc32(body) != int(seal[1], 16):
        return DAMAGED
    try:
        event = parse_json(body)
    except ValueError as error:
        return f"{NO_EVENT} ({error})"
    if not isinstance(event, dict):
        return NO_EVENT
    if why := misfit(event):
        return f"{NO_EVENT} ({why})"
    number, before = event.pop("line", None), event.pop("before", None)
    own = (number, before) if isinstance(number, int) and isinstance(before, str) else None
    return event, own, seal[1].decode()


def too_far(event: Event, line: int) -> str | None:
    """Trials and points are counted from 0, each in a line of its own. Whoever fills the gaps of a
    count, as a study does, would never come to its end if these could be any."""
    if event["event"] != "created":
        return None
    for key, number in (("trial", int(event["trial"][1:])), ("number", event["number"] or 0)):
        if number >= line:
            return f"'{key}' is {event[key]}, and there are {line - 1} lines before it"
    return None


def lost(data: bytes) -> str:
    """What these lines say, for whoever goes on without them."""
    found = [event for line in data.split(b"\n") if (event := decode(line)) is not None]
    kinds = Counter(str(event["event"]) for event in found)
    trials = sorted({str(event["trial"]) for event in found if "trial" in event})
    parts = [f"{count} {kind}" for kind, count in kinds.most_common()]
    named = ", ".join(trials[:8]) + (f" and {len(trials) - 8} more" if len(trials) > 8 else "")
    total = sum(1 for line in data.split(b"\n") if line.strip())
    what = f": {', '.join(parts)}" if parts else ""
    return f"{total} lines are lost{what}" + (f", of {named}" if named else "")


def ending(torn: bytes) -> str:
    if b"\0" in torn:
        return "its end is zeros, as a crash of the machine leaves; lines that stood there are lost"
    return "the last line was cut short"
