"""Dev examples as the model sees them: what each task's head is given, in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.cli.text import shorten
from model.common.errors import InputError
from model.evaluation.evaluate import features_of, rows_from_texts
from model.evaluation.model_folder import TextModel, load_model
from tuner.report.mistakes.collect import Mistakes, Subject, TaskResult

POINTS = 600  # of all tasks together: t-SNE takes seconds for them
LEAST = 8  # of a task, below which there is nothing to see
WORDS = 60  # of a sentence that a point shows
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Cloud:
    """Some dev examples of one task, on two maps."""

    owner: str  # whose vectors they are
    result: TaskResult
    rows: NDArray[np.int64]  # which of the task's
    pca: Vectors  # [rows, 2]
    explained: tuple[float, float]  # shares of the variance
    tsne: Vectors  # [rows, 2]

    @property
    def texts(self) -> list[str]:
        known = self.result.sentences
        assert known is not None  # there would be no cloud
        return [" / ".join(shorten(part, WORDS) for part in known[row]) for row in self.rows]


def collect_clouds(mistakes: Mistakes, fallback: Subject | None) -> tuple[list[Cloud], str]:
    """A cloud for each task, and why there is none where there is none."""
    owner = next((s for s in (mistakes.subject, fallback) if s and s.model), None)
    if owner is None or owner.model is None:
        return [], "No picture of the embeddings: the model's folder is not there any more."
    readable = [
        result
        for result in mistakes.results
        if result.sentences is not None and len(result.answers.ids) >= LEAST
    ]
    if not readable:
        return [], "No picture of the embeddings: the sentences are not there."
    try:
        model = load_model(owner.model)
        known = [result for result in readable if result.task.name in model.tasks]
        each = POINTS // max(1, len(known))
        return [_cloud(owner.name, model, result, each) for result in known], ""
    except (InputError, OSError, RuntimeError, ValueError) as error:
        reason = error.faults[0] if isinstance(error, InputError) else error
        return [], f"No picture of the embeddings: {reason}."


def _cloud(owner: str, model: TextModel, result: TaskResult, limit: int) -> Cloud:
    from sklearn.decomposition import PCA  # type: ignore[import-untyped,unused-ignore]
    from sklearn.manifold import TSNE  # type: ignore[import-untyped,unused-ignore]
    from threadpoolctl import threadpool_limits

    count = len(result.answers.ids)
    rows = np.arange(count)
    if count > limit:
        rows = np.sort(np.random.default_rng(0).choice(count, size=limit, replace=False))
    assert result.sentences is not None
    vectors = vectors_of(model, result.task.name, [result.sentences[row] for row in rows])
    near = min(30.0, (len(rows) - 1) / 3)
    tsne = TSNE(perplexity=near, init="pca", learning_rate="auto", random_state=0, n_jobs=1)
    # So few points are done in no time by one thread. Several wait for each other at every step,
    # which takes minutes where the machine has other work.
    with threadpool_limits(1):
        pca = PCA(n_components=2, random_state=0).fit(vectors)
        flat, near_by = pca.transform(vectors), tsne.fit_transform(vectors)
    shares = np.nan_to_num(pca.explained_variance_ratio_)
    return Cloud(owner, result, rows, flat, (float(shares[0]), float(shares[1])), near_by)


def vectors_of(model: TextModel, task: str, texts: list[tuple[str, ...]]) -> Vectors:
    """What the task's head reads of each, [rows, width]."""
    spec = model.tasks[task]
    given: list[Any] = texts if spec.pair else [text[0] for text in texts]
    tokens = rows_from_texts(spec, given, model.tokenizer)
    vectors: Vectors = features_of(model.model, task, tokens, model.assembler).numpy()
    return vectors
