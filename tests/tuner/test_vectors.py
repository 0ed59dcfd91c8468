from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.folder import load_model, save_model
from model.multitask import MultitaskModel
from tuner.reporting.vectors import vectors_of


@pytest.mark.parametrize("task", ["mood", "same", "near"])
def test_every_row_has_its_own_vector(
    tiny: MultitaskModel, tokenizer: Any, texts_of: Callable[..., Any], task: str, tmp_path: Path
) -> None:
    save_model(tmp_path / "model", tiny, tokenizer)
    loaded = load_model(tmp_path / "model")
    spec = loaded.tasks[task]
    given = texts_of(spec, 80)  # several batches, of all lengths
    texts = [text if spec.pair else (text,) for text in given]
    together = vectors_of(loaded, task, texts)
    for row in (0, 1, 40, 79):
        alone = vectors_of(loaded, task, [texts[row]])
        assert np.allclose(together[row], alone[0], atol=1e-5), row
