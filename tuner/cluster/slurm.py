"""What is wrong with a Slurm batch script that runs a search.

`sbatch` sees misspelt options only when the job is submitted, and overlooks what costs a search its
work: a signal that ends Ray first, a requeued job that begins anew, storage on a node's own disk.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from model.common.errors import suggest
from tuner.cluster.placeholders import placeholder_faults
from tuner.cluster.shell import expanded, joined, place_of_search, script_faults
from tuner.runs.storage.storage import is_url

# Of sbatch 22.05 and newer: without a value, with or without, with one.
FLAGS = {
    *(
        "contiguous",
        "hold",
        "no-kill",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "parsable",
        "quiet",
    ),
    *("reboot", "requeue", "spread-job", "test-only", "use-min-nodes", "verbose", "wait"),
}
MAYBE = {"exclusive", "get-user-env", "kill-on-invalid-dep", "nice", "propagate"}
VALUED = {
    *("account", "acctg-freq", "array", "batch", "bb", "bbf", "begin", "chdir", "cluster"),
    *("cluster-constraint", "clusters", "comment", "constraint", "container", "core-spec"),
    *("cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot"),
    *("dependency", "distribution", "error", "exclude", "export", "export-file", "extra"),
    *("extra-node-info", "gid", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node"),
    *("gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "input", "job-name"),
    *("licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu"),
    *("mem-per-gpu", "mincpus", "network", "nodefile", "nodelist", "nodes", "ntasks"),
    *("ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode"),
    *("output", "partition", "power", "prefer", "priority", "profile", "qos", "reservation"),
    *("signal", "sockets-per-node", "switches", "thread-spec", "threads-per-core", "time"),
    *("time-min", "tmp", "tres-bind", "tres-per-task", "uid", "wait-all-nodes", "wckey"),
}
OPTIONS = FLAGS | MAYBE | VALUED
MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
SHORT = {
    **{"A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task"},
    **{"D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus"},
    **{"H": "hold", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses"},
    **{"M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit"},
    **{"o": "output", "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec"},
    **{"s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist"},
    **{"x": "exclude"},
}
DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
OWN_DISKS = re.compile(r"/(?:tmp|var/tmp|dev/shm|local|localscratch)(?:/|$)|\$\{?TMPDIR\b")


@dataclass(frozen=True)
class Script:
    options: dict[str, str]  # by their long names
    lines: dict[str, int]  # where each stands
    commands: str  # all else, with variables of the script filled in
    faults: list[str]

    def at(self, option: str) -> str:
        return f"line {self.lines[option]}: " if option in self.lines else ""

    @property
    def nodes(self) -> int:
        found = re.findall(r"\d+", self.options.get("nodes", "1"))
        return int(found[-1]) if found else 1


def is_slurm(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return text.startswith("#!") and re.search(r"^#SBATCH\b", text, re.MULTILINE) is not None


def slurm_faults(path: Path, storage: str | None = None, *, shared: bool = False) -> list[str]:
    text = path.read_text(encoding="utf-8")
    script = read_script(text)
    faults = [*placeholder_faults(text.replace("#SBATCH", "SBATCH")), *script.faults]
    faults += shell_faults(path)
    for rule in (ray_faults, preemption_faults):
        faults += rule(script)
    faults += script_faults(script.commands)
    faults += storage_faults(script, storage, shared=shared)
    return faults


def read_script(text: str) -> Script:
    options: dict[str, str] = {}
    lines: dict[str, int] = {}
    faults: list[str] = []
    begun = False
    for number, line in enumerate(text.splitlines(), 1):
        found = DIRECTIVE.match(line)
        begun = begun or bool(line.strip() and not line.startswith("#"))
        if not found:
            continue
        if begun:
            fault = "sbatch reads no '#SBATCH' after the first command; move it up"
            faults.append(f"line {number}: {fault}")
        for name, value in words_of(found[1], number, faults):
            options[name] = value
            lines[name] = number
    commands = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return Script(options, lines, expanded(joined(commands)), faults)


def words_of(text: str, number: int, faults: list[str]) -> Iterator[tuple[str, str]]:
    """The options of a directive by their long names; what is none becomes a fault."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        faults.append(f"line {number}: a quote that does not end; close it")
        return
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
        else:
            name, value = SHORT.get(word[1:2], word), word[2:]
            given = value
        if name not in OPTIONS:
            known = suggest(name, OPTIONS)
            faults.append(f"line {number}: '--{name}' is not an option of sbatch; {known}")
        elif name in VALUED and not given:
            if words:
                value = words.pop(0)
            else:
                faults.append(f"line {number}: '--{name}' needs a value; write --{name}=...")
        yield name, value


