"""torch.compile over the encoder's layers, with backends that need no GPU."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.runtime.cache_dir_utils import cache_dir
from transformers import AutoModel, BertConfig, BertModel, ModernBertConfig

from model.config.parse import parse_settings
from model.config.settings import SmartSettings
from model.modules.compiled import WORTHWHILE, compile_layers, is_compiled, wants_compile
from model.modules.encoder import layers_of
from model.tasks.task_set import TaskSet
from model.training.prepare import prepare

from ...conftest import make_model
from ..stepping import close, gradients, stepper

pytestmark = [
    # Asked by the compiler itself, of tensors between the layers.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
    pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated:DeprecationWarning"),
]

SMALL = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 8}


@pytest.fixture(autouse=True)
def forget() -> Any:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=False, recompile_limit=8):
        yield
    torch._dynamo.reset()


def test_compiled_layers_take_the_same_steps_and_no_shape_is_compiled_anew(batch_of: Any) -> None:
    plain, compiled = make_model(dropout=0.0).train(), make_model(dropout=0.0).train()
    counter = CompileCounterWithBackend("aot_eager")
    compile_layers(compiled.encoder, counter)
    known, ours = stepper(plain), stepper(compiled)
    compilations = []
    for number in range(5):
        rounds = [(task.name, batch_of(task, 6, number)) for task in plain.spec.tasks]
        expected = known.take(number, rounds, 1.0)
        found = ours.take(number, rounds, 1.0)
        assert found.losses == pytest.approx(expected.losses, rel=1e-4)
        compilations.append(counter.frame_count)
    assert close(gradients(plain), gradients(compiled), 1e-4)
    # With padding and without, at most; the first round may have had the one kind only.
    assert 0 < compilations[-1] <= 4 and compilations[-1] == compilations[-2]


def test_smart_takes_hold_before_compiled_layers(batch_of: Any) -> None:
    plain, compiled = make_model(dropout=0.0).train(), make_model(dropout=0.0).train()
    compile_layers(compiled.encoder, "eager")
    smart = SmartSettings(weight=1.0, bregman=1.0)
    rounds = [(task.name, batch_of(task)) for task in plain.spec.tasks]
    expected = stepper(plain, smart=smart).take(0, rounds, 1.0)
    work = stepper(compiled, smart=smart)
    assert work.copy is not None and not is_compiled(work.copy.encoder)  # a copy is as written
    found = work.take(0, rounds, 1.0)
    assert found.smart == pytest.approx(expected.smart, rel=1e-3)


@pytest.mark.parametrize("if_possible", [True, False])
def test_what_cannot_be_compiled_runs_as_it_is_if_that_is_left_open(
    batch_of: Any, if_possible: bool
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("Python.h: no such file")

    model = make_model(dropout=0.0).train()
    compile_layers(model.encoder, broken, if_possible=if_possible)
    rounds = [("mood", batch_of(model.tasks["mood"]))]
    if if_possible:
        expected = stepper(make_model(dropout=0.0).train()).take(0, rounds, 1.0)
        assert stepper(model).take(0, rounds, 1.0).losses == expected.losses
    else:
        with pytest.raises(Exception, match=r"Python.h: no such file"):
            stepper(model).take(0, rounds, 1.0)


def test_a_model_is_compiled_however_many_were_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rate of torch's own dropout, as on a GPU, is another variant to the compiler."""
    counter, compiled = CompileCounterWithBackend("eager"), []
    monkeypatch.setattr("model.modules.compiled.VARIANTS", 1)
    for rate in (0.1, 0.2):
        rates = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        config = BertConfig(num_hidden_layers=1, num_attention_heads=2, **SMALL, **rates)
        model, before = BertModel(config).train(), counter.frame_count
        compile_layers(model, counter)
        model(torch.ones(2, 5, dtype=torch.long))
        compiled.append(counter.frame_count - before)
    assert compiled[1] == compiled[0] > 0


