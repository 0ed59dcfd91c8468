"""A soup as text: the table of methods for a terminal, and the card of a model that it knows.

The card is README.md as model hubs read it: its head is metadata in YAML, with `model-index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from model import __version__
from model.cli.invocation import command
from model.cli.text import clock, short, shown_path
from model.common.files import to_yaml
from model.common.secrets import redact
from model.evaluation.scores import Score
from model.modules.encoder_defaults import HUB_ID, MINILM, TINY
from model.tasks.task_set import Task
from tuner.runs.open import FinishedRun
from tuner.scoring.crossfit import Difference
from tuner.scoring.tables import WIDTH, cut, difference_text, plus, table
from tuner.soup.combinations import WEIGHTS
from tuner.soup.methods import BEST, DISTILLED, GREEDY, PREDICTIONS
from tuner.soup.record import MethodRecord, SoupRecord, slug

MINILM_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
EXAMPLES = {False: '["never dull, often moving"]', True: '[("how old is it", "what is its age")]'}
Settings = Mapping[str, Mapping[str, Any]]  # by trial


def soup_text(soup: SoupRecord, run: Path, every: bool = False) -> str:
    """The table has the methods that matter, or `every` one."""
    sentence = [
        *wrap(f"{soup.recommendation}.", WIDTH),
        *(f"caution: {each}" for each in soup.cautions),
    ]
    parts = [_head(soup), sentence, _methods(soup, run, every), _places(soup, run)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _head(soup: SoupRecord) -> list[str]:
    known = max(0, round(soup.evaluations - soup.ran, 2))
    lines = [
        f"soup of {soup.run} on {soup.tasks}: {len(soup.ingredients)} of {soup.candidates} "
        f"checkpoints fit together; {soup.ran:g} evaluations in {clock(soup.seconds)}"
        + (f", {known:g} known before" if known else "")
    ]
    lines += [cut(f"  left out {each.name}: {each.reason}") for each in soup.skipped]
    if len(soup.chosen) > 1:
        lines.append(f"  greedy soup: {' + '.join(soup.chosen)}")
    elif soup.chosen:
        lines.append(f"  greedy soup: {soup.chosen[0]} alone; no other made it better")
    return lines


def that_matter(soup: SoupRecord) -> list[MethodRecord]:
    """What is recommended, what it is compared with, and of each kind the best."""
    named = {BEST, GREEDY, DISTILLED, soup.recommended}
    for kind in (WEIGHTS, PREDICTIONS):
        named.update([method.name for method in soup.methods if method.kind == kind][:1])
    return [method for method in soup.methods if method.name in named]


def _methods(soup: SoupRecord, run: Path, every: bool) -> list[str]:
    # The goal has a column of its own.
    others = [name for name in ("overall", *soup.methods[0].tasks) if name != soup.goal]
    methods = soup.methods if every else that_matter(soup)
    rows = [_method(method, soup.recommended, others) for method in methods]
    more = len(soup.methods) - len(methods)
    rest = f"; {more} more with {command('soup', shown_path(run), '-v')}" if more else ""
    header = ["  method", "cross-fit", "gap", soup.goal, "vs best single", "models", "runs"]
    left = {"  method", soup.goal, "vs best single"}
    lines = table([*header, *others], rows, left, indent="")
    return [f"methods, by their cross-fitted score (cross-fit){rest}", *lines]


def _method(method: MethodRecord, recommended: str, others: list[str]) -> list[str]:
    fitted, score, apart = method.cross_fitted, method.score, method.difference
    mark = "*" if method.name == recommended else " "
    scores = {"overall": method.overall, **method.tasks}
    return [
        f"{mark} {method.name}",
        *((short(fitted.value), plus(fitted.gap)) if fitted else "--"),
        f"{short(score.value)} [{short(score.low)}, {short(score.high)}]",
        difference_text(apart, tie="") if apart else "-",
        str(method.models),
        f"{method.evaluations:.3g}",
        *(short(scores[name].value) for name in others),
    ]


def _places(soup: SoupRecord, run: Path) -> list[str]:
    named = [m for m in soup.methods if m.name in (GREEDY, soup.recommended)]
    found = {m.name: run / m.folder for m in named if m.folder}
    width = max(map(len, found), default=0)
    lines = [f"{name:<{width}}  {shown_path(path)}" for name, path in found.items()]
    answers = f"answers with the {soup.recommended}; --model takes another by name"
    return [*lines, f"{command('predict', shown_path(run))} {answers}"]


# --- the model card -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a model was made from and for, as hubs name it."""

    base_model: str | None = None
    datasets: Mapping[str, str] = field(default_factory=dict)  # by task, where the Hub has it
    kinds: Mapping[str, str] = field(default_factory=dict)  # by task, of the Hub's tasks
    pairs: frozenset[str] = frozenset()  # tasks that take two sentences
    license: str | None = None


