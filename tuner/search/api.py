"""`run_search`: the search for Python's callers, with the command's flags as its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from model.cli.flags import flags_of, given_for
from model.common.errors import InputError, suggest
from model.common.hub import require_encoder
from tuner.runs.request import ExecutionOptions, PromotionName, SamplerName, SearchRequest
from tuner.search.checks import complete
from tuner.search.driver import search
from tuner.search.finish import SearchResult

P = ParamSpec("P")


def only_what_is_given(signature: Callable[P, SearchResult]) -> Callable[P, SearchResult]:
    """Start a search with the arguments that are given, and leave the defaults to the tables.

    On resume what is left out comes from the run's folder, so a default must not look like a wish.
    """

    @wraps(signature)
    def start(*args: P.args, **given: P.kwargs) -> SearchResult:
        known = flags_of(SearchRequest) | flags_of(ExecutionOptions)
        faults = [
            f"'{name}' is not one; {suggest(name, known)}" for name in given if name not in known
        ]
        if args:
            faults.append("give every argument by its name, as num_samples=8")
        if faults:
            raise InputError("run_search", faults)
        options = ExecutionOptions(**given_for(ExecutionOptions, given))
        request, options = complete(given_for(SearchRequest, given), options)
        if isinstance(request.encoder, str):
            require_encoder(request.encoder)
        return search(request, options)

    return start


@only_what_is_given
def run_search(
    *,
    space: str | Path = "default",
    tasks: str | Path | None = None,
    data: str | Path | None = None,
    encoder: str | Path | None = None,
    set: Mapping[str, Any] = {},  # noqa: B006  (never changed)
    seed: int = 0,
    budget_examples: int | None = None,
    num_samples: int | None = None,
    sampler: SamplerName = "auto",
    warm_start: Sequence[str | Path] = (),
    objectives: Sequence[str] = ("overall",),
    max_examples: int | None = None,
    grace_examples: int | None = None,
    reduction_factor: float = 3.0,
    early_stopping: bool = True,
    promotion: PromotionName = "restart",
    finals: int | None = None,
    confirm: tuple[int, int] | str | None = None,
    distill: bool = False,
    distill_text: str | Path | None = None,
    keep: int = 5,
    resume: bool = False,
    force: bool = False,
    name: str | None = None,
    storage_path: str | Path = Path("runs"),
    local_path: str | Path = Path("runs"),
    address: str | None = None,
    max_concurrent_trials: int | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    time_budget_s: float | None = None,
    study_storage: str | None = None,
    soup: bool = True,
    report: bool = True,
    verbose: bool = False,
    quiet: bool = False,
) -> SearchResult:
    """Search the settings of a multitask text encoder, as `stockpot search` does.

    With `resume=True` all that is left out comes from the run's folder. Raises InputError for
    what the caller can mend, with every fault at once.

    What to search:
        space: Search space: a shipped one's name or a YAML file.
        tasks: Task set: a name or a YAML file; "SET:A,B" takes two tasks. None: the space's.
        data: Folder with the tasks' files.
        encoder: "minilm", "tiny", a folder or a Hub id. None: the space's.
        set: Settings that are fixed in all trials, as {"smart.weight": 1}.
        seed: Seed of the sampler and the trials.
    How to search:
        budget_examples: Examples to train on in all, the search's to divide. None: the space's.
        num_samples: Configurations to try. None: what the budget allows.
        sampler: Who proposes the trials; auto: task_gp up to 300 trials, tpe beyond.
        warm_start: Earlier runs to learn from: their folders.
        objectives: What to maximise. Several tasks give a Pareto front.
        max_examples: Examples of the longest training. None: what the budget allows.
        grace_examples: Examples of the shortest training. None: a share of the longest.
        reduction_factor: Of so many configurations one is trained so many times as long.
        early_stopping: False trains every configuration in full.
        promotion: Longer training starts again with a schedule of its own ("restart"), or goes
            on ("continue").
        finals: Models to train in full at the end. None: one, or what max_examples allows.
        distill: Train one model more, taught by the best ensemble.
        distill_text: Texts without labels that the ensemble answers too, one a line of this file.
        confirm: Run the best N again with S seeds before the finals, as (3, 3) or "3x3". None:
            where the budget pays for it.
        keep: Keep the checkpoints of the best so many trials.
    The run:
        resume: Go on with the run of this name.
        force: Resume although code or data changed, or the ledger is damaged.
        name: Name of the run. None: the space's.
        storage_path: Folder of all runs, or a URL as s3://bucket/path.
        local_path: With a URL: where the driver keeps its own copy.
        study_storage: Database that gets the Optuna study too: its URL, or "env:NAME" for the URL
            in an environment variable. It is written nowhere.
        soup: Make a soup at the end.
        report: Write report.html at the end.
        verbose: Print a line per evaluation too.
        quiet: Print only warnings.
    Where to run:
        address: Ray cluster to run on; "auto" on its head node. None: this machine.
        max_concurrent_trials: Trials at once. None: what fits.
        cpus_per_trial: CPUs of a trial, and its threads. None: an equal share.
        gpus_per_trial: GPUs of a trial: one, or a fraction. None: 1 where there are any.
        time_budget_s: Seconds in all; alone, they decide the search's size. None: no limit.
    """
    raise NotImplementedError  # `only_what_is_given` stands in for this
