"""A space and the sampler of Stockpot in a plain Optuna study: python examples/plain_optuna.py"""

import tempfile
from pathlib import Path

import optuna

import stockpot

# The sample tasks and an encoder without weights, so that it takes seconds. Your own: tasks=
# "mine.yaml", and no encoder.name for the space's own.
space = stockpot.space("default", tasks="sample", overrides={"encoder.name": "tiny"})
SHORT = {"budget.examples": 240, "budget.eval_every": 120, "budget.eval_rows": 40}


def objective(trial: optuna.Trial) -> float:
    settings = space.suggest(trial)  # only the parameters that take part here
    config = space.config(settings, extra=SHORT)
    score = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for record in stockpot.train(config, space.task_set, out=Path(folder) / "run"):
            score = max(score, record["score"])
            stockpot.report_evaluation(trial, record)  # for pruners, and for the sampler below
            if trial.should_prune():
                raise optuna.TrialPruned
    return score


def main() -> None:
    sampler = stockpot.TaskGPSampler(space, seed=0)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    for params in space.start_params():  # points that were good elsewhere
        study.enqueue_trial(params)
    study.optimize(objective, n_trials=6)
    print(f"best: trial {study.best_trial.number}, overall {study.best_value:.3f}")
    print(space.settings(study.best_params))


if __name__ == "__main__":
    main()
