"""`python -m model.train` as a person starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from model.cli.command import free_folder, main, make_parser, requested
from model.common.files import sha256_of
from model.tasks.task_set import load_task_set
from model.training.step import TrainingDiverged
from tests.forks import Fork

TINY = ["--encoder", "tiny", "--set", "budget.eval_rows=20", "--set", "batch.sizes=8"]
SHORT = [*TINY, "--set", "budget.examples=72", "--set", "budget.eval_every=36"]
LONG = [*TINY, "--set", "budget.examples=2400", "--set", "budget.eval_every=240"]


@pytest.fixture(scope="module", autouse=True)
def own_signals():  # type: ignore[no-untyped-def]
    """The command takes over Ctrl-C; these tests give it back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "model.train", *arguments]


def test_a_run_prints_baselines_beside_the_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SHORT, "--out", str(tmp_path / "run"), "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\r" not in printed  # not a terminal: plain lines
    header = next(line for line in printed.splitlines() if "metric" in line)
    assert "95 % interval" in header
    for name in ("sentiment", "paraphrase", "similarity", "overall"):
        assert any(line.startswith(name) and "[" in line for line in printed.splitlines())
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["settings"]["seed"] == 3 and saved["tasks"] == "sample"
    assert saved["settings"]["encoder.pooling"] == "mean"  # filled in, so that it can be read


def test_quiet_prints_only_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--out", str(tmp_path / "run"), "-q"]) == 0
    assert "examples  overall" not in capsys.readouterr().out


def test_the_default_folder_is_the_next_free_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(SHORT) == 0 and main(SHORT) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "sample-001",
        "sample-002",
    ]