def origin_of(run: FinishedRun, members: Iterable[str], license: str | None = None) -> Origin:
    """`members` are checkpoints, as the soup names them. A folder of this machine means nothing
    elsewhere, so an encoder or a data set of that kind is left out."""
    trial = run.state.trials[next(iter(members)).split("/")[0]]
    return Origin(
        base_model=hub_name(run.space.config(trial.settings).encoder.name),
        datasets={task.name: task.source.dataset for task in run.tasks if task.source.dataset},
        kinds={task.name: kind_of(task) for task in run.tasks},
        pairs=frozenset(task.name for task in run.tasks if task.pair),
        license=license,
    )


def hub_name(encoder: str) -> str | None:
    if encoder == MINILM:
        return MINILM_ON_HUB
    there = HUB_ID.fullmatch(encoder) and not Path(encoder).exists()
    return encoder if there and encoder != TINY else None


def kind_of(task: Task) -> str:
    return (
        "sentence-similarity"
        if task.kind == "regression" and task.pair
        else ("text-classification")
    )


def settings_of(run: FinishedRun, members: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What was searched, of every trial among the members."""
    trials = dict.fromkeys(name.split("/")[0] for name in members)
    return {trial: run.state.trials[trial].params for trial in trials}


def members_of(method: MethodRecord) -> list[str]:
    """Checkpoints of all tasks, each once."""
    lists = method.members.values() if isinstance(method.members, dict) else [method.members]
    return list(dict.fromkeys(name for each in lists for name in each))


def model_card(
    soup: SoupRecord,
    settings: Settings,
    class_names: Mapping[str, Sequence[str]],
    origin: Origin | None = None,
    *,
    method: str = GREEDY,
    hub: str | None = None,
    sentences: str | None = None,
) -> str:
    """`settings` are what was searched, of every trial in it. `hub`: its name there, if it goes
    there; else it is in the run's folder. `sentences`: the task that sentence-transformers embeds
    sentences for with it, if it can."""
    mine, origin = soup.method(method), origin or Origin()
    assert mine is not None
    members = soup.chosen if method == GREEDY else members_of(mine)
    parts = [
        head(soup, mine, origin, hub, sentences),
        about(soup, mine, members, hub),
        scores(soup, mine, class_names),
        made_of(soup, members, settings),
        use(soup, mine, origin, hub),
        similar(hub, sentences),
    ]
    return redact("\n".join(line for part in parts for line in part)) + "\n"


def head(
    soup: SoupRecord, mine: MethodRecord, origin: Origin, hub: str | None, sentences: str | None
) -> list[str]:
    known = {
        "license": origin.license,
        "base_model": origin.base_model,
        "datasets": sorted(set(origin.datasets.values())),
    }
    data: dict[str, Any] = {"library_name": "transformers"}
    data |= {key: value for key, value in known.items() if value}
    if kinds := sorted(set(origin.kinds.values())):
        data["pipeline_tag"] = kinds[0] if len(kinds) == 1 else "text-classification"
    own = ["sentence-transformers"] if sentences else []
    data["tags"] = ["stockpot", "model-soup", "multitask", *own]
    name = (hub or soup.run).split("/")[-1]
    results = [result(task, of.metric, of, soup, origin) for task, of in mine.tasks.items()]
    data["model-index"] = [{"name": name, "results": results}]
    return ["---", to_yaml(data).rstrip("\n"), "---", ""]


def result(
    task: str, metric: str, score: Score, soup: SoupRecord, origin: Origin
) -> dict[str, Any]:
    named = origin.datasets.get(task)
    return {
        "task": {"type": origin.kinds.get(task, "text-classification"), "name": task},
        "dataset": {
            "type": named or slug(f"{soup.tasks} {task}"),
            "name": named or f"{soup.tasks}: {task}",
            "split": "dev",
        },
        "metrics": [{"type": metric, "value": round(score.value, 4), "name": f"dev {metric}"}],
    }


def about(
    soup: SoupRecord, mine: MethodRecord, members: Sequence[str], hub: str | None
) -> list[str]:
    count = f"{len(members)} checkpoint{'s' if len(members) != 1 else ''}"
    how = f"the weights of {count} of one search, averaged ({mine.name})"
    if mine.name == BEST:
        how = "the best checkpoint of a search"
    elif mine.kind == "single":
        how = f"one checkpoint of a search ({mine.name})"
    taken = soup.method(soup.recommended) or mine
    kept = f", which is in `{taken.folder}`" if taken.folder and hub is None else ""
    other = [f"The search recommends {taken.told}{kept}, not this model.", ""]
    return [
        f"# {hub.split('/')[-1] if hub else f'Soup of {soup.run}'}",
        "",
        f"A multitask text encoder for {', '.join(mine.tasks)} (task set `{soup.tasks}`): {how}. "
        f"Made with Stockpot {__version__}.",
        "",
        *(other if taken is not mine else []),
    ]


def scores(
    soup: SoupRecord, mine: MethodRecord, class_names: Mapping[str, Sequence[str]]
) -> list[str]:
    lines = [
        "## Scores",
        "",
        "On the dev set that it was chosen on, with 95 % bootstrap intervals; the cross-fitted "
        "score repeats the choice on one half of dev and scores it on the other.",
        "",
        "| | metric | value | 95 % interval |",
        "|---|---|---|---|",
        *(f"| {task} | {of.metric} | {interval(of)} |" for task, of in mine.tasks.items()),
        f"| {soup.goal} | | {interval(mine.score)} |",
    ]
    if mine.cross_fitted:
        lines.append(f"| cross-fitted | | {interval(mine.cross_fitted)} |")
    if mine.difference:
        lines.append(f"| lead over the best single | | {interval(mine.difference, '+')} |")
    if class_names:
        lines.append("")
    for task, names in class_names.items():
        numbered = ", ".join(f"{number} {name}" for number, name in enumerate(names))
        lines.append(f"- The classes of {task}: {numbered}.")
    lines += ["", soup.recommendation[:1].upper() + soup.recommendation[1:] + ".", ""]
    return lines + [f"**Caution:** {each}.\n" for each in soup.cautions]


def made_of(soup: SoupRecord, members: Sequence[str], settings: Settings) -> list[str]:
    lines = [
        "## Ingredients",
        "",
        "| checkpoint | examples | score | sha256 |",
        "|---|---|---|---|",
    ]
    for each in soup.ingredients:
        if each.name in members:
            row = (each.name, f"{each.examples:,}", f"{each.score:.4f}")
            lines.append(f"| {' | '.join(row)} | `{each.sha256[:16]}` |")
    lines += ["", "## Settings", ""]
    for trial, params in settings.items():
        told = ", ".join(f"`{key}` {value}" for key, value in params.items())
        lines.append(f"- {trial}: {told or 'the default configuration'}")
    return [*lines, "", f"Data fingerprint: `{soup.data}`.", ""]


def use(soup: SoupRecord, mine: MethodRecord, origin: Origin, hub: str | None) -> list[str]:
    place = f'snapshot_download("{hub}")' if hub else '"soup"'
    load = ["from huggingface_hub import snapshot_download"] if hub else []
    lines = ["## Use", "", "```python", *load, "from model import load_model", ""]
    lines.append(f"model = load_model({place})")
    for task in mine.tasks:
        lines.append(f'print(model.predict("{task}", {EXAMPLES[task in origin.pairs]}))')
    encoder = "`AutoModel.from_pretrained` and `AutoTokenizer.from_pretrained` load the encoder"
    lines += ["```", "", f"{encoder}; the heads are in `heads.safetensors`."]
    if hub:
        return [*lines, "`model` comes with Stockpot: `pip install .` in a clone of it."]
    taken = soup.method(soup.recommended) or mine
    other = "" if taken is mine else f"; with `--model {slug(mine.name)}`, by this model"
    told = f"`stockpot predict RUN` writes predictions for files, answered by the {taken.name}"
    return [*lines, f"{told}{other}."]


def similar(hub: str | None, sentences: str | None) -> list[str]:
    if hub is None or sentences is None:
        return []
    return [
        "",
        f"With sentence-transformers, the vectors whose cosine answers {sentences}:",
        "",
        "```python",
        "from sentence_transformers import SentenceTransformer",
        "",
        f'encoder = SentenceTransformer("{hub}")',
        'vectors = encoder.encode(["how old is it", "what is its age"])',
        "print(encoder.similarity(vectors, vectors))",
        "```",
    ]


def interval(of: Score | Difference, sign: str = "") -> str:
    return f"{of.value:{sign}.4f} | [{of.low:{sign}.4f}, {of.high:{sign}.4f}]"
