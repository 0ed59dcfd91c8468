from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.data.__main__ import main
from model.data.info import overlaps
from model.data.rows import SCHEMA, Split
from model.data.sources import load_split
from model.tasks.task_set import SPLITS, load_task_set

ROOT = Path(__file__).parents[3]
TASKS = """\
tasks:
  mood:
    classes: 3
    format: glue
    files: {train: train.tsv, dev: dev.tsv}
    columns: {id: id, text: [a, b], label: label}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(TASKS)
    train = "id\ta\tb\tlabel\nt1\tOne day\tTwo\t0\nt2\tred\tblue\t2\nt3\tx\ty\t\n"
    (tmp_path / "train.tsv").write_text(train)
    (tmp_path / "dev.tsv").write_text("id\ta\tb\tlabel\nd1\tTwo\tone  day\t1\nd2\tnew\trow\t2\n")
    return tmp_path


def test_info_tells_sizes_labels_damage_and_overlaps(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["info", "--tasks", str(folder / "mine.yaml"), "--data", str(folder)]
    assert main([*arguments, "--encoder", "tiny"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "mood: 3 classes, pairs, accuracy"
    assert lines[2] == "train 2 1 0: 50.0% 2: 50.0% 2 / 3 / 3 5 / 6 / 6"
    assert "damaged: train.tsv row 3: no label" in lines
    assert "1 row of dev also in train: d1" in lines


def test_what_two_tasks_share_is_told_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = (folder / "mine.yaml").read_text().split("tasks:\n")[1]
    again = task.replace("mood:", "tone:")
    (folder / "mine.yaml").write_text(f"tasks:\n{task}{again}")
    with open(folder / "dev.tsv", "a") as file:
        file.write("d3\tx\ty\tjoy\n")
    assert main(["info", "--tasks", str(folder / "mine.yaml")]) == 2  # the files are beside it
    said = capsys.readouterr()
    assert said.out.count("train.tsv row 3: no label") == 1
    assert said.err.count("label 'joy' is not a number") == 1
    (folder / "dev.tsv").unlink()
    assert main(["info", "--tasks", str(folder / "mine.yaml")]) == 0
    assert "absent: dev.tsv (mood, dev; tone, dev)\n" in capsys.readouterr().out


def test_import_writes_what_a_run_then_reads(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    arguments = ["--tasks", str(folder / "mine.yaml"), "--data", str(folder), "--out", str(out)]
    assert main(["import", *arguments]) == 0
    printed = capsys.readouterr().out.split()
    assert printed[5:9] == ["mood", "train", "2", "1"]
    assert sorted(path.name for path in out.iterdir()) == ["mood-dev.arrow", "mood-train.arrow"]
    task = load_task_set(str(folder / "mine.yaml"))["mood"]
    for split in ("train", "dev"):
        imported, source = load_split(task, split, out), load_split(task, split, folder)
        assert imported.table.equals(source.table) and imported.damaged == source.damaged
    assert main(["info", *arguments[:3], str(out)]) == 0
    assert "train.tsv row 3: no label" in capsys.readouterr().out


def test_importing_again_reads_the_source_and_not_the_import(folder: Path) -> None:
    arguments = ["--tasks", str(folder / "mine.yaml"), "--data", str(folder), "--out", str(folder)]
    assert main(["import", *arguments]) == 0
    (folder / "dev.tsv").write_text("id\ta\tb\tlabel\nd9\tfresh\trow\t1\n")
    assert main(["import", *arguments]) == 0
    task = load_task_set(str(folder / "mine.yaml"))["mood"]
    assert load_split(task, "dev", folder).table["id"].to_pylist() == ["d9"]


def test_absent_files_are_told_and_the_others_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = folder / "mine.yaml"
    tasks.write_text(TASKS.replace("dev: dev.tsv", "dev: dev.tsv, test: test.tsv"))
    arguments = ["--tasks", str(tasks), "--data", str(folder)]
    assert main(["import", *arguments, "--out", str(folder / "out")]) == 0
    assert "absent: test.tsv (mood, test)" in capsys.readouterr().out.splitlines()
    assert len(list((folder / "out").iterdir())) == 2
    (folder / "train.tsv").unlink()
    assert main(["info", *arguments]) == 0
    told = capsys.readouterr()
    assert "absent: train.tsv (mood, train)" in told.out.splitlines()
    assert told.err == "reading mood dev\nlooking at mood\n"
    assert any(line.split()[:2] == ["dev", "2"] for line in told.out.splitlines())
    assert main(["import", *arguments, "--out", str(folder / "other")]) == 2
    assert "mood: train.tsv: no such file" in capsys.readouterr().err
    assert not (folder / "other").exists()
    (folder / "dev.tsv").unlink()
    assert main(["info", *arguments]) == 2
    assert "mood: dev.tsv: no such file" in capsys.readouterr().err


def test_a_changed_source_is_told_by_info(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tasks", str(folder / "mine.yaml"), "--data", str(folder)]
    assert main(["import", *arguments, "--out", str(folder)]) == 0
    (folder / "dev.tsv").write_text("id\ta\tb\tlabel\nd9\tfresh\trow\t1\n")
    assert main(["info", *arguments]) == 2
    assert "dev.tsv changed since it was imported; import it again" in capsys.readouterr().err


def test_info_tells_the_names_of_the_classes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = folder / "mine.yaml"
    tasks.write_text(TASKS + "    labels: [bad, fair, good]\n")
    (folder / "train.tsv").write_text("id\ta\tb\tlabel\nt1\tx\ty\tgood\nt2\tu\tv\tbad\n")
    (folder / "dev.tsv").unlink()
    assert main(["info", "--tasks", str(tasks), "--data", str(folder)]) == 0
    assert "bad: 50.0%  good: 50.0%" in capsys.readouterr().out


def test_faults_go_to_stderr_without_a_traceback(folder: Path) -> None:
    (folder / "train.tsv").write_text("id\ta\tb\tlabel\nt1\tx\ty\t7\n")
    command = [sys.executable, "-m", "model.data", "info", "--tasks", str(folder / "mine.yaml")]
    done = subprocess.run(
        [*command, "--data", str(folder)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert "row 1: label 7 is outside 0 to 2" in done.stderr and "Traceback" not in done.stderr
    assert "dev" in done.stdout  # the split that is well is still told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["info", "--tasks", "sampel"], "did you mean 'sample'?"),
        (["info", "--tasks", "cs224n"], "name the folder of these files: sst: ids-sst-train.csv"),
        (["info", "--tasks", "cs224n", "--data", "/nowhere"], "not a folder that can be read"),
        (
            ["info", "--task", "sentimant", "--task", "x"],
            "did you mean 'sentiment'?\n  no task is called 'x'",
        ),
        (["info", "--task", "sentiment", "--encoder", "/nowhere"], "no such folder: /nowhere"),
        (["import", "--task", "sentiment", "--out", "/dev/null/x"], "cannot be written"),
    ],
)
def test_bad_arguments_are_told(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_help_shows_defaults_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["import", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "(default: sample)" in told and "examples:" in told


def test_a_pair_in_the_other_order_is_the_same_example() -> None:
    import pyarrow as pa

    def split(*pairs: tuple[str, str, str]) -> Split:
        rows = [{"id": i, "sentence1": a, "sentence2": b, "label": 0.0} for i, a, b in pairs]
        return Split(pa.Table.from_pylist(rows, schema=SCHEMA))

    found = overlaps(
        {
            "train": split(("1", "a b", "c"), ("2", "d", "e")),
            "dev": split(("3", "C", "a  b"), ("4", "a b", "e")),
            "test": split(("5", "a b", "C"), ("6", "d", "e")),
        }
    )
    assert [(item.later, item.earlier, item.ids) for item in found] == [
        ("dev", "train", ("3",)),
        ("test", "train", ("5", "6")),
        ("test", "dev", ("5",)),
    ]


def cs224n_folder() -> Path:
    named = os.environ.get("STOCKPOT_CS224N")
    return Path(named) if named else ROOT.parent / "shared" / "data" / "cs224n"


@pytest.mark.skipif(
    not (cs224n_folder() / "quora-dev.csv").is_file(),
    reason="CS224N's files are not here; name their folder with STOCKPOT_CS224N",
)
def test_the_real_cs224n_files_are_read_whole() -> None:
    tasks = load_task_set("cs224n")
    loaded = {
        (task.name, split): load_split(task, split, cs224n_folder())
        for task in tasks
        for split in SPLITS
    }
    assert {key: split.damaged for key, split in loaded.items() if split.damaged} == {
        ("para", "dev"): ("quora-dev.csv row 1290: no label", "quora-dev.csv row 7228: no label")
    }
    sizes = {key: len(split.table) for key, split in loaded.items()}
    assert sizes["sst", "train"] == 8544 and sizes["sst", "dev"] == 1101
    assert sizes["para", "dev"] == 10241 and sizes["sts", "train"] == 6040
    shared = overlaps({split: loaded["sts", split] for split in SPLITS})
    assert [(item.later, len(item.ids)) for item in shared] == [
        ("dev", 16),
        ("test", 19),
        ("test", 2),
    ]
