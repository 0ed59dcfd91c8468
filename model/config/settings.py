"""What can be set in a run: the tree of settings, each with its type, bounds, default and meaning.

The annotations are the only source: the parser, the reference table and the check of a search
space all read them, through `model.config.values.SETTINGS`. A setting is known by its dotted key
(`smart.weight`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal

from model.common.typed import Above, AtLeast, AtMost, Below
from model.tasks.task_set import LossName, Task, TaskSet


@dataclass(frozen=True)
class PerTask:
    """The setting may also be given task by task, as `<key>.<task>`, with values of this type."""

    kind: Any


NAMES_TASKS = object()  # the value is the name of a task, or a list of them

Pooling = Literal["auto", "cls", "mean", "pooler"]
SurgeryName = Literal[
    "none", "pcgrad", "cagrad", "nash_mtl", "upgrad", "mgda", "imtl_g", "aligned_mtl"
]
PairEncoding = Literal["cross", "concat", "bi_concat", "bi_difference", "cosine"]
ScheduleName = Literal[
    "sequential",
    "epoch_round_robin",
    "batch_round_robin",
    "sampled_round_robin",
    "max_size_cycle",
    "staggered",
    "uniform",
    "annealed",
    "simultaneous",
    "pretrain_then_simultaneous",
]


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    name: Annotated[str, "minilm, tiny (random, for tests), a Hub id or a folder"] = "minilm"
    pooling: Annotated[Pooling, "sentence embedding; auto: what suits the encoder"] = "auto"
    dropout: Annotated[
        float | None, AtLeast(0), Below(1), "hidden dropout; null: the encoder's own"
    ] = None
    attention_dropout: Annotated[
        float | None, AtLeast(0), Below(1), "dropout of the attention; null: the encoder's own"
    ] = None
    frozen: Annotated[bool, "train only the heads (and the adapter)"] = False
    train_layers: Annotated[
        tuple[int, ...] | None, AtLeast(0), "train only these layers, with the heads; null: all"
    ] = None
    adapter: Annotated[
        Literal["none", "pals", "lora"],
        "pals: per-task attention beside each layer; lora: low-rank updates of frozen weights",
    ] = "none"
    adapter_size: Annotated[int, AtLeast(1), "width of the PALs"] = 204
    adapter_heads: Annotated[int, AtLeast(1), "attention heads of the PALs"] = 12
    lora_rank: Annotated[int, AtLeast(1), "of the updates"] = 8
    lora_alpha: Annotated[float, Above(0), "the updates are scaled by alpha / rank"] = 16.0
    lora_dropout: Annotated[float, AtLeast(0), Below(1), "of what the updates read"] = 0.0
    lora_targets: Annotated[
        Literal["all", "attention"], "which linear layers of the encoder's stack have them"
    ] = "all"
    max_length: Annotated[int, AtLeast(8), "tokens; longer inputs are cut"] = 256
    gradient_checkpointing: Annotated[
        bool, "keep less for the way back and compute it again: less memory, a third more time"
    ] = False


@dataclass(frozen=True, kw_only=True)
class PairSettings:
    encoding: Annotated[
        PairEncoding | Mapping[str, PairEncoding],
        "how two sentences become one representation",
    ] = "cross"
    segments: Annotated[
        bool, "segment ids tell the two sentences of cross apart; false: all 0, as minBERT has them"
    ] = True


@dataclass(frozen=True, kw_only=True)
class HeadSettings:
    hidden: Annotated[
        int | Literal["width"], AtLeast(0), "units of a hidden layer; width: the encoder's; 0: none"
    ] = 0
    layers: Annotated[int, AtLeast(1), AtMost(8), "hidden layers, where there are hidden units"] = 1
    activation: Annotated[Literal["gelu", "relu"], "of the hidden layers"] = "gelu"
    dropout: Annotated[float | None, AtLeast(0), Below(1), "null: as encoder.dropout"] = None
    binary_logits: Annotated[
        Literal[1, 2], "binary tasks whose loss is not named: sigmoid or softmax"
    ] = 1


USUAL_RANGE = 5.0  # of the labels of a regression: of STS, and what weights are thought of for


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    by_task: Annotated[Mapping[str, LossName], "loss of the task; default: the task's own"] = field(
        default_factory=dict
    )
    weights: Annotated[
        tuple[float, ...] | None,
        PerTask(float),
        AtLeast(0),
        "of each task's loss and its regularisers, in task order; null: all 1. A squared error "
        "counts as on labels from 0 to 5, whatever their range",
    ] = None
    alpha: Annotated[
        float, Above(0), "exponent of the distance in ordinal_log and soft_ordinal"
    ] = 1.5
    spread: Annotated[float, Above(0), "soft_ordinal: how far labels reach to other classes"] = 0.5
    smoothing: Annotated[
        float, AtLeast(0), Below(1), "share of a label given to all classes; of cross-entropies"
    ] = 0.0
    scale: Annotated[float, Above(0), "of the differences in cosent"] = 20.0
    anchor: Annotated[
        float,
        AtLeast(0),
        "weight of the squared error beside pearson and cosent, which leave the "
        "answers' level open",
    ] = 0.1
    weighting: Annotated[
        Literal["fixed", "uncertainty"],
        "uncertainty: beside the fixed weights, learned ones (Kendall et al.)",
    ] = "fixed"
    weighting_rate: Annotated[float, Above(0), "learning rate of the learned weights"] = 0.01

    @property
    def options(self) -> dict[str, float]:
        """What losses are made of, as their parameters are called; smoothing is for training."""
        return {
            "alpha": self.alpha,
            "spread": self.spread,
            "scale": self.scale,
            "anchor": self.anchor,
        }


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    sizes: Annotated[
        int | tuple[int, ...], PerTask(int), AtLeast(1), "examples per batch, for all or in order"
    ] = 16
    accumulate: Annotated[
        int,
        AtLeast(1),
        "work through each batch in this many parts; one whose loss compares its rows stays whole",
    ] = 1
    together: Annotated[
        bool | Literal["auto"], "all tasks of a step in one padded pass; auto: not on a CPU"
    ] = "auto"


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    name: Annotated[ScheduleName, "which task trains when"] = "batch_round_robin"
    order: Annotated[
        tuple[str, ...] | None, NAMES_TASKS, "order of sequential and epoch_round_robin"
    ] = None
    first: Annotated[
        str | None, NAMES_TASKS, "task trained alone at first; null: the one with most rows"
    ] = None
    first_epochs: Annotated[float, AtLeast(0), "passes of that task alone"] = 1.0
    anchor: Annotated[
        str | None, NAMES_TASKS, "simultaneous: its pass is an epoch; null: the largest but one"
    ] = None
    anneal: Annotated[
        float, AtLeast(0), AtMost(1), "annealed: how far sizes are evened out by the last epoch"
    ] = 0.8
    epoch_steps: Annotated[
        int | None, AtLeast(1), "uniform, annealed: steps per epoch; null: one pass of everything"
    ] = None
    epochs: Annotated[
        int | None,
        AtLeast(1),
        "epoch_round_robin, sampled_round_robin, annealed, and those with a first task: epochs "
        "that the training is divided into, however short; null: an epoch is a pass",
    ] = None
    only: Annotated[
        tuple[str, ...] | None,
        NAMES_TASKS,
        "tasks that are trained, the others are scored all the same; null: all",
    ] = None


@dataclass(frozen=True, kw_only=True)
class SmartSettings:
    weight: Annotated[float, AtLeast(0), "lambda; 0 turns SMART off"] = 0.0
    variant: Annotated[
        Literal["published", "ball", "random"], "as packaged, as written, or without inner pass"
    ] = "published"
    at: Annotated[
        Literal["words", "embeddings", "auto"],
        "word vectors, or the embedding layer's output; auto: the latter for published",
    ] = "auto"
    radius: Annotated[float, Above(0), "size of the perturbation (ball, random)"] = 0.01
    masks: Annotated[
        Literal["shared", "anew", "auto"], "dropout of the second pass; auto: anew for published"
    ] = "auto"
    epsilon: Annotated[float, Above(0), "guards a division in published; not a radius"] = 1e-6
    noise: Annotated[float | None, Above(0), "published: size of the start; null: 1e-5"] = None
    step_size: Annotated[float | None, Above(0), "published: ascent step; null: 1e-3"] = None
    start: Annotated[
        float | None,
        Above(0),
        AtMost(1),
        "ball: size of the start, as a share of the radius; null: .5",
    ] = None
    stride: Annotated[
        float | None,
        Above(0),
        "ball: ascent step, as a share of the radius; null: 1, or .5 with several steps",
    ] = None
    steps: Annotated[int, AtLeast(1), "ascent steps"] = 1
    norm: Annotated[Literal["inf", "l2"], "of a token's perturbation"] = "inf"
    tasks: Annotated[tuple[str, ...] | None, NAMES_TASKS, "tasks it applies to; null: all"] = None
    every: Annotated[int, AtLeast(1), "only every k-th batch of a task, scaled by k"] = 1
    bregman: Annotated[float, AtLeast(0), "mu of the Bregman proximal term; 0 turns it off"] = 0.0
    momentum: Annotated[float, AtLeast(0), Below(1), "of the copy that mu holds on to"] = 0.99

    @property
    def where(self) -> Literal["words", "embeddings"]:
        """What is perturbed: published packages take the embedding layer's output."""
        if self.at == "auto":
            return "embeddings" if self.variant == "published" else "words"
        return self.at

    @property
    def shared_masks(self) -> bool:
        if self.masks == "auto":
            return self.variant != "published"
        return self.masks == "shared"


