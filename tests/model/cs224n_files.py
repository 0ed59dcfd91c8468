"""Made-up files in the format of the CS224N project, quirks included."""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS = "the a cat dog house tree film book plays reads sees likes old new red slow".split()


def sentence(rng: np.random.Generator) -> str:
    words = [str(word) for word in rng.choice(WORDS, size=int(rng.integers(3, 9)))]
    return " ".join(words).capitalize() + "."


def write_cs224n(folder: Path, rows: int = 24) -> Path:
    """All nine files; the paraphrase dev file has a row without a label and one cut short."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for split, suffix in (("train", ""), ("dev", ""), ("test", "-student")):
        labelled = split != "test"
        lines = ["\tid\tsentence" + "\tsentiment" * labelled]
        for n in range(rows):
            label = f"\t{n % 5}" if labelled else ""
            lines.append(f"{n}\tSST{split}{n:03d}\t {sentence(rng)}{label}")
        (folder / f"ids-sst-{split}{suffix}.csv").write_text("\n".join(lines) + "\n")
        for name, column in (("quora", "is_duplicate"), ("sts", "similarity")):
            lines = ["\tid\tsentence1\tsentence2" + f"\t{column}" * labelled]
            for n in range(rows):
                value = f"{n % 2}.0" if name == "quora" else f"{n % 6}.0"
                pair = f"{sentence(rng)}\t{sentence(rng)}"
                lines.append(f"{n}\t{name}{split}{n:03d}\t{pair}" + f"\t{value}" * labelled)
            if name == "quora" and split == "dev":
                lines += [f"{rows}\tquoranolabel\t{sentence(rng)}\t{sentence(rng)}\t"]
                lines += [f"{rows + 1}\tquoracut\t{sentence(rng)}"]
            (folder / f"{name}-{split}{suffix}.csv").write_text("\n".join(lines) + "\n")
    return folder