def shell_faults(path: Path) -> Iterator[str]:
    """What bash says of the script, without running it."""
    if bash := shutil.which("bash"):
        done = subprocess.run([bash, "-n", str(path)], capture_output=True, text=True)
        for line in done.stderr.splitlines():
            yield "line " + line.rpartition(": line ")[2]


def ray_faults(script: Script) -> Iterator[str]:
    tasks = script.options.get("ntasks-per-node", "")
    if "symmetric-run" in script.commands:
        if tasks != "1":
            fault = "Ray runs once on each node"
            yield f"{script.at('ntasks-per-node')}{fault}; write #SBATCH --ntasks-per-node=1"
        if "exclusive" not in script.options:
            fault = "'ray symmetric-run' refuses a node with another Ray, and stops all it finds"
            yield f"{fault}; write #SBATCH --exclusive"
        if not script.options.keys() & MEMORY:
            fault = "a job has only the memory that it asks for, or the site's default"
            yield f"{fault}, also with --exclusive; write #SBATCH --mem=0 for all of a node's"
        if script.nodes > 1 and "--min-nodes" not in script.commands:
            fault = "each node may take itself for the head"
            yield f"{fault}; give ray symmetric-run --min-nodes $SLURM_JOB_NUM_NODES"
        if not re.search(r"\bsrun\b.*\bsymmetric-run\b", script.commands):
            fault = "'ray symmetric-run' runs on the first node alone"
            yield f"{fault}; begin it with srun"
        flags = re.search(r"\bsrun\b(.*?)\bray\b", script.commands)
        told = "SRUN_CPUS_PER_TASK" in script.commands or (
            flags and re.search(r"--cpus-per-task|\s-c", flags[1])
        )
        if "cpus-per-task" in script.options and not told:
            fault = "srun does not take --cpus-per-task from the job, so Ray may have one core"
            yield f'{fault}; write srun --cpus-per-task="$SLURM_CPUS_PER_TASK"'
    elif script.nodes > 1 and "ray start" not in script.commands:
        fault = f"{script.nodes} nodes are asked for, and nothing starts Ray on them"
        yield f"{fault}; see docs/clusters/slurm.md"


def preemption_faults(script: Script) -> Iterator[str]:
    told, start = script.options.get("signal"), script.at("signal")
    again = re.search(r"\bscontrol requeue\b", script.commands) is not None
    if told is None:
        fault = "nothing tells the search that its time is nearly up, so its last steps are lost"
        yield f"{fault}; write #SBATCH --signal=B:USR1@300 and a trap for it"
    elif not told.startswith("B:"):
        fault = f"--signal={told} tells every process, and Ray goes before the search has saved"
        yield f"{start}{fault}; write --signal=B:{told}"
    else:
        names = signal_names(told[2:].partition("@")[0])
        if not re.search(rf"\btrap\b.*\b(?:SIG)?(?:{'|'.join(names)})\b", script.commands):
            fault = f"no trap takes {names[-1]}, so it ends the script"
            yield f"{start}{fault}; add one that tells the search"
        elif not re.search(r"\bwait\b", script.commands):
            fault = "bash heeds a trap only when the command in the foreground has ended"
            yield f"{start}{fault}; start the search with & and wait for it"
    if "requeue" in script.options or again:
        if "--resume" not in script.commands:
            fault = "a job that is queued again would begin a run that exists, which is refused"
            yield f"{script.at('requeue')}{fault}; add --resume where the run is there"
        if script.options.get("open-mode") != "append":
            fault = "a job that is queued again writes over its log"
            yield f"{script.at('requeue')}{fault}; write #SBATCH --open-mode=append"


def signal_names(given: str) -> list[str]:
    """Of a signal by number or name: its number, if it has one, and its name."""
    number, name = None, given.removeprefix("SIG")
    with suppress(ValueError, KeyError):
        known = signal.Signals(int(given)) if given.isdigit() else signal.Signals[f"SIG{name}"]
        number, name = str(int(known)), known.name.removeprefix("SIG")
    return [re.escape(each) for each in (number, name) if each]


def storage_faults(script: Script, storage: str | None, *, shared: bool) -> Iterator[str]:
    places = {place_of_search(script.commands), storage} - {None}
    for place in sorted(str(each) for each in places):
        if is_url(place):
            continue
        remedy = "take a folder that all nodes mount"
        if OWN_DISKS.match(place):
            yield f"storage '{place}' is on each node's own disk, and goes with the job; {remedy}"
        elif script.nodes > 1 and not shared:
            fault = f"storage '{place}' may be a folder of its own on each node"
            yield f"{fault}; {remedy}, and say --shared"