def faults_told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Without what was being done meanwhile."""
    return [line for line in capsys.readouterr().err.splitlines() if line != "loading PyTorch"]


def test_every_fault_of_the_command_line_is_told_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = ["--set", "foo", "--set", "foo", "--set", "smart.wieght=1", "--set", "smart.weight=x"]
    wrong += ["--config", "nowhere.yaml", "--tasks", "cs224n", "--data", "/nowhere"]
    flags = [
        "'--bogus' is not a flag; --help shows all",
        "--seed must be a whole number, but is 'x'",
        "--encoder: expected one argument; --help shows all",
    ]
    settings = [
        "nowhere.yaml: no such file; check the path",
        "--set: 'foo' is not KEY=VALUE; write smart.weight=5",
        "/nowhere: is not a folder that can be read; point --data at the folder with the task's "
        "files",
        "--set: 'smart.wieght' is not a setting; did you mean 'smart.weight'?",
        "--set: 'smart.weight' must be a number >= 0, but is 'x'",
    ]
    for more, faults in ((["--bogus", "--seed", "x", "--encoder"], flags), ([], [])):
        assert main([*wrong, *more]) == 2
        told = faults_told(capsys)
        assert told[1:] == [f"  {fault}" for fault in (*faults, *settings)]


def test_layers_win_in_the_order_of_the_help(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("smart: {weight: 2, steps: 2}\noptim.warmup: 0.3\n")
    arguments = [*SHORT, "--config", str(file), "--set", "smart.weight=3"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["settings"]
    assert (settings["smart.weight"], settings["smart.steps"]) == (3, 2)
    assert settings["optim.warmup"] == 0.3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tasks", "sampel"], "did you mean 'sample'?"),
        (["--tasks", "nowhere/mine.yaml"], "no such file"),
        (["--preset", "paper-005"], "did you mean 'paper-00"),
        (["--set", "smart.wieght=5"], "did you mean 'smart.weight'?"),
        (["--set", "smart.weight"], "is not KEY=VALUE"),
        (["--set", "surgery=[1"], "--set"),
        (["--seed", "-1"], "'seed'"),
        (["--encoder", "./nowhere"], "no such folder"),
        (["--config", "nowhere.yaml"], "no such file"),
        (["--resume"], "no run of sample in runs/ was begun with these settings; leave it out"),
        (["--resume", "--out", "nowhere"], "no such file"),
        (["--tasks", "cs224n"], "--data"),
        (["--tasks", "cs224n", "--data", "nowhere"], "point --data at the folder"),
        (["--set", "encoder.max_length=600", "--encoder", "tiny"], "beyond this encoder's 512"),
        (["--set", "encoder.train_layers=[7]", "--encoder", "tiny"], "has 0 to 1"),
        (["--set", "precision=bfloat16", "--device", "cpu", *TINY], "bfloat16 is for GPUs"),
        (["--device", "nonsense", *TINY], "'nonsense' cannot be used"),
        (["--set", "seed=1", "--set", "seed=2"], "'seed' is given twice"),
        (["--set", "a", "--set", "b"], "--set: 2 problems"),
        (["--set", "optim.layer_scale.layers.sentiment=[9]", *TINY], "names layer 9"),
        (["--set", "augment.sentiment=nowhere.csv"], "nowhere.csv"),
        (["--set", "pretrain.simcse={epochs: 1, text: nowhere.txt}"], "nowhere.txt"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments_get_a_clear_line_and_no_traceback(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()  # refused before anything was made


def test_faults_of_all_places_come_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("optim:\n  lerning_rate: 1\nbatch.sizes: [1, 2]\n")
    assert main(["--config", str(file), "--set", "smart.weight=-1"]) == 2
    message = capsys.readouterr().err
    assert "3 problems" in message and "line 2: " in message and "line 3: " in message


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert main([*LONG, "--out", str(out), "-q"]) == 0
    return out


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_command_goes_on_where_it_was(
    number: signal.Signals, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = Fork(lambda: main([*LONG, "--out", str(out)]))
    while not (out / "checkpoints" / "step-00000010").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    message, _ = process.communicate()
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 128 + number
        assert f"python -m model.train --resume --out {out}" in message
    assert main([*LONG, "--resume", "--out", str(out), "-q"]) == 0  # the same command again
    for name in ("model.safetensors", "heads.safetensors"):
        assert sha256_of(out / "model" / name) == sha256_of(undisturbed / "model" / name)


def test_resuming_a_finished_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SHORT, "--out", str(tmp_path / "run")]) == 0
    for same in (
        [],
        SHORT,
        ["--tasks", "sample", "--seed", "0", "--set", "optim.learning_rate=null"],
    ):
        assert main([*same, "--resume", "--out", str(tmp_path / "run")]) == 0
        assert "already finished" in capsys.readouterr().out
    other = tmp_path / "other.yaml"
    other.write_text("smart.weight: 2\n")
    changed = [
        "--seed",
        "1",
        "--set",
        "budget.examples=99",
        "--set",
        "batch.sizes=8",
        "--data",
        "x",
    ]
    changed += ["--config", str(other), "--set", "nonsense"]
    assert main([*changed, "--resume", "--out", str(tmp_path / "run")]) == 2
    told = faults_told(capsys)
    assert told[0] == "--resume: 5 problems"
    for fault in (
        f"--data was None and is {Path('x').absolute()} now; leave it out, or start a new run",
        "budget.examples was 72 and is 99 now; leave it out, or start a new run with another --out",
        "seed was 0 and is 1 now; ",
        "smart.weight was 0.0 and is 2.0 now; ",
        "--set: 'nonsense' is not KEY=VALUE",
    ):
        assert any(line.startswith(f"  {fault}") for line in told), (fault, told)
    assert main(["--tasks", "cs224n", "--resume", "--out", str(tmp_path / "run")]) == 2
    assert "--tasks was sample and is cs224n now" in capsys.readouterr().err


def test_a_run_that_was_stopped_is_found_by_the_flags_that_began_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows from the data stands in its folder, and not in the flags."""
    monkeypatch.chdir(tmp_path)
    staged = ["schedule.name=staggered", "schedule.first_epochs=1"]
    for number, more in ((1, []), (2, [word for each in staged for word in ("--set", each)])):
        flags = [*TINY, "--set", "budget.examples=72", *more]
        assert main(flags) == 0
        (tmp_path / "runs" / f"sample-{number:03d}" / "summary.json").unlink()
        capsys.readouterr()
        assert main([*flags, "--resume"]) == 0
        said = f"the newest unfinished run with these settings is runs/sample-{number:03d}"
        assert said in capsys.readouterr().out


