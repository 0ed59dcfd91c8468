"""Many requests at once: tried again with growing waits, within bounds, then given up."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Event, Lock, Semaphore, Thread

from model.data.paraphrase.answer_file import ModelAnswer
from model.data.paraphrase.answers import Garbage, read_sentences
from model.data.paraphrase.jobs import ParaphraseJob
from model.data.paraphrase.server import Refusal, Server, Setback

Messages = list[dict[str, str]]
MOST_WAIT = 60.0  # seconds between two tries, unless the server asks for more
LIMITED = 4  # being asked too often is nobody's fault: so many times the tries
LETTERS = 4  # of a token, roughly, where a server does not count


@dataclass
class Gate:
    """Closed for all while the server's limit is reached: each would only be turned away."""

    until: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def close(self, seconds: float) -> None:
        with self.lock:
            self.until = max(self.until, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())


@dataclass(kw_only=True)
class ServerAnswers:
    """Answers of a server, in the order in which they come."""

    server: Server
    messages: Callable[[ParaphraseJob], Messages]
    seed: int | None
    parallel: int
    tries: int
    wait: float  # seconds before the second try; doubled for each further one
    gate: Gate = field(default_factory=Gate)
    stopped: Event = field(default_factory=Event)

    def __call__(self, jobs: Sequence[ParaphraseJob]) -> Generator[ModelAnswer, None, None]:
        done: SimpleQueue[ModelAnswer | BaseException] = SimpleQueue()
        waiting, lock = iter(jobs), Lock()
        # An answer keeps its slot until it is on disk: a kill loses no more of them than that.
        slots = Semaphore(self.parallel)

        def work() -> None:
            while True:
                slots.acquire()
                with lock:
                    job = next(waiting, None)
                if job is None or self.stopped.is_set():
                    slots.release()
                    return
                try:
                    done.put(self.answer(job))
                except BaseException as error:  # told where the others are waited for
                    done.put(error)
                    return

        # Daemons: whoever interrupts does not wait for a server.
        for _ in range(min(self.parallel, len(jobs))):
            Thread(target=work, daemon=True).start()
        try:
            for _ in jobs:
                found = done.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
                slots.release()
        finally:
            self.stopped.set()
            slots.release(self.parallel)  # for those who wait, to see it

    def answer(self, job: ParaphraseJob) -> ModelAnswer:
        """One job's, however many tries it takes."""
        messages = self.messages(job)
        read, written, faults, limited = 0, 0, 0, 0
        while True:
            self.stopped.wait(self.gate.left)
            if self.stopped.is_set():
                return ModelAnswer(job.key, (), (read, written), "stopped")  # nobody looks at it
            wait = None
            try:
                seed = job_seed(self.seed, job, faults)
                reply = self.server.ask(messages, seed)
                tokens = reply.tokens or guessed_tokens(messages, reply.text)
                read, written = read + tokens[0], written + tokens[1]
                texts = read_sentences(self.server.hide(reply.text), job.count)
                return ModelAnswer(job.key, tuple(texts), (read, written))
            except Refusal as refusal:
                return ModelAnswer(job.key, (), (read, written), str(refusal))
            except Garbage as garbage:
                read, written = read + garbage.tokens[0], written + garbage.tokens[1]
                faults, reason = faults + 1, self.server.told(str(garbage))
            except Setback as setback:
                reason, wait = str(setback), setback.wait
                limited, faults = limited + setback.limited, faults + (not setback.limited)
                if setback.limited:
                    self.gate.close(wait or 0.0)
            tried = faults + limited
            if faults >= self.tries or limited >= LIMITED * self.tries:
                return ModelAnswer(job.key, (), (read, written), f"{reason} ({tried} tries)")
            # Spread out, so that those who were turned away together do not come back together.
            grown = min(MOST_WAIT, self.wait * 2 ** (tried - 1))
            self.stopped.wait((wait or 0.0) + random.uniform(0.5, 1.0) * grown)


def job_seed(seed: int | None, job: ParaphraseJob, faults: int = 0) -> int | None:
    """Another for every job, and for another try: the same numbers would bring the same garbage."""
    if seed is None:
        return None
    digest = hashlib.sha256(f"{seed} {job.key} {faults}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def guessed_tokens(messages: Iterable[dict[str, str]], answer: str = "") -> tuple[int, int]:
    read = sum(4 + -(-len(message["content"]) // LETTERS) for message in messages)
    return read, -(-len(answer) // LETTERS)
