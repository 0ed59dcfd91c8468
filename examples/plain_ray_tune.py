"""Stockpot's trainable in a plain Ray Tune search: python examples/plain_ray_tune.py"""

import tempfile

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

import stockpot

# The sample tasks and an encoder without weights, so that it takes seconds. Your own: tasks=
# "mine.yaml", and no encoder.name for the space's own.
space = stockpot.space("default", tasks="sample", overrides={"encoder.name": "tiny"})
SHORT = {"budget.examples": 240, "budget.eval_every": 120, "budget.eval_rows": 40}


def main() -> None:
    tuner = tune.Tuner(
        stockpot.trainable(space, SHORT),
        tune_config=tune.TuneConfig(
            metric="dev/overall",
            mode="max",
            num_samples=3,
            # Conditions and all: a trial's config is what `space.suggest` gives.
            search_alg=OptunaSearch(
                space.suggest,
                metric="dev/overall",
                mode="max",
                points_to_evaluate=space.start_params()[:1],
                sampler=stockpot.TaskGPSampler(space, seed=0),
            ),
            scheduler=ASHAScheduler(time_attr="examples", grace_period=120, max_t=240),
        ),
        run_config=tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0),
    )
    best = tuner.fit().get_best_result()
    print(f"best: overall {best.metrics['dev/overall']:.3f} after {best.metrics['examples']}")
    print(best.config)
    with best.checkpoint.as_directory() as folder:  # an ordinary model folder
        model = stockpot.load_model(folder)
        print(model.predict("sentiment", ["never dull, often moving"]))


if __name__ == "__main__":
    main()
