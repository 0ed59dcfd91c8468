"""A run's model as a folder for the Hub, and on its way there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.cli.invocation import command
from model.common.errors import InputError
from model.common.files import write_atomic
from model.common.hub import away, endpoint, no_way
from model.common.secrets import brief
from model.evaluation.model_folder import read_class_names
from tuner.export.hub.folder import check_folder, gather, is_known
from tuner.export.hub.sentences import FILES as SENTENCE_FILES
from tuner.export.hub.sentences import add_sentence_files
from tuner.predict.choose import RunModels
from tuner.runs.open import open_run
from tuner.soup.ensemble_file import ENSEMBLE
from tuner.soup.record import CARD, MethodRecord, SoupRecord, slug
from tuner.soup.text import members_of, model_card, origin_of, settings_of

LOG_IN = "log in with: hf auth login, or set HF_TOKEN to a token that may write"


@dataclass(frozen=True)
class PreparedPush:
    folder: Path
    who: str  # which of the run's models it is
    sentences: str | None  # the task that it embeds sentences for

    @property
    def files(self) -> dict[str, int]:
        """Their sizes in bytes."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.stat().st_size for path in found}


@contextmanager
def prepared(
    run: Path, name: str, model: str | None = None, license: str | None = None
) -> Iterator[PreparedPush]:
    """A folder with the model, its card and nothing else, for as long as the block lasts."""
    check_name(name)
    opened = open_run(run)
    models = RunModels(run, opened.state)
    if models.soup is None:
        fault = f"has no soup, whose scores the card tells; make it with {command('soup', run)}"
        raise InputError(str(run), [fault])
    chosen = models.recommended() if model is None else models.named(model)
    method = method_of(models.soup, model)
    if method is None:
        known = ", ".join(f"'{each.name}'" for each in models.soup.methods)
        fault = f"'{model}' is a trial, and the card tells the scores of a soup's methods"
        raise InputError("--model", [f"{fault}; name one of {known}"])
    if (chosen.place / ENSEMBLE).is_file():
        remedy = "take one model with --model 'greedy soup', or search with --distill"
        raise InputError(str(run), [f"the {method.name} is no single model; {remedy}"])
    members = members_of(method)
    names = check_folder(chosen.place)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        folder.mkdir()
        gather(chosen.place, names, folder)
        task = add_sentence_files(chosen.place, folder)
        card = model_card(
            models.soup,
            settings_of(opened, members),
            read_class_names(chosen.place),
            origin_of(opened, members, license),
            method=method.name,
            hub=name,
            sentences=task.name if task else None,
        )
        write_atomic(folder / CARD, card)
        yield PreparedPush(folder, chosen.who, task.name if task else None)


def method_of(soup: SoupRecord, name: str | None) -> MethodRecord | None:
    wanted = soup.recommended if name is None else name
    return next((each for each in soup.methods if wanted in (each.name, slug(each.name))), None)


def check_name(name: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError("NAME", [f"{brief(str(error))}; write it as USER/MODEL"]) from None


def send(made: PreparedPush, name: str, *, private: bool, quiet: bool = False) -> str:
    """Its address. Files that the Hub has already are not sent again."""
    if no_way():
        raise InputError("push", [away()])
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if quiet:
        disable_progress_bars()
    api = HfApi(endpoint=endpoint())
    try:
        address = api.create_repo(name, private=private or None, exist_ok=True)
        if private and not api.model_info(address.repo_id).private:
            remedy = "make it private there, or choose another name"
            raise InputError("--private", [f"{name} exists and is public; {remedy}"])
        api.upload_folder(
            repo_id=address.repo_id,
            folder_path=made.folder,
            commit_message=f"{made.who.split(',')[0]}, made with Stockpot",
            delete_patterns=stale(made, api.list_repo_files(address.repo_id)) or None,
        )
    except HfHubHTTPError as error:
        raise refused(error, name) from None
    except (InputError, OSError):
        raise
    except Exception as error:  # a lost connection has another class in each HTTP library
        raise OSError(brief(f"{type(error).__name__}: {error}")) from error
    return str(address)


def stale(made: PreparedPush, there: Iterable[str]) -> list[str]:
    """What an earlier model left on the Hub and this one lacks: together they would be neither.
    What is not part of a model is somebody's own, and stays."""
    ours = (name for name in there if is_known(name) or name in SENTENCE_FILES)
    return [name for name in ours if name not in made.files]


def refused(error: Any, name: str) -> InputError:
    status = getattr(error.response, "status_code", None)
    said = brief(str(error), 300)
    if status in (401, 403):
        return InputError(name, [f"the Hub does not let you write there ({said}); {LOG_IN}"])
    return InputError(name, [f"the Hub refused it ({said}); the same command goes on"])
