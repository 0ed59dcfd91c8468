"""Settings whose values need a package that only an extra installs."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from model.common.errors import install

TORCHJD = ("torchjd", "surgery")  # the package, the extra
PEFT = ("peft", "lora")
NEEDS: dict[str, dict[str, tuple[str, str]]] = {
    "surgery": dict.fromkeys(("upgrad", "mgda", "imtl_g", "aligned_mtl"), TORCHJD),
    "encoder.adapter": {"lora": PEFT},
}


def missing_packages(key: str, values: Sequence[Any]) -> list[str]:
    """Of a setting's values those that cannot be had here, and how they can."""
    needs = NEEDS.get(key, {})
    wanted = {value: needs[value] for value in needs if value in values}
    return [
        f"'{key}: {value}' needs {package}; {install(extra)}, or take another"
        for value, (package, extra) in wanted.items()
        if importlib.util.find_spec(package) is None
    ]
