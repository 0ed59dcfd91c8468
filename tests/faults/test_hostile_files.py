"""Files from strangers: what is in them is read, and never run."""

from __future__ import annotations

import ast
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import model
import tuner
from model.common.errors import InputError
from model.config.parse import read_settings
from model.modules.encoder import load_encoder, load_tokenizer
from model.tasks.task_set import load_task_set
from tuner.runs.folder import read_run, write_run
from tuner.space.space import load_space

LAUGHS = "a0: &a0 [ha, ha]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
TRICKS: dict[str, Callable[[Path], str]] = {
    "an object": lambda mark: f"tasks: !!python/object/apply:os.mkdir ['{mark}']\n",
    "a name": lambda mark: "tasks: !!python/name:os.system\n",
    "a module": lambda mark: "tasks: !!python/module:os\n",
    "a new object": lambda mark: f"tasks: !!python/object/new:os.mkdir ['{mark}']\n",
    "a billion laughs": lambda mark: LAUGHS,
    "deep nesting": lambda mark: "tasks: " + "[" * 5000 + "]" * 5000 + "\n",
    "deep mappings": lambda mark: "tasks: " + "{a: " * 3000 + "}" * 3000 + "\n",
    "an alias of itself": lambda mark: "tasks: &a [*a]\nparameters: *a\n",
    "a long number": lambda mark: f"seed: {'9' * 6000}\n",
    "a merge of itself": lambda mark: "tasks: &a\n  <<: *a\n",
    "nothing but a tag": lambda mark: "!!python/object/apply:os.abort []\n",
}


def read_run_file(path: Path) -> Any:
    path.rename(path.with_name("run.yaml"))
    return read_run(path.parent)


READERS: dict[str, Callable[[Path], Any]] = {
    "space": lambda path: load_space(str(path)),
    "tasks": lambda path: load_task_set(str(path)),
    "config": read_settings,
    "run": read_run_file,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("trick", TRICKS)
def test_yaml_with_tricks_is_refused_and_does_nothing(
    reader: str, trick: str, tmp_path: Path
) -> None:
    mark = tmp_path / "was here"
    path = tmp_path / "mine.yaml"
    path.write_text(TRICKS[trick](mark))
    with pytest.raises(InputError) as refused:
        layer = READERS[reader](path)
        if reader == "config":  # its values are looked at when they are put together
            from model.config.parse import parse_layers

            parse_layers([layer], load_task_set("sample"))
    assert len(str(refused.value)) < 5000
    assert not mark.exists()


def test_a_run_file_cut_anywhere_is_never_taken_for_the_whole(tmp_path: Path) -> None:
    from tuner.runs.folder import changes

    prints = {
        "data": "a1",
        "tasks": "b2",
        "encoder": "tiny",
        "code": "c3",
        "packages": {"torch": "2.1", "transformers": "5.1"},
    }
    write_run(tmp_path, {"space": "default", "seed": 3}, prints)
    whole = (tmp_path / "run.yaml").read_text()
    for cut in range(len(whole.rstrip())):
        (tmp_path / "run.yaml").write_text(whole[:cut])
        try:
            found = read_run(tmp_path)
        except InputError:
            continue
        assert changes(found["fingerprints"], prints), whole[:cut]


# --- pickles ------------------------------------------------------------------------------------


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_weights_that_are_a_pickle_are_not_loaded(tmp_path: Path) -> None:
    folder, mark = tmp_path / "encoder", tmp_path / "was here"
    encoder: Any = load_encoder("tiny")
    encoder.save_pretrained(folder)
    load_tokenizer("tiny").save_pretrained(folder)
    load_encoder(str(folder))
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(str(folder))
    assert not mark.exists()


def test_code_that_comes_with_an_encoder_is_not_run(tmp_path: Path) -> None:
    folder, mark = tmp_path / "encoder", tmp_path / "was here"
    encoder: Any = load_encoder("tiny")
    encoder.save_pretrained(folder)
    load_tokenizer("tiny").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "theirs",
        "auto_map": {"AutoConfig": "theirs.C", "AutoModel": "theirs.M"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder(str(folder))
    load_tokenizer(str(folder))  # has no need of it
    assert not mark.exists()


UNSAFE = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
CALLS = {"torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.load", "np.load"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
SOURCES = sorted(
    file for package in (model, tuner) for file in Path(package.__file__).parent.rglob("*.py")
)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_source_unpickles_or_runs_text(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & UNSAFE
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in UNSAFE
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in CALLS | BUILTINS, node.lineno
