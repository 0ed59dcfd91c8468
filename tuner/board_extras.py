"""What a board has beside curves: pictures of the best trials, the soups, the projector.

`soup/soup.json` is what `tuner.soup` leaves; without it there are no soups to show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.files import remove_folder
from tuner.board_hparams import session_end, session_start
from tuner.event_files import PICTURES, EventFile, files_in, picture, scalars, text
from tuner.pictures import pictures_of
from tuner.run_folder import read_run
from tuner.run_state import TrialState

if TYPE_CHECKING:
    from tuner.tensorboard import Board

SOUP = Path("soup") / "soup.json"


def draw_trial(board: Board, trial: TrialState) -> None:
    """The pictures of the evaluation that stands for the trial, from its dev predictions."""
    best = trial.chosen(board.state.objectives)
    place = board.folder / "trials" / trial.id
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
    for tag, drawn in pictures_of(predictions, board.space.task_set, title).items():
        file.add(picture(tag, drawn.png, drawn.width, drawn.height), when, step)


# --- soups ----------------------------------------------------------------------------------


def read_soup(folder: Path) -> dict[str, Any] | None:
    path = folder / SOUP
    if not path.is_file():
        return None
    soup: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return soup


def write_soups(board: Board) -> None:
    """A row of the table for each soup and ensemble, with pictures of those that are kept."""
    soup = read_soup(board.folder)
    if soup is None:
        return
    for method in soup.get("methods", []):
        if method.get("kind") == "single":  # it is a trial, and has its row
            continue
        place = board.folder / "board" / slug(method["name"])
        remove_folder(place)
        file, when = EventFile(place), float(soup["time"])
        file.add(session_start(row_of(method["name"]), {"origin": "soup"}, when), when)
        file.add(scalars(_scores(method)), when)
        file.add(session_end("finished", when), when)
        file.add(text("about", _about(method)), when)
        kept = method.get("folder") or method["name"] == soup.get("recommended")
        predictions = method.get("predictions")
        if kept and predictions and (board.folder / predictions).is_file():
            pictures = EventFile(place, PICTURES)
            _draw(board, pictures, board.folder / predictions, method["name"], when)


def row_of(method: str) -> str:
    """Its name in the table, which TensorBoard sorts by: after all trials."""
    return f"~ {method}"


def slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "soup"


def _scores(method: Mapping[str, Any]) -> dict[str, float | None]:
    # With a task as objective, `score` is that task's.
    overall = method.get("overall") or method["score"]
    values: dict[str, float | None] = {"best/overall": overall["value"]}
    values |= {f"best/{name}": of["value"] for name, of in method.get("tasks", {}).items()}
    return values


def _about(method: Mapping[str, Any]) -> str:
    members = method.get("members") or []
    named = members if isinstance(members, list) else [f"{k}: {v}" for k, v in members.items()]
    lines = [str(method.get("about", "")), "", *(f"- {member}" for member in named)]
    return "\n".join(lines).strip() or str(method["name"])


# --- embeddings -----------------------------------------------------------------------------


def write_embeddings(board: Board, data: Path | None = None) -> None:
    """Dev sentences as the soup sees them, or, if there is none, the best trial's model."""
    from tuner.projector import write_projector

    found = best_model(board)
    if found is None:
        return
    name, model = found
    if data is None and (asked := read_run(board.folder)["asked"].get("data")):
        data = Path(asked)
    write_projector(board.folder, model, board.space.task_set, data=data, name=name)


def best_model(board: Board) -> tuple[str, Path] | None:
    """Its name and folder; None if no trial has finished or its model was deleted."""
    if read_soup(board.folder) is not None and (board.folder / "soup" / "stockpot.json").is_file():
        return "the soup", board.folder / "soup"
    best = board.state.best_trial()
    chosen = best.chosen(board.state.objectives) if best is not None else None
    if best is None or chosen is None or "checkpoint" not in chosen:
        return None
    place = board.folder / "trials" / best.id / "checkpoints" / chosen["checkpoint"] / "model"
    return (f"{best.id}, the best trial", place) if place.is_dir() else None
