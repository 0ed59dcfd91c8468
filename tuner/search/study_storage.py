"""`--study-storage`: the study in a database, kept up in a thread while the search goes on.

The search never waits for it. The thread folds the ledger's events into a state of its own, and
what a database refuses is tried again, for as long as the search goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread

from model.common.errors import InputError
from tuner.engine.database.mirror import StudyMirror
from tuner.engine.database.place import StudyPlace
from tuner.engine.study import SearchSpace
from tuner.runs.ledger import Ledger, read_events, run_key
from tuner.runs.state import Event, RunState, Warn
from tuner.search.next_steps import study_command

AFTER_ALL = ("run", "planned", "end")  # events after which any trial may be shown otherwise
SHORTEST, LONGEST = 1.0, 60.0  # seconds before another try, twice as long each time
PATIENCE = 20.0  # seconds for the last of it, once the search is over


@contextmanager
def mirrored_study(
    place: StudyPlace | None, ledger: Ledger, space: SearchSpace, warn: Warn
) -> Iterator[None]:
    if place is None:
        yield
        return
    follower, patience = Follower(place, ledger, space, warn), SHORTEST
    try:
        yield
        patience = PATIENCE  # whoever breaks off does not want to wait
    finally:
        if not follower.finish(patience):
            again = study_command(ledger.path.parent, place)
            warn(f"the study in {place.shown} is behind the ledger; to bring it up: {again}")


class Follower:
    def __init__(self, place: StudyPlace, ledger: Ledger, space: SearchSpace, warn: Warn) -> None:
        self.place, self.space, self.warn = place, space, warn
        events = read_events(ledger.path, lambda line: None)
        self.first = events[0] if events else None
        self.state = RunState.from_events(events, lambda line: None)
        self.changed: set[str] | None = None  # trials; None: all
        self.news: SimpleQueue[Event | None] = SimpleQueue()  # None: there will be no more
        self.over = False
        self.up_to_date = Flag()
        self.ended = Flag()
        self.given_up = Flag()
        ledger.listeners.append(self.news.put)
        Thread(target=self._run, daemon=True).start()

    def finish(self, patience: float) -> bool:
        """Whether the study has all that the ledger has, after so many seconds at most."""
        self.news.put(None)
        self.ended.wait(patience)
        self.given_up.set()
        return self.up_to_date.is_set()

    def _run(self) -> None:
        try:
            self._follow()
        finally:
            self.ended.set()

    def _follow(self) -> None:
        mirror: StudyMirror | None = None
        told, delay = False, 0.0
        while True:
            self._take_in(delay)
            if self.first is None:
                if self.over:  # nothing was begun
                    self.up_to_date.set()
                    return
                continue
            mirror = mirror or StudyMirror(self.place, self.space, run_key(self.first))
            try:
                mirror.write(self.state, self.changed)
            except InputError as error:  # somebody else's study has its name by now
                self.warn(f"{self.place.flag}: {'; '.join(error.faults)}; no longer written")
                return
            except Exception as error:
                if not told:
                    self.warn(
                        f"{self.place.flag}: not written ({self.place.told(error)}); "
                        "the search goes on, and it is tried again"
                    )
                told, self.changed = True, None
                delay = SHORTEST if self.over else min(LONGEST, max(SHORTEST, 2 * delay))
                if self.given_up.is_set():
                    return
                continue
            self.changed, delay = set(), 0.0
            if self.over:
                mirror.close()
                self.up_to_date.set()
                return

    def _take_in(self, delay: float) -> None:
        """What has happened: in so many seconds, or else once something has."""
        if not delay:
            self._apply(self.news.get())
        until, over = time.monotonic() + delay, self.over
        with suppress(Empty):
            while self.over == over:  # for the end there is no reason to wait
                left = until - time.monotonic()
                self._apply(self.news.get(timeout=left) if left > 0 else self.news.get_nowait())

    def _apply(self, event: Event | None) -> None:
        if event is None:
            self.over = True
            return
        self.first = self.first or event
        self.state.apply(event)
        if event["event"] in AFTER_ALL:
            self.changed = None
        elif self.changed is not None and "trial" in event:
            self.changed.add(event["trial"])
