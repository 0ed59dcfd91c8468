"""`stockpot selfcheck`, or `python -m model.selfcheck`: what this machine's device can do.

A table to paste, in two minutes at most: which precision and which kernels there are, whether a
step can be repeated to the bit, whether it waits for the device, how fast it is, and what it asks
of the device and of its memory.
"""

from __future__ import annotations

import argparse
import gc
import platform
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
# Of the small radii, where rounding is felt first.
SEARCHED = {"smart.weight": 1, "smart.variant": "ball"}
DROPPED = 0.1  # of attention
Row = tuple[str, str]


def make_parser() -> Parser:
    parser = command_parser(
        "selfcheck", "Test and time training on this machine's CPU or GPU.", EXAMPLES
    )
    text = "Test this device: cpu, cuda or cuda:1 (default: a GPU where there is one)."
    parser.add_argument("--device", metavar="NAME", help=text)
    text = "Train this encoder: minilm, tiny, a folder or a Hub id (default: minilm)."
    parser.add_argument("--encoder", default="minilm", metavar="NAME", help=text)
    text = "Take S seconds for each measurement (default: 10)."
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

    def start(changes: dict[str, Any]) -> AbstractContextManager[TrainingRun]:
        return start_run(device, {**SETTINGS, "encoder.name": encoder, **changes}, cache)

    return {
        "machine": lambda: machine(device),
        "precision": lambda: precisions(device, start),
        "attention": lambda: attention(device),
        "repeats": lambda: repeats(start),
        "operations": lambda: operations(start),
        **{
            f"waits, {way}": lambda way=way: waits(way, device, start)  # type: ignore[misc]
            for way in WAYS
        },
        **{
            f"speed, {way}": lambda way=way: speed(way, device, start, seconds)  # type: ignore[misc]
            for way in WAYS
        },
        "compiled": lambda: compiled(device, start, seconds),
        "evaluation": lambda: evaluation(start),
        "memory": lambda: memory_besides(device),
    }


Start = Any  # makes a run with these settings changed


@contextmanager
def start_run(device: torch.device, settings: dict[str, Any], cache: Any) -> Iterator[TrainingRun]:
    """A run of the sample corpus, ready for its first step; it never writes into its folder."""
    from model.config.parse import parse_settings
    from model.tasks.task_set import load_task_set
    from model.training.prepare import prepare
    from model.training.run import TrainingRun

    gc.collect()  # what is left of the run before would count as this one's memory
    tasks = load_task_set("sample")
    config = parse_settings(settings, tasks)
    prepared = prepare(config, tasks, device=str(device), cache=cache, warn=lambda _: None)
    run = TrainingRun(prepared, Path(tempfile.gettempdir()), None, lambda _: None)
    run.start_fresh()
    run.model.train()
    try:
        yield run
    finally:
        run.close()


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
    whole: tuple[float, float] | None = None
    for name in DTYPES:
        if name != "float32" and device.type == "cpu":
            yield f"a step in {name}", "not on a CPU"
            continue
        with start({"precision": name, **SEARCHED, **NO_DROPOUT}) as run:
            told = first_step(run)
        if told is None:
            yield f"a step in {name}", "left out: its gradients overflow at every scale"
            continue
        whole = whole or told
        for what, found, known in zip(("loss", "SMART's ball"), told, whole, strict=True):
            yield f"a step in {name}, {what}", f"{found:.5g}, off by {abs(found / known - 1):.1e}"


