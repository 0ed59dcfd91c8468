"""`stockpot selfcheck`, or `python -m model.selfcheck`: what this machine's device can do.

A table to paste, in two minutes at most: which precision and which kernels there are, whether a
step can be repeated to the bit, how fast it is, what it asks of the device and of its memory.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.cli.exit_code import exit_code, of_the_machine
from model.cli.parser import Parser, command_parser
from model.common.secrets import brief

if TYPE_CHECKING:
    import torch

    from model.training.run import TrainingRun

EXAMPLES = {
    "what there is": "",
    "the second GPU": "--device cuda:1",
    "an encoder of yours": "--encoder bert-base-uncased",
}
# Compiled is one run only, in a check of its own: each of the others would wait for a compiler.
SETTINGS: dict[str, Any] = {
    "budget.epochs": 50,
    "budget.eval_rows": 200,
    "batch.sizes": 16,
    "compile": False,
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "SMART": {"smart.weight": 1},
    "PCGrad": {"surgery": "pcgrad"},
}
# A GPU draws other masks for numbers of another width.
NO_DROPOUT = {"encoder.dropout": 0.0, "encoder.attention_dropout": 0.0, "head.dropout": 0.0}
STEPS = 3  # taken twice
Row = tuple[str, str]


def make_parser() -> Parser:
    parser = command_parser("selfcheck", "See what this machine's device can do.", EXAMPLES)
    text = "Test this device: cpu, cuda or cuda:1 (default: a GPU where there is one)."
    parser.add_argument("--device", metavar="NAME", help=text)
    text = "Train this encoder: minilm, tiny, a folder or a Hub id (default: minilm)."
    parser.add_argument("--encoder", default="minilm", metavar="NAME", help=text)
    text = "Measure for so many seconds each (default: 10)."
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help=text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args
    return exit_code(lambda: run(options(argv)), "the check failed", mishap=of_the_machine)


def run(options: argparse.Namespace) -> int:
    from model.modules.device import find_device

    device = find_device(options.device)
    failed = 0
    print("| what | found |\n|---|---|", flush=True)
    for name, check in checks(device, options.encoder, options.seconds).items():
        try:
            rows = list(check())
        except Exception as error:  # one that fails is a finding, and the others are wanted too
            failed += 1
            rows = [(name, f"FAILED: {type(error).__name__}: {brief(str(error), 200)}")]
        for what, found in rows:
            print(f"| {what} | {found} |", flush=True)
    return 1 if failed else 0


def checks(
    device: torch.device, encoder: str, seconds: float
) -> dict[str, Callable[[], Iterator[Row]]]:
    from model.training.prepare import ProcessCache

    cache = ProcessCache()

    def start(changes: dict[str, Any]) -> TrainingRun:
        return start_run(device, {**SETTINGS, "encoder.name": encoder, **changes}, cache)

    return {
        "machine": lambda: machine(device),
        "precision": lambda: precisions(device, start),
        "attention": lambda: attention(device),
        "repeats": lambda: repeats(start),
        "operations": lambda: operations(start),
        **{
            f"speed, {way}": lambda way=way: speed(way, device, start, seconds)  # type: ignore[misc]
            for way in WAYS
        },
        "compiled": lambda: compiled(device, start, seconds),
        "evaluation": lambda: evaluation(start),
        "memory": lambda: memory_besides(device),
    }


Start = Any  # makes a run with these settings changed


def start_run(device: torch.device, settings: dict[str, Any], cache: Any) -> TrainingRun:
    """A run of the sample corpus, ready for its first step; it never writes into its folder."""
    from model.config.parse import parse_settings
    from model.tasks.task_set import load_task_set
    from model.training.prepare import prepare
    from model.training.run import TrainingRun

    tasks = load_task_set("sample")
    config = parse_settings(settings, tasks)
    prepared = prepare(config, tasks, device=str(device), cache=cache, warn=lambda _: None)
    run = TrainingRun(prepared, Path(tempfile.gettempdir()), None, lambda _: None)
    run.start_fresh()
    run.model.train()
    return run


def advance(run: TrainingRun, steps: int) -> None:
    for tasks in run.prepared.rounds(run.progress.step):
        if steps <= 0:
            break
        run.advance(tasks)
        steps -= 1


def machine(device: torch.device) -> Iterator[Row]:
    import torch

    from model import __version__

    yield (
        "stockpot, torch, Python",
        f"{__version__}, {torch.__version__}, {platform.python_version()}",
    )
    if device.type != "cuda":
        yield "device", f"{device.type}, {torch.get_num_threads()} threads"
        return
    card = torch.cuda.get_device_properties(device)
    capability = f"compute capability {card.major}.{card.minor}"
    yield "device", f"{card.name}, {card.total_memory / 2**30:.1f} GiB, {capability}"
    yield "CUDA, cuDNN", f"{torch.version.cuda}, {torch.backends.cudnn.version()}"


def precisions(device: torch.device, start: Start) -> Iterator[Row]:
    """Each precision on the same step: what the losses become."""
    import torch

    from model.modules.device import DTYPES, precision_on

    yield "precision: auto", name_of(precision_on("auto", device))
    if device.type == "cuda":
        yield "float32 products", torch.get_float32_matmul_precision() + " (high: TF32)"
    whole: float | None = None
    for name in DTYPES:
        if name != "float32" and device.type == "cpu":
            yield f"a step in {name}", "not on a CPU"
            continue
        run = start({"precision": name, **NO_DROPOUT})
        advance(run, 1)
        run.read()
        loss = sum(run.progress.meter.losses.values())
        whole = whole or loss
        yield f"a step in {name}", f"loss {loss:.5f}, off by {abs(loss / whole - 1):.1e}"


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def attention(device: torch.device) -> Iterator[Row]:
    """Which of torch's kernels take a batch, with and without padding."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from model.modules.device import precision_on

    kernels = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
        "plain": SDPBackend.MATH,
    }
    dtype = precision_on("auto", device)
    query = torch.randn(4, 12, 64, 32, device=device, dtype=dtype)
    mask = torch.ones(4, 1, 1, 64, dtype=torch.bool, device=device).expand(-1, -1, 64, -1)
    for what, given in (("attention without padding", None), ("attention with padding", mask)):
        found = []
        for name, kernel in kernels.items():
            try:
                with warnings_off(), sdpa_kernel(kernel):
                    F.scaled_dot_product_attention(query, query, query, attn_mask=given)
                found.append(name)
            except RuntimeError:
                continue
        yield what, ", ".join(found)


