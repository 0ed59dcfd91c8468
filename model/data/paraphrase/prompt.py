"""What the language model is told: a template, shipped or the user's, filled with one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model.common.errors import InputError, suggest
from model.common.untrusted import read_regular
from model.tasks.task_set import Task

# A server's model is asked for a list. A local one says one sentence, several times over: small
# models write no lists, and one trained to paraphrase knows nothing else.
Style = Literal["list", "sentence", "seq2seq"]
NAMES = ("sentence", "count", "label", "task")
RULE = "---"  # a line of its own, between what the system says and what the user says
FIELD = re.compile(r"\{([A-Za-z_]\w*)\}")
MOST_BYTES = 100_000

SHIPPED: Mapping[Style, str] = {
    "list": """\
You rewrite sentences of a data set. You answer with JSON and nothing else.
---
Write {count} paraphrases of the sentence below.

- Keep its meaning, its tone and how strong that tone is: whoever reads one of yours must come to
  the same judgement as a reader of the original.
- Keep names, numbers and negations.
- Change words and structure as much as that allows, and make each differ from the others.
- A fragment may stay a fragment, and a question stays a question.

Answer with a JSON list of {count} strings.

Sentence: {sentence}
""",
    "sentence": """\
Say the sentence below in other words. Keep its meaning and its tone, names, numbers and negations.
Answer with the new sentence only.

Sentence: {sentence}
In other words:""",
    "seq2seq": "paraphrase: {sentence}",
}


@dataclass(frozen=True)
class PromptTemplate:
    """Text with fields in braces; `system` may be empty."""

    system: str
    user: str

    @property
    def text(self) -> str:
        """As it stands in a file."""
        return f"{self.system}\n{RULE}\n{self.user}" if self.system else self.user

    def fill(self, task: Task, sentence: str, label: float, count: int) -> list[dict[str, str]]:
        """The messages of one request."""
        name = f"{label:g}" if task.kind == "regression" else task.source.label_name(label)
        values = {"sentence": sentence, "count": str(count), "label": name, "task": task.name}
        # All in one go: a sentence may hold braces itself.
        said = (("system", self.system), ("user", self.user))
        return [
            {"role": role, "content": FIELD.sub(lambda found: values[found[1]], text)}
            for role, text in said
            if text
        ]


def shipped_template(style: Style) -> PromptTemplate:
    return parse_template(SHIPPED[style], f"template '{style}'")


def read_template(path: Path) -> PromptTemplate:
    try:
        text = read_regular(path, MOST_BYTES, links=True).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(str(path), ["no such file; check --template"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), [f"cannot be read as UTF-8 text: {error}"]) from None
    return parse_template(text, str(path))


def parse_template(text: str, where: str) -> PromptTemplate:
    parts = re.split(rf"^{RULE}[ \t]*\r?\n", text, flags=re.MULTILINE)
    faults = []
    if len(parts) > 2:
        faults.append(f"has {len(parts) - 1} lines of {RULE}; one divides system and user message")
    for name in dict.fromkeys(FIELD.findall(text)):
        if name not in NAMES:
            faults.append(f"{{{name}}} is not a field; {suggest(name, NAMES)}")
    if "{sentence}" not in parts[-1]:
        faults.append("must hold {sentence}, in the user message")
    if faults:
        raise InputError(where, faults)
    system, user = parts if len(parts) == 2 else ("", parts[0])
    return PromptTemplate(system.strip(), user.strip())
