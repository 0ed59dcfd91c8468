"""What a board has beside curves: pictures of the best trials, the soups, the projector.

`soup/soup.json` is what `tuner.soup` leaves; without it there are no soups to show.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from model.common.files import remove_folder
from model.evaluation.model_folder import SPEC
from tuner.export.tensorboard.columns import ORIGIN, score_cells
from tuner.export.tensorboard.event_files import (
    BOARD,
    PICTURES,
    EventFile,
    files_in,
    picture,
    scalars,
    text,
)
from tuner.export.tensorboard.hparams import session_end, session_start
from tuner.export.tensorboard.pictures import pictures_of
from tuner.runs.folder import read_run, trial_folder
from tuner.runs.open import best_model
from tuner.runs.state import TrialState
from tuner.soup.methods import SINGLE
from tuner.soup.record import SOUP, MethodRecord, read_soup, slug

if TYPE_CHECKING:
    from tuner.export.tensorboard.board import Board


def draw_trial(board: Board, trial: TrialState) -> None:
    """The pictures of the evaluation that stands for the trial, from its dev predictions."""
    best = trial.chosen(board.state.objectives)
    place = trial_folder(board.folder, trial.id)
    if best is None or not (place / best.get("predictions", "-")).is_file():
        return
    title = f"{trial.id} after {best['examples']:,} examples"
    for old in files_in(place, PICTURES):
        old.unlink()
    file = EventFile(place, PICTURES)
    _draw(board, file, place / best["predictions"], title, best["time"], int(best["examples"]))


def _draw(
    board: Board, file: EventFile, predictions: Path, title: str, when: float, step: int = 0
) -> None:
    drawn = pictures_of(predictions, board.space.task_set, title).items()
    file.write((picture(tag, of.png, of.width, of.height) for tag, of in drawn), when, step)


# --- soups ----------------------------------------------------------------------------------


def write_soups(board: Board) -> None:
    """A row of the table for each soup and ensemble, with pictures of those that are kept."""
    soup = read_soup(board.folder)
    if soup is None:
        return
    for method in soup.methods:
        if method.kind == SINGLE:  # it is a trial, and has its row
            continue
        place = board.folder / BOARD / slug(method.name)
        remove_folder(place)
        file, when = EventFile(place), soup.time
        scores = _scores(method)
        values = {name: of.value for name, of in method.tasks.items()}
        cells = {**score_cells(method.overall.value, values), ORIGIN: "soup"}
        file.add(session_start(row_of(method.name), cells, when), when)
        file.add(scalars(scores), when)
        file.add(session_end("finished", when), when)
        file.add(text("about", _about(method)), when)
        kept = method.folder or method.name == soup.recommended
        if kept and method.predictions and (board.folder / method.predictions).is_file():
            pictures = EventFile(place, PICTURES)
            _draw(board, pictures, board.folder / method.predictions, method.name, when)


def row_of(method: str) -> str:
    """Its name in the table, which TensorBoard sorts by: after all trials."""
    return f"~ {method}"


def _scores(method: MethodRecord) -> dict[str, float | None]:
    # With a task as objective, `score` is that task's.
    tasks = {f"best/{name}": of.value for name, of in method.tasks.items()}
    return {"best/overall": method.overall.value, **tasks}


def _about(method: MethodRecord) -> str:
    members = method.members
    named = members if isinstance(members, list) else [f"{k}: {v}" for k, v in members.items()]
    lines = [method.about, "", *(f"- {member}" for member in named)]
    return "\n".join(lines).strip() or method.name


# --- embeddings -----------------------------------------------------------------------------


def write_embeddings(board: Board, data: Path | None = None) -> None:
    """Dev sentences as the soup sees them, or, if there is none, the best trial's model."""
    from tuner.export.tensorboard.projector import write_projector

    place = board.folder / SOUP
    found: tuple[str, Path] | None = ("the soup", place)
    if not (place / SPEC).is_file():
        found = best_model(board.folder, board.state)
    if found is None:
        return
    if data is None and (request := read_run(board.folder)["request"].get("data")):
        data = Path(request)
    name, model = found
    write_projector(board.folder, model, board.space.task_set, data=data, name=name)
