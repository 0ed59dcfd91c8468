"""Numbers as people read them, in columns that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from model.cli.text import one_line
from tuner.scoring.crossfit import Difference

WIDTH = 100


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: set[str], indent: str = "  "
) -> list[str]:
    """Aligned columns; those that do not fit go below, under the first column again."""
    columns = [[one_line(cell) for cell in column] for column in zip(header, *rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    blocks: list[list[int]] = [[]]
    for number in range(1, len(columns)):
        used = len(indent) + widths[0] + sum(2 + widths[each] for each in blocks[-1])
        if blocks[-1] and used + 2 + widths[number] > WIDTH:
            blocks.append([])
        blocks[-1].append(number)
    lines = []
    for block in blocks:
        for line in range(len(rows) + 1):
            cells = [
                f"{columns[n][line]:{'<' if header[n] in left else '>'}{widths[n]}}"
                for n in (0, *block)
            ]
            lines.append(cut((indent + "  ".join(cells)).rstrip()))
    return lines


def plus(value: float, digits: int = 3) -> str:
    """+.031, -.004, and .000 without a sign."""
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}"[1:] if float(text) == 0 else text.replace("0.", ".", 1)


def difference_parts(difference: Difference) -> tuple[str, str]:
    """+.002 and [-.001, +.005]; +.0015 and [+.0003, +.0029], lest an end be read as zero."""
    value, low, high = difference
    digits = 4 if any(round(end, 3) == 0 != round(end, 4) for end in (low, high)) else 3
    return plus(value, digits), f"[{plus(low, digits)}, {plus(high, digits)}]"


def difference_text(difference: Difference, tie: str = ", a tie") -> str:
    return " ".join(difference_parts(difference)) + (tie if difference.tie else "")


def cut(line: str) -> str:
    line = one_line(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 3] + "..."
