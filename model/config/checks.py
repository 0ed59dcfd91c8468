"""Settings that are each right and do not go together, or of which one makes another idle."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from model.config.settings import RunConfig
from model.objectives.schedules import BY_EPOCH, JOINT, STAGED
from model.tasks.task_set import Task, TaskSet

LORA = tuple(f"encoder.lora_{name}" for name in ("rank", "alpha", "dropout", "targets"))
# The keys at fault, the one to point at first, and what to say.
Fault = tuple[tuple[str, ...], str]


def contradictions(config: RunConfig, tasks: TaskSet, given: Collection[str]) -> Iterator[Fault]:
    """`given` are the keys that the user wrote."""
    for task in tasks:
        yield from _loss(config, task)
        yield from _encoding(config, task, given)
    yield from _encoder(config)
    yield from _schedule(config, tasks)
    yield from _optim(config, tasks)
    yield from _budget(config, tasks)


def _loss(config: RunConfig, task: Task) -> Iterator[Fault]:
    loss, logits = config.loss_of(task), config.head.binary_logits
    keys = (f"loss.{task.name}", "head.binary_logits")
    if task.kind != "binary":
        return
    if loss == "binary_cross_entropy" and logits == 2 and task.name in config.loss.by_task:
        remedy = "set head.binary_logits: 1, or take cross_entropy"
        yield keys, f"'{keys[0]}' is {loss}, which needs one logit; {remedy}"


def _encoding(config: RunConfig, task: Task, given: Collection[str]) -> Iterator[Fault]:
    key = f"pair.encoding.{task.name}"
    keys = (key, "pair.encoding", f"loss.{task.name}")
    if not task.pair and key in given:
        yield (key,), f"'{key}': {task.name} has one sentence and needs no encoding; remove it"
    elif config.encoding_of(task) != "cosine" or task.kind == "regression":
        return
    elif task.kind == "classes":
        why = f"{task.name} has {task.classes} classes, and a cosine is one number"
        yield keys[:2], f"'pair.encoding' is cosine, but {why}; set {key}: cross"
    elif config.logits_of(task) == 2:
        why = f"gives {task.name} one logit, but {config.loss_of(task)} needs two"
        yield keys, f"'pair.encoding' cosine {why}; set {key}: cross, or another loss"


def _encoder(config: RunConfig) -> Iterator[Fault]:
    encoder = config.encoder
    if encoder.frozen and encoder.train_layers is not None:
        text = "'encoder.train_layers' names layers to train, but encoder.frozen is true"
        yield ("encoder.train_layers", "encoder.frozen"), f"{text}; keep one of them"
    if encoder.train_layers == ():
        text = "'encoder.train_layers' is empty; name a layer, or set encoder.frozen: true"
        yield ("encoder.train_layers",), text
    if encoder.frozen and config.pretrain.simcse.epochs > 0:
        text = "SimCSE trains the encoder, but encoder.frozen is true; set one of them off"
        yield ("pretrain.simcse.epochs", "encoder.frozen"), f"'pretrain.simcse.epochs': {text}"
    if encoder.gradient_checkpointing and encoder.adapter == "pals":
        keys = ("encoder.gradient_checkpointing", "encoder.adapter")
        why = "PALs do not know their task when layers are computed again"
        yield keys, f"'{keys[0]}': {why}; set one of them off"
    if config.compile is True and encoder.adapter == "pals":
        text = "'compile': PALs change what a layer does from task to task; set one of them off"
        yield ("compile", "encoder.adapter"), text
    if encoder.adapter == "lora":
        yield from _lora(config)
    size, heads = encoder.adapter_size, encoder.adapter_heads
    if size % heads:
        keys = ("encoder.adapter_heads", "encoder.adapter_size")
        yield keys, f"'{keys[0]}' {heads} must divide {keys[1]} {size}, as 12 divides 204"


def _lora(config: RunConfig) -> Iterator[Fault]:
    key, encoder = "encoder.adapter", config.encoder
    if encoder.frozen or encoder.train_layers is not None:
        other = "encoder.frozen" if encoder.frozen else "encoder.train_layers"
        text = f"'{other}': lora freezes the encoder's own weights, and trains its updates"
        yield (other, key), f"{text}; remove it, or set {key}: none"
    if config.average.share > 0:
        why = "the mean of low-rank factors is not the mean of what they make"
        yield (key, "average.share"), f"'average.share' with {key} lora: {why}; set one of them off"


def _optim(config: RunConfig, tasks: TaskSet) -> Iterator[Fault]:
    scale = config.optim.layer_scale
    if (scale.alpha, scale.beta) != (1, 1) and not scale.layers:
        keys = ("optim.layer_scale.alpha", "optim.layer_scale.beta", "optim.layer_scale.layers")
        text = "'optim.layer_scale' has a scale but no layers; name each task's own in .layers"
        yield keys, text
    if not any(config.loss_weights(tasks)):
        yield ("loss.weights",), "'loss.weights' are all 0, so nothing would be trained; raise one"
    if config.surgery != "none" and config.encoder.frozen:
        text = "'surgery' is for shared weights, but encoder.frozen leaves none; set surgery: none"
        yield ("surgery", "encoder.frozen"), text


def _schedule(config: RunConfig, tasks: TaskSet) -> Iterator[Fault]:
    schedule = config.schedule
    if config.surgery != "none" and schedule.name not in JOINT:
        why = f"{schedule.name} trains one task per step, so no gradients meet"
        remedy = f"set surgery: none, or schedule.name to one of {', '.join(sorted(JOINT))}"
        yield ("surgery", "schedule.name"), f"'surgery' is {config.surgery}, but {why}; {remedy}"
    if config.surgery != "none" and schedule.only is not None and len(schedule.only) < 2:
        text = "'surgery' is for tasks that meet, but schedule.only leaves one; set surgery: none"
        yield ("surgery", "schedule.only"), text
    missing = [name for name in tasks.names if name not in (schedule.order or tasks.names)]
    if missing:
        text = f"'schedule.order' leaves out {', '.join(missing)}; name every task"
        yield ("schedule.order",), text
    simcse_tasks = config.pretrain.simcse.tasks
    lists = {
        "schedule.only": schedule.only,
        "smart.tasks": config.smart.tasks,
        "rdrop.tasks": config.rdrop.tasks,
        "pretrain.simcse.tasks": simcse_tasks,
    }
    for key, listed in lists.items():
        if again := [name for name in tasks.names if (listed or ()).count(name) > 1]:
            yield (key,), f"'{key}' names {', '.join(again)} more than once; name each task once"


def _budget(config: RunConfig, tasks: TaskSet) -> Iterator[Fault]:
    budget = config.budget
    if budget.epochs is None and budget.examples is None:
        text = "the run has no end; set budget.epochs or budget.examples"
        yield ("budget.epochs", "budget.examples"), text
    smallest = min(config.batch_sizes(tasks), default=1)
    if config.batch.accumulate > smallest:
        keys = ("batch.accumulate", "batch.sizes")
        text = f"parts of a batch of {smallest} would be empty; set at most {smallest}"
        yield keys, f"'{keys[0]}' is {config.batch.accumulate}: {text}"


def unread(config: RunConfig, tasks: TaskSet) -> Iterator[tuple[str, str]]:
    """Settings changed from their defaults that nothing will read, and why.

    No faults: a search space offers them beside the choices that do read them.
    """
    variant, schedule = config.smart.variant, config.schedule.name
    two = any(task.kind == "binary" and config.logits_of(task) == 2 for task in tasks)
    text = config.pretrain.simcse.text is not None
    alone = config.distill.teacher is None and config.distill.text is None
    adapter = config.encoder.adapter
    by_adapter = f"encoder.adapter is {adapter}"
    by_variant, by_schedule = f"smart.variant is {variant}", f"schedule.name is {schedule}"
    cross = any(config.encoding_of(task) == "cross" for task in tasks)
    idle = [
        (variant == "published", ("smart.radius",), by_variant),
        (variant != "published", ("smart.epsilon", "smart.noise", "smart.step_size"), by_variant),
        (variant != "ball", ("smart.start", "smart.stride"), by_variant),
        (variant == "random", ("smart.steps",), by_variant),
        (schedule not in ("sequential", "epoch_round_robin"), ("schedule.order",), by_schedule),
        (schedule not in {*BY_EPOCH, *STAGED}, ("schedule.epochs",), by_schedule),
        (schedule not in STAGED, ("schedule.first", "schedule.first_epochs"), by_schedule),
        (config.head.hidden == 0, ("head.layers",), "head.hidden is 0"),
        (not cross, ("pair.segments",), "no pair is encoded as cross"),
        (not two, ("head.binary_logits",), "no binary task is left to two logits"),
        (adapter != "pals", ("encoder.adapter_size", "encoder.adapter_heads"), by_adapter),
        (adapter != "lora", LORA, by_adapter),
        (text, ("pretrain.simcse.tasks",), "the sentences come from pretrain.simcse.text"),
        (alone, ("distill.weight", "distill.temperature"), "distill names no teacher"),
    ]
    now, default = config.to_flat(), RunConfig().to_flat()
    for holds, keys, why in idle:
        for key in keys:
            if holds and now[key] != default[key]:
                yield key, why
