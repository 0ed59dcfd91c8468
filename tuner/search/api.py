"""`run_search`: the search for Python's callers, with the command's flags as its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from model.cli.flags import flags_of, given_for
from model.common.errors import InputError, suggest
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
    evaluations: int | None = None,
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
        space: Search this space: a shipped one's name or a YAML file.
        tasks: Train these tasks: a set's name or a YAML file; "SET:A,B" is only its tasks A and B.
            None: the space's.
        data: Read the tasks' files in this folder.
        encoder: Train this encoder: "minilm", "tiny", a folder or a Hub id. None: the space's.
        set: Fix these settings in all trials, as {"smart.weight": 1}.
        seed: Seed the sampler and the trials with this number.
    How to search:
        budget_examples: Train on this many examples in total; the search divides them among the
            trials. None: the space's.
        num_samples: Number of configurations to try. None: what the budget allows.
        sampler: Propose by this sampler; "auto" is "task_gp", our Gaussian process per task, and
            "tpe" beyond 300 trials.
        warm_start: Learn from the earlier runs in these folders.
        objectives: Maximise these scores. Several tasks give a Pareto front.
        max_examples: Longest training of a trial, in examples. None: what the budget allows.
        grace_examples: Shortest training of a trial before it may be pruned, in examples. None: a
            share of the longest.
        reduction_factor: With X, keep the best 1/X at each rung, and train them X times as long.
        early_stopping: False trains every configuration in full.
        promotion: "restart" trains a promoted configuration from scratch with its own
            learning-rate schedule; "continue" goes on from its checkpoint.
        finals: Number of configurations trained in full at the end. None: one, or what max_examples
            allows.
        evaluations: Number of evaluations of a training in full. None: three, or two where
            dev rows are many.
        distill: Distil the best ensemble into one more model.
        distill_text: A file of unlabelled texts, one per line, which the ensemble labels as well.
        confirm: Repeat the best N with S further seeds before the finals, as (3, 3) or "3x3".
            None: where the budget pays for it.
        keep: Number of best trials whose checkpoints are kept.
    The run:
        resume: Go on with the run of this name.
        force: Resume although code or data changed, or the ledger is damaged.
        name: Give the run this name. None: the space's.
        storage_path: Keep the runs in this folder, or at a URL as s3://bucket/path.
        local_path: Keep a local copy of the run in this folder, when storage_path is a URL.
        study_storage: Keep the Optuna study in this database too: its URL, or "env:NAME" for the
            URL in an environment variable. It is written nowhere.
        soup: Make a soup at the end.
        report: Write report.html at the end.
        verbose: Print a line per evaluation too.
        quiet: Print only warnings.
    Where to run:
        address: Run on this Ray cluster; "auto" is the one whose head node this is. None:
            this machine.
        max_concurrent_trials: Number of trials that run at once. None: what fits.
        cpus_per_trial: CPUs of each trial, and as many threads. None: an equal share.
        gpus_per_trial: Give each trial one GPU, or a fraction. None: 1 where there are any.
        time_budget_s: Time limit in seconds; with no budget or number of samples it also sets the
            search's size. None: no limit.
    """
    raise NotImplementedError  # `only_what_is_given` stands in for this