def first_step(run: TrainingRun) -> tuple[float, float] | None:
    """Its loss and SMART's term. With float16 the first scales may be too large: then nothing is
    told and the weights are as they were, so the same batches are taken again."""
    from model.training.readings import MOST_SKIPS

    for _ in range(MOST_SKIPS):
        advance(run, 1)
        run.read()
        progress = run.progress
        if progress.meter.steps:
            return sum(progress.meter.losses.values()), progress.meter.smart
        progress.step, progress.drawn = 0, dict.fromkeys(progress.drawn, 0)
    return None


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def attention(device: torch.device) -> Iterator[Row]:
    """Which of torch's kernels take a batch, there and back, and how far they are from the plain
    one. In the windows of ModernBERT a row of padding may see nothing but padding."""
    import torch
    from torch.nn.attention import SDPBackend

    from model.modules.device import precision_on

    kernels = {
        "plain": SDPBackend.MATH,
        "flash": SDPBackend.FLASH_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
    }
    query = torch.randn(4, 12, 64, 32, device=device, dtype=precision_on("auto", device))
    places = torch.arange(64, device=device)
    padded = (places < 40).expand(4, 1, 64, -1)
    near = (places[:, None] - places).abs() <= 8
    cases = {"without padding": None, "with padding": padded, "in windows": padded & near}
    for what, mask in cases.items():
        known = attended(query, mask, kernels["plain"])
        for dropout in (0.0, DROPPED):
            found = []
            for name, kernel in kernels.items():
                try:
                    given = attended(query, mask, kernel, dropout)
                except RuntimeError:
                    continue
                off = (given - known).norm() / known.norm()  # of other masks it says nothing
                there = f" (off by {off:.0e})" if off and not dropout else ""
                found.append(name + (there if given.isfinite().all() else " (NOT FINITE)"))
            yield f"attention {what}{', dropout' if dropout else ''}", ", ".join(found)


def attended(
    query: torch.Tensor, mask: torch.Tensor | None, kernel: Any, dropout: float = 0.0
) -> torch.Tensor:
    """What comes out, and the gradient. RuntimeError where the kernel does not take it.

    What comes of rows that see nothing is nobody's business, unless it is no number."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import sdpa_kernel

    query = query.detach().requires_grad_()
    with warnings_off(), sdpa_kernel(kernel):
        out = F.scaled_dot_product_attention(query, query, query, attn_mask=mask, dropout_p=dropout)
        if mask is not None:
            out = out.masked_fill(~mask.any(-1, keepdim=True) & out.isfinite(), 0)
        (gradient,) = torch.autograd.grad(out.float().square().sum(), query)
    return torch.stack([out.detach(), gradient]).float()


@contextmanager
def warnings_off() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def repeats(start: Start) -> Iterator[Row]:
    """The same steps twice, in one process."""

    def weights() -> list[torch.Tensor]:
        with start({"smart.weight": 1}) as run:
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
        threads = torch.get_num_threads()
        with start(settings) as run:
            advance(run, 1)
            torch.set_num_threads(1)  # replicas have threads of their own, which are not counted
            try:
                with Operations() as counted:
                    advance(run, 1)
            finally:
                torch.set_num_threads(threads)
        reads = counted.reads + counted.to_host
        said = f"{counted.launches} operations, {reads} reads by the host"
        yield f"a step, {way}", said


def waits(way: str, device: torch.device, start: Start) -> Iterator[Row]:
    """Those that an operation has inside of it, which counting does not see."""
    import torch

    what = f"waits inside operations, {way}"
    if device.type != "cuda":
        yield what, "left out on a CPU"
        return
    with start(WAYS[way]) as run:
        advance(run, 1)
        run.read()
        torch.cuda.set_sync_debug_mode("error")
        try:
            advance(run, 1)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    yield what, "none"


def speed(way: str, device: torch.device, start: Start, seconds: float) -> Iterator[Row]:
    with start(WAYS[way]) as run:
        advance(run, 2)
        yield f"training, {way}", rate(run, device, seconds)


def compiled(device: torch.device, start: Start, seconds: float) -> Iterator[Row]:
    """What `compile: auto` brings, and what its first steps cost."""
    from model.modules.compiled import WORTHWHILE, wants_compile

    if not wants_compile("auto", device, "none", WORTHWHILE):
        yield "compile: auto", "no"
        return
    began = time.perf_counter()
    with start({"compile": True}) as run:
        advance(run, 2)
        run.read()
        took = time.perf_counter() - began
        said = f"from {WORTHWHILE:,} steps on; {took:.1f} s until the second step is done"
        yield "compile: auto", said
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

    with start({}) as run:
        prepared = run.prepared
        rows = sum(len(of_task.tokens) for of_task in prepared.dev.values())
        began = time.perf_counter()
        evaluate(run.model, prepared.dev, prepared.assembler, precision=prepared.precision)
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