@contextmanager
def warnings_off() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def repeats(start: Start) -> Iterator[Row]:
    """The same steps twice, in one process."""

    def weights() -> list[torch.Tensor]:
        run = start({"smart.weight": 1})
        advance(run, STEPS)
        run.read()
        return [parameter.detach().cpu() for parameter in run.model.parameters()]

    first, second = weights(), weights()
    apart = max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))
    said = "the same to the bit" if apart == 0 else f"weights differ by up to {apart:.1e}"
    yield f"{STEPS} steps taken twice", said


def operations(start: Start) -> Iterator[Row]:
    import torch

    from model.training.operations import Operations

    for way, settings in WAYS.items():
        run = start(settings)
        advance(run, 1)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # replicas have threads of their own, which are not counted
        try:
            with Operations() as counted:
                advance(run, 1)
        finally:
            torch.set_num_threads(threads)
        reads = counted.reads + counted.to_host
        said = f"{counted.launches} operations, {reads} reads by the host"
        yield f"a step, {way}", said


def speed(way: str, device: torch.device, start: Start, seconds: float) -> Iterator[Row]:
    run = start(WAYS[way])
    advance(run, 2)
    yield f"training, {way}", rate(run, device, seconds)


def compiled(device: torch.device, start: Start, seconds: float) -> Iterator[Row]:
    """What `compile: auto` brings, and what its first steps cost."""
    from model.modules.compiled import wants_compile

    if not wants_compile("auto", device, "none"):
        yield "compile: auto", "no"
        return
    began = time.perf_counter()
    run = start({"compile": True})
    advance(run, 2)
    run.read()
    yield "compile: auto", f"yes, {time.perf_counter() - began:.1f} s until the second step is done"
    yield "training, compiled", rate(run, device, seconds)


def rate(run: TrainingRun, device: torch.device, seconds: float) -> str:
    import torch

    run.read()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before, began = run.progress.examples, time.perf_counter()
    while time.perf_counter() - began < seconds:
        advance(run, 1)
    run.read()
    speed = (run.progress.examples - before) / (time.perf_counter() - began)
    said = f"{speed:.0f} examples a second"
    if device.type == "cuda":
        said += f", {torch.cuda.max_memory_allocated(device) / 2**30:.2f} GiB at most"
    return said


def evaluation(start: Start) -> Iterator[Row]:
    from model.evaluation.evaluate import evaluate

    run = start({})
    rows = sum(len(of_task.tokens) for of_task in run.prepared.dev.values())
    began = time.perf_counter()
    evaluate(run.model, run.prepared.dev, run.prepared.assembler, precision=run.prepared.precision)
    yield "evaluation", f"{rows / (time.perf_counter() - began):.0f} rows a second"


def memory_besides(device: torch.device) -> Iterator[Row]:
    """What trials that share a GPU must leave free."""
    import torch

    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        besides = total - free - torch.cuda.memory_reserved(device)
        yield "memory besides tensors", f"{besides / 2**30:.2f} GiB, of CUDA and other processes"


if __name__ == "__main__":
    raise SystemExit(main())