@dataclass(frozen=True, kw_only=True)
class RDropSettings:
    weight: Annotated[
        float, AtLeast(0), "of the difference between two passes; 0 turns R-Drop off"
    ] = 0.0
    tasks: Annotated[tuple[str, ...] | None, NAMES_TASKS, "tasks it applies to; null: all"] = None


@dataclass(frozen=True, kw_only=True)
class LayerScaleSettings:
    alpha: Annotated[float, AtLeast(0), "rate of the layers not listed for a task"] = 1.0
    beta: Annotated[
        float, AtLeast(0), "rate of those listed; in a step of several tasks, the mean over them"
    ] = 1.0
    layers: Annotated[Mapping[str, tuple[int, ...]], AtLeast(0), "the task's own layers"] = field(
        default_factory=dict
    )
    joint: Annotated[
        Literal["rates", "gradients"],
        "in a step of several tasks: the mean of their rates, or each task's gradient by its own",
    ] = "rates"


@dataclass(frozen=True, kw_only=True)
class OptimSettings:
    learning_rate: Annotated[
        float | None, Above(0), "null: what suits the encoder; with lora ten times that"
    ] = None
    rate_scale: Annotated[
        float, Above(0), "times learning_rate: for a search over encoders, each at its own"
    ] = 1.0
    head_learning_rate: Annotated[float | None, Above(0), "null: as learning_rate"] = None
    weight_decay: Annotated[float, AtLeast(0), "AdamW's"] = 0.01
    decayed: Annotated[
        Literal["matrices", "all"],
        "what it acts on; all: biases and LayerNorm too, as in the course's AdamW",
    ] = "matrices"
    warmup: Annotated[float, AtLeast(0), Below(1), "share of the run"] = 0.1
    decay: Annotated[
        Literal["constant", "linear", "cosine", "wsd"],
        "after the warm-up; wsd: constant, then linear over the cool-down",
    ] = "linear"
    cooldown: Annotated[float, Above(0), AtMost(1), "of wsd, as a share of the run"] = 0.2
    betas: Annotated[tuple[float, float], AtLeast(0), Below(1), "AdamW's"] = (0.9, 0.999)
    epsilon: Annotated[float, Above(0), "AdamW's"] = 1e-8
    clip: Annotated[float, AtLeast(0), "largest gradient norm; 0: no clipping"] = 1.0
    layer_decay: Annotated[float, Above(0), AtMost(1), "rate of a layer per one above it"] = 1.0
    layer_scale: LayerScaleSettings = field(default_factory=LayerScaleSettings)


