"""Files from strangers: what is in them is read through one door, and never run."""

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


# --- one door -----------------------------------------------------------------------------------

# Rooms that read what a run's folder holds. Whoever reads a file there without the bounds of
# `model.common.untrusted` is found here, not by the one who opens a stranger's run.
ROOMS = ("model/evaluation", "model/training", "model/data/teacher.py", "tuner")
OUTSIDE = ("tuner/cluster",)  # reads files that a person wrote and names
READS = {"read_text", "read_bytes", "json.load", "json.loads", "np.fromfile"}
READS |= {"os.open", "os.fdopen"}
READS |= {"memory_map", "read_table", "read_schema", "ParquetFile", "read_pandas", "read_csv"}
BY_NAME = {"load_file", "safe_open"}  # only of what is held
ALLOWED = {
    # Of this system, or of this package itself.
    ("tuner/runs/lock.py", "read_bytes"),  # /proc
    ("tuner/runs/lock.py", "read_text"),
    ("tuner/runs/orphans.py", "read_bytes"),
    ("tuner/ray_backend/heartbeat.py", "read_bytes"),
    ("tuner/runs/folder.py", "read_bytes"),  # our own sources
    ("tuner/report/page.py", "read_text"),  # our own page
    # Written, not read; or made a moment ago.
    ("tuner/runs/lock.py", "os.open"),
    ("tuner/runs/ledger.py", "json.loads"),
    ("tuner/engine/study_file.py", "json.loads"),
    ("tuner/engine/database/mirror.py", "json.loads"),
    ("tuner/report/importance/draw.py", "json.loads"),
    ("tuner/export/trackers/wandb.py", "read_bytes"),
    ("tuner/engine/database/mirror.py", "open"),  # no file, but a database
    ("tuner/ray_backend/staging.py", "open"),  # an archive in memory
    # What came from our own workers and servers, no file.
    ("tuner/engine/job.py", "json.loads"),
    ("tuner/ray_backend/adapters.py", "json.loads"),
    ("tuner/export/trackers/mlflow.py", "json.loads"),
}


def rooms() -> list[Path]:
    root = Path(model.__file__).parents[1]
    names = {file: file.relative_to(root).as_posix() for file in SOURCES}
    return [
        file for file, name in names.items() if name.startswith(ROOMS) and name[:13] not in OUTSIDE
    ]


def direct_reads(source: str) -> set[str]:
    """The calls by which a source reads files on its own."""
    tree, found = ast.parse(source), set[str]()
    held = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        for item in node.items
        if ast.unparse(item.context_expr).startswith("held(")
        and isinstance(item.optional_vars, ast.Name)
    }
    # What was imported by itself, under whatever name, is called by its whole one.
    whole = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        name = whole.get(name, name)
        last = name.rpartition(".")[2]
        first = call.args[0] if call.args else None
        if name in READS or last in READS:
            found.add(name if name in READS else last)
        elif last in BY_NAME and not (isinstance(first, ast.Name) and first.id in held):
            found.add(last)
        elif last == "open" and not (isinstance(first, ast.Call) or _writes(call, name)):
            found.add("open")
    return found


def _writes(call: ast.Call, name: str) -> bool:
    """`open(path, mode)` and its like, or `path.open(mode)`."""
    given = call.args[1:] if name in ("open", "io.open", "os.fdopen") else call.args
    modes = [*given[:1], *(word.value for word in call.keywords if word.arg == "mode")]
    return any(isinstance(m, ast.Constant) and str(m.value)[:1] in {*"wax"} for m in modes)


@pytest.mark.parametrize("file", rooms(), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_files_of_a_run_are_read_through_the_door_only(file: Path) -> None:
    name = file.relative_to(Path(model.__file__).parents[1]).as_posix()
    allowed = {call for where, call in ALLOWED if where == name}
    assert direct_reads(file.read_text(encoding="utf-8")) == allowed, (
        "read it by model.common.untrusted, or say here why it is nobody else's"
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("path.read_text()", {"read_text"}),
        ("json.loads(x)", {"json.loads"}),
        ("open(path)", {"open"}),
        ("open(path, 'rb')", {"open"}),
        ("open(path, 'w'); open(open_regular(path), 'rb')", set()),
        ("path.open()", {"open"}),
        ("path.open('rb')", {"open"}),
        ("path.open('w'); path.open(mode='ab')", set()),
        ("io.open(path)", {"open"}),
        ("io.open(path, mode='rb')", {"open"}),
        ("from io import open as look; look(path)", {"open"}),
        ("gzip.open(path)", {"open"}),
        ("os.fdopen(handle)", {"os.fdopen"}),
        ("from json import loads; loads(x)", {"json.loads"}),
        ("from json import load as read; read(x)", {"json.load"}),
        ("from os import open; open(path, 0)", {"os.open"}),
        ("from pyarrow.parquet import read_table as t; t(path)", {"read_table"}),
        ("pq.read_table(path)", {"read_table"}),
        ("load_file(path)", {"load_file"}),
        ("with held(path) as name, safe_open(name, 'pt') as file: pass", set()),
    ],
)
def test_the_look_at_sources_finds_what_it_is_for(source: str, found: set[str]) -> None:
    assert direct_reads(source) == found