def test_the_same_command_with_resume_finds_its_own_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(SHORT) == 0
    assert main([*SHORT, "--resume"]) == 0
    assert "runs/sample-002 is already finished" in capsys.readouterr().out
    for number, more in ((3, []), (4, ["--seed", "5"]), (10, []), (11, ["--seed", "5"])):
        place = tmp_path / "runs" / f"sample-{number:03d}"
        assert main([*SHORT, *more, "--out", str(place), "-q"]) == 0
        (place / "summary.json").unlink()  # as if stopped before its end
    (tmp_path / "runs" / "sample-012").mkdir()
    (tmp_path / "runs" / "sample-012" / "config.yaml").write_text("[")
    (tmp_path / "runs" / "sample-010" / "config.yaml").touch()  # what is newest is told by number
    assert main([*SHORT, "--resume"]) == 0
    assert "the newest unfinished run with these settings is runs/sample-010" in (
        capsys.readouterr().out
    )
    assert (tmp_path / "runs" / "sample-010" / "summary.json").is_file()
    assert main([*SHORT, "--seed", "7", "--resume"]) == 2
    told = capsys.readouterr().err
    assert "no run of sample in runs/ was begun with these settings; name one with --out: " in told
    listed = (
        "runs/sample-011 (unfinished), runs/sample-010 (finished), runs/sample-004 (unfinished)"
    )
    assert listed in told and "sample-003" not in told
    assert not (tmp_path / "runs" / "sample-013").exists()


def test_help_shows_examples_that_can_be_copied() -> None:
    printed = subprocess.run(command("--help"), capture_output=True, text=True, check=True).stdout
    assert printed.count("python -m model.train --") >= 4 and "--resume" in printed


def test_runs_that_start_together_take_different_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [free_folder("mine").name for _ in range(3)] == ["mine-001", "mine-002", "mine-003"]


def test_a_used_folder_is_told_before_anything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").touch()
    assert main([*SHORT, "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "holds a run already" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["smart.radius=.1"], ["smart.radius has no effect: smart.variant is published"]),
        (["smart.variant=ball", "smart.noise=.1"], ["smart.noise has no effect: smart.variant"]),
        (["smart.variant=random", "smart.steps=2"], ["smart.steps has no effect: smart.variant"]),
        (["schedule.first=sentiment"], ["schedule.first has no effect: schedule.name is batch"]),
        (["head.binary_logits=2", "pair.encoding=cosine"], ["head.binary_logits has no effect"]),
        (
            ["pretrain.simcse={text: some.txt, tasks: [sentiment]}"],
            ["pretrain.simcse.tasks has no effect: the sentences come from pretrain.simcse.text"],
        ),
        (["smart.variant=ball", "smart.radius=.1", "smart.steps=2", "smart.noise=null"], []),
        (["schedule.name=staggered", "schedule.first=sentiment", "head.binary_logits=2"], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_settings_that_nothing_reads_are_told(arguments: list[str], said: list[str]) -> None:
    told: list[str] = []
    flags = [flag for setting in arguments for flag in ("--set", setting)]
    requested(make_parser().parse_args([*flags, "--out", "run"]), told.append)
    assert len(told) == len(said)
    assert all(line.startswith(start) for line, start in zip(told, said, strict=True))


def test_a_run_s_config_brings_its_data_folder(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        for task in load_task_set("cs224n"):
            for name in task.source.files.values():
                (folder / name).touch()
    file = tmp_path / "config.yaml"
    file.write_text(f"tasks: cs224n\ndata: {own}\nsettings: {{seed: 3}}\n")
    arguments = ["--config", str(file), "--encoder", "tiny", "--out", "run"]
    assert requested(make_parser().parse_args(arguments), print).data == own
    elsewhere = [*arguments, "--data", str(other)]
    assert requested(make_parser().parse_args(elsewhere), print).data == other


def test_the_first_interrupt_is_answered_and_the_second_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def twice(*arguments: Any, out: Path, **options: Any) -> Iterator[Any]:
        out.mkdir()
        (out / "config.yaml").touch()
        signal.raise_signal(signal.SIGINT)
        assert options["stop"]()
        signal.raise_signal(signal.SIGINT)
        yield

    monkeypatch.setattr("model.cli.command.train", twice)
    out = tmp_path / "run"
    assert main([*SHORT, "--out", str(out)]) == 128 + signal.SIGINT
    printed = capfd.readouterr().err
    assert "stopping after this step; Ctrl-C again stops at once" in printed
    assert f"interrupted; go on with: python -m model.train --resume --out {out}" in printed


@pytest.mark.parametrize(
    "error",
    [
        OSError("the disk is full"),
        MemoryError("none"),
        TrainingDiverged("step 3"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_mishap_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("model.cli.command.run", raising(error))
    assert main([]) == 1
    assert capsys.readouterr().err == f"the run failed: {error}\n"


def test_a_bug_is_not_passed_off_as_a_mishap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.cli.command.run", raising(RuntimeError("shapes do not match")))
    with pytest.raises(RuntimeError, match="shapes"):
        main([])


def raising(error: Exception) -> Callable[[Any], int]:
    def run(arguments: Any) -> int:
        raise error

    return run