@dataclass(frozen=True, kw_only=True)
class AverageSettings:
    share: Annotated[
        float, AtLeast(0), AtMost(1), "of the steps so far, whose weights are averaged; 0: none"
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class SimcseSettings:
    epochs: Annotated[float, AtLeast(0), "0 turns SimCSE off"] = 0.0
    temperature: Annotated[float, Above(0), "of the similarities"] = 0.05
    batch_size: Annotated[int, AtLeast(2), "a sentence's negatives are the rest of it"] = 64
    learning_rate: Annotated[float | None, Above(0), "null: as optim.learning_rate"] = None
    weight_decay: Annotated[float | None, AtLeast(0), "null: as optim.weight_decay"] = None
    dropout: Annotated[
        float | None, AtLeast(0), Below(1), "hidden dropout meanwhile; null: as encoder.dropout"
    ] = None
    attention_dropout: Annotated[
        float | None, AtLeast(0), Below(1), "the same of the attention; null: as the encoder's"
    ] = None
    negatives: Annotated[
        Literal["other", "both", "all"],
        "of a sentence: the others' second views; both: their first too; all: and its own first",
    ] = "other"
    pooling: Annotated[Pooling, "auto: as encoder.pooling"] = "auto"
    text: Annotated[str | None, "file, a sentence a line; null: the run's own sentences"] = None
    tasks: Annotated[
        tuple[str, ...] | None, NAMES_TASKS, "tasks whose sentences it takes; null: all"
    ] = None


@dataclass(frozen=True, kw_only=True)
class PretrainSettings:
    simcse: SimcseSettings = SimcseSettings()


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    teacher: Annotated[
        str | None, "file of a teacher's answers to the training rows; null: no teacher"
    ] = None
    text: Annotated[
        str | None, "file of texts without labels and a teacher's answers to them; null: none"
    ] = None
    weight: Annotated[
        float,
        AtLeast(0),
        AtMost(1),
        "of the teacher's answers in the loss; the labels' is the rest",
    ] = 0.5
    temperature: Annotated[float, Above(0), "above 1 the teacher's probabilities are softer"] = 2.0


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    epochs: Annotated[float | None, Above(0), "null: as many as the examples need"] = 2.0
    examples: Annotated[int | None, AtLeast(1), "training examples seen; null: no limit"] = None
    eval_every: Annotated[
        int | None,
        AtLeast(1),
        "examples between evaluations; null: one per pass in all stages, at least 3",
    ] = None
    eval_at: Annotated[
        tuple[int, ...] | None, AtLeast(1), "examples at which to evaluate, in place of eval_every"
    ] = None
    eval_rows: Annotated[int | None, AtLeast(2), "dev rows scored of each task; null: all"] = None
    train_rows: Annotated[
        int | None, AtLeast(2), "training rows of each task that are scored beside; null: none"
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run. Mappings are plain dicts, so that a config can be pickled: do not change them."""

    encoder: EncoderSettings = EncoderSettings()
    pair: PairSettings = PairSettings()
    head: HeadSettings = HeadSettings()
    loss: LossSettings = field(default_factory=LossSettings)
    batch: BatchSettings = BatchSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    smart: SmartSettings = SmartSettings()
    rdrop: RDropSettings = RDropSettings()
    surgery: Annotated[SurgeryName, "what is done about gradients in conflict"] = "none"
    optim: OptimSettings = field(default_factory=OptimSettings)
    average: AverageSettings = AverageSettings()
    pretrain: PretrainSettings = PretrainSettings()
    augment: Annotated[Mapping[str, str], "file of extra labelled rows of the task"] = field(
        default_factory=dict
    )
    distill: DistillSettings = DistillSettings()
    init_from: Annotated[str | None, "model folder of another run to start from"] = None
    budget: BudgetSettings = BudgetSettings()
    precision: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "of the encoder's passes; auto: on CUDA bfloat16 where it is native, else float16",
    ] = "auto"
    compile: Annotated[
        bool | Literal["auto"],
        "the encoder's layers by torch.compile; auto: on CUDA, from 2,000 steps on",
    ] = "auto"
    seed: Annotated[int, AtLeast(0), AtMost(2**32 - 1), "of every random draw"] = 0

    def to_flat(self) -> dict[str, Any]:
        """Every setting by its dotted key, as plain JSON/YAML values; parses back to an equal."""
        return dict(_flat(self, ""))

    def loss_of(self, task: Task) -> str:
        """The loss that was named, or the task's own; two logits make its default a softmax."""
        named = self.loss.by_task.get(task.name, task.loss)
        if named == "binary_cross_entropy" and task.name not in self.loss.by_task:
            two = self.head.binary_logits == 2 and self.encoding_of(task) != "cosine"
            return "cross_entropy" if two else named
        return named

    def encoding_of(self, task: Task) -> str:
        """'single' for a task of single sentences."""
        encoding = self.pair.encoding
        if not task.pair:
            return "single"
        return encoding if isinstance(encoding, str) else encoding.get(task.name, "cross")

    def batch_sizes(self, tasks: TaskSet) -> tuple[int, ...]:
        sizes = self.batch.sizes
        return (sizes,) * len(tasks) if isinstance(sizes, int) else sizes

    def loss_weights(self, tasks: TaskSet) -> tuple[float, ...]:
        weights = self.loss.weights
        return (1.0,) * len(tasks) if weights is None else weights

    def training_weights(self, tasks: TaskSet) -> dict[str, float]:
        """The weights with the labels' range in them, which a squared error grows with.

        Without it a weight would mean something else in each task set, and of labels up to 100
        the error would drown all other tasks. Weights that are learned find it by themselves.
        """
        given = zip(tasks, self.loss_weights(tasks), strict=True)
        return {
            task.name: weight * (USUAL_RANGE / (task.high - task.low)) ** 2
            if self.loss_of(task) == "mse" and self.loss.weighting == "fixed"
            else weight
            for task, weight in given
        }

    def logits_of(self, task: Task) -> int:
        """How many outputs a binary task has: what its loss needs."""
        return 1 if self.loss_of(task) == "binary_cross_entropy" else 2


def key_of(section: str, name: str) -> str:
    """`by_task` lends its section's name to its keys: `loss.<task>`."""
    return section.rstrip(".") if name == "by_task" else section + name


def _flat(section: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in fields(section):
        value, key = getattr(section, item.name), key_of(prefix, item.name)
        if is_dataclass(value):
            yield from _flat(value, f"{key}.")
        elif isinstance(value, Mapping):
            for task, own in value.items():
                yield f"{key}.{task}", list(own) if isinstance(own, tuple) else own
        else:
            yield key, list(value) if isinstance(value, tuple) else value
