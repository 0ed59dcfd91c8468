"""The names of what one training run writes into its folder, for all who read it."""

from __future__ import annotations

CONFIG = "config.yaml"  # everything filled in; the first file of a run
METRICS = "metrics.jsonl"  # a record per evaluation
SUMMARY = "summary.json"  # written when the run is done
CURVES = "events.out.tfevents."  # TensorBoard's files, which a search puts beside a trial's own
OVERALL = "overall"  # the score of all tasks, in records beside theirs
