"""The attempts that a worker has under way, whether it takes more, and what keeps it from its store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from cleveragents.jobs.worker.attempt import Attempt
from cleveragents.jobs.worker.options import WorkerOptions, WorkerStatistics
from cleveragents.jobs.worker.store_trouble import StoreTrouble

__all__ = ["AttemptTable"]


class AttemptTable:
    """Slots for attempts. A slot is reserved before a job is claimed, so a drain sees claims under way.

    Thread safety:
        Owner: one worker; its threads share it.
        Lock: the condition `_changed` guards everything here; held for arithmetic, and while waiting it is
            let go.
        Guarantee: attempts and claims under way never exceed the concurrency; after `stop_accepting` no
            slot is given out; `wait_idle` returns True only when no attempt and no claim is under way.
    Cancel safety: an interrupted wait leaves nothing behind.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self.trouble = StoreTrouble()
        self._options = options
        self._changed = threading.Condition()
        self._accepting = True
        self._abandoning = False
        self._claiming = 0
        self._attempts: set[Attempt] = set()
        self._stragglers: set[Attempt] = set()
        self._counts: Counter[str] = Counter()

    def reserve(self) -> bool:
        """Takes a slot for a claim, if there is one and more is wanted."""
        with self._changed:
            if not self._accepting:  # guard: a draining worker claims nothing
                return False
            if self._claiming + len(self._attempts) >= self._options.concurrency:  # guard: the bound
                return False
            if len(self._stragglers) >= self._options.straggler_limit:  # guard: threads that never end add up
                return False
            self._claiming += 1
            return True

    def may_go_on(self) -> bool:
        """Whether an attempt that ends may leave its slot to another; until it does, the slot is its own."""
        # No lock: it is no more than a look, and whoever drains meanwhile waits for what comes of it.
        if not self._accepting:  # guard: a draining worker claims nothing
            return False
        return len(self._stragglers) < self._options.straggler_limit

    def release(self) -> None:
        """The claim came back with nothing."""
        with self._changed:
            self._claiming -= 1
            self._changed.notify_all()

    def admit(self, attempt: Attempt) -> bool:
        """The claim came back with a job; False if it has to be given back, because the worker closes."""
        with self._changed:
            self._claiming -= 1
            self._attempts.add(attempt)
            self._counts["claimed"] += 1
            return not self._abandoning

    def follow(self, ended: Attempt, attempt: Attempt) -> bool:
        """As `admit`, into the slot of an attempt that is over: at no moment it is free."""
        with self._changed:
            self._attempts.discard(ended)
            self._attempts.add(attempt)
            self._counts["claimed"] += 1
            self._changed.notify_all()
            return not self._abandoning

    def leave(self, attempt: Attempt) -> None:
        """The attempt and its thread are over."""
        with self._changed:
            self._attempts.discard(attempt)
            self._stragglers.discard(attempt)
            self._changed.notify_all()

    def strand(self, attempt: Attempt) -> None:
        """The attempt is over, its thread is not: it no longer counts as running, but is remembered."""
        with self._changed:
            if attempt not in self._attempts:  # guard: the thread ended at the last moment
                return
            self._attempts.discard(attempt)
            self._stragglers.add(attempt)
            self._changed.notify_all()

    def stop_accepting(self) -> None:
        # No lock: a slot given out at this very moment is under way for whoever waits for idleness.
        self._accepting = False

    def abandon(self) -> Sequence[Attempt]:
        """All attempts under way; those that claims still bring will be refused by `admit`."""
        with self._changed:
            self._abandoning = True
            return tuple(self._attempts)

    def wait_idle(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._attempts and not self._claiming, timeout)

    def wait_change(self, timeout: float) -> None:
        """Returns when an attempt ended, at the latest after the timeout."""
        with self._changed:
            self._changed.wait(timeout)

    def running(self) -> Sequence[Attempt]:
        with self._changed:
            return tuple(self._attempts)

    def holds(self, job_id: str) -> bool:
        """Whether a thread of this worker is still busy with that job, with or without a right to."""
        with self._changed:
            return any(attempt.job.id == job_id for attempt in (*self._attempts, *self._stragglers))

    def count(self, what: str) -> None:
        with self._changed:
            self._counts[what] += 1

    def statistics(self) -> WorkerStatistics:
        with self._changed:
            return WorkerStatistics(
                **self._counts, running=len(self._attempts), stragglers=len(self._stragglers)
            )
