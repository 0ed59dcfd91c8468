"""What a shipped cluster file leaves to its user, and the user has left as it was.

The files mark it: `# CHANGE` beside a line or above it. `# CHANGE, if ...` may stay as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Nobody has these: they are for examples.
EXAMPLES = re.compile(
    r"sg-0123456789abcdef0|\bmy-project\b|\b192\.0\.2\.\d+|\w+://BUCKET\b|\bmy-registry\b"
    r"|=PARTITION\b|/path/to/shared\b"
)
# Somebody may have these: they count while the mark is there.
AS_SHIPPED = re.compile(
    r"(?:IamInstanceProfile: \{Name: |ssh_user: |serviceAccountName: )(stockpot-head|me|stockpot)\b"
)
MARK = re.compile(r"#\s*CHANGE\b(?!,)")
COMMENT = re.compile(r"(?:^|\s)#.*")


def placeholder_faults(text: str) -> Iterator[str]:
    marked = False
    for number, line in enumerate(text.splitlines(), 1):
        written = COMMENT.sub("", line)
        marked = marked or MARK.search(line) is not None
        if not written.strip():
            continue  # a comment, for the line below it
        if found := EXAMPLES.search(written):
            yield f"line {number}: '{found[0]}' is an example; write your own"
        elif marked and (found := AS_SHIPPED.search(written)):
            remedy = "write your own, or remove the mark if it is right as it is"
            yield f"line {number}: '{found[1]}' is marked CHANGE; {remedy}"
        marked = False