@torch._dynamo.config.patch(fail_on_recompile_limit_hit=True)
def test_all_variants_of_modernberts_layers_are_compiled() -> None:
    """Rates of dropout as of SimCSE and of the tasks, with gradients and without, with padding."""
    counter, ids = CompileCounterWithBackend("eager"), torch.ones(2, 6, dtype=torch.long)
    shape = {"num_hidden_layers": 3, "num_attention_heads": 2, "local_attention": 4}
    special = {f"{name}_token_id": 0 for name in ("pad", "cls", "sep", "bos", "eos")}
    model = AutoModel.from_config(ModernBertConfig(**SMALL, **shape, **special)).train()
    compile_layers(model, counter)
    for rate in (0.1, 0.2):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = rate
        for training in (True, False):
            for mask in (None, torch.tensor([[1] * 6, [1] * 5 + [0]])):
                with torch.set_grad_enabled(training):
                    model(ids, attention_mask=mask)
    assert counter.frame_count > 8


@pytest.mark.slow
def test_inductor_gives_the_same_losses(batch_of: Any) -> None:
    plain, compiled = make_model(dropout=0.0).train(), make_model(dropout=0.0).train()
    compile_layers(compiled.encoder)
    rounds = [(task.name, batch_of(task)) for task in plain.spec.tasks]
    for number in range(2):
        expected = stepper(plain).take(number, rounds, 1.0)
        found = stepper(compiled).take(number, rounds, 1.0)
        assert found.losses == pytest.approx(expected.losses, rel=1e-4)


def test_what_was_compiled_is_kept_in_a_folder_of_this_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "chosen"))
    compile_layers(make_model().encoder)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "chosen")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"stockpot-inductor-{os.geteuid()}").mkdir(mode=0o777)
    (tmp_path / f"stockpot-inductor-{os.geteuid()}").chmod(0o777)  # as somebody prepared it
    compile_layers(make_model().encoder)
    place = Path(cache_dir())
    assert place.parent == tmp_path and place.stat().st_mode & 0o777 == 0o700


def test_auto_is_for_long_trainings_on_cuda_and_not_for_pals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("model.modules.compiled.has_triton", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr("pathlib.Path.is_file", lambda path: path.parent != Path("/nowhere"))
    cuda, cpu = torch.device("cuda"), torch.device("cpu")

    def auto(device: torch.device = cuda, adapter: str = "none", steps: int = WORTHWHILE) -> bool:
        return wants_compile("auto", device, adapter, steps)

    assert auto() and auto(adapter="lora")
    assert not auto(cpu) and not auto(adapter="pals") and not auto(steps=WORTHWHILE - 1)
    assert wants_compile(True, cpu, "none", 1) and not wants_compile(False, cuda, "none", 10**6)
    with monkeypatch.context() as bare:
        bare.setattr("sysconfig.get_path", lambda name: "/nowhere")  # no Python.h
        assert not auto()
    monkeypatch.setattr("shutil.which", lambda name: None)  # Triton could compile nothing
    assert not auto()


def test_steps_of_simcse_count_among_those_that_compiling_pays_for(
    tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    wanted = "model.training.prepare.wants_compile"
    monkeypatch.setattr(wanted, lambda *given: told.append(given[-1]))
    settings = {"encoder.name": "tiny", "budget.examples": 30, "pretrain.simcse.epochs": 0.5}
    prepared = prepare(parse_settings(settings, tasks), tasks)
    assert told == [prepared.steps + prepared.simcse_steps] and prepared.simcse_steps > 0


@pytest.mark.parametrize("asked", ["auto", True])
def test_a_run_compiles_what_it_was_told_to(asked: Any, tasks: TaskSet) -> None:
    settings = {"encoder.name": "tiny", "compile": asked, "budget.examples": 30}
    model = prepare(parse_settings(settings, tasks), tasks).model
    assert is_compiled(model.encoder) == (asked is True)
    assert len(layers_of(model.encoder)) == 2
