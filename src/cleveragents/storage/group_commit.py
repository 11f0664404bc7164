"""Group commit: concurrent writers share one commit, without a dedicated thread.

A commit costs about the same for one write as for many. A writer that finds no commit in progress becomes the
leader: it takes the queued items, commits them in one step and wakes the followers with their answers. Then
the first writer that arrived in the meantime leads. So no writer leads for longer than its own batch, and a
lone writer never waits.

Writers that shared a commit return together, and often write again at once. Without a pause, the first of
them would commit alone, while the others wait for the next commit. So after a shared commit, the leader waits
a moment until the others have queued.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from cleveragents.core.errors import Closed, OutcomeUnknown, StoreBusy

__all__ = ["GroupCommit"]

_GATHER_SECONDS = 0.0001

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Ticket(Generic[Item, Answer]):
    """The place of a writer in the queue.

    `leads` changes under the lock; the answer is set before the writer is woken.
    """

    __slots__ = ("answers", "error", "item", "leads", "woken")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.answers: tuple[Answer, ...] = ()
        self.error: BaseException | None = None
        self.leads = False
        self.woken = threading.Event()


class GroupCommit(Generic[Item, Answer]):
    """`run(item)` returns the answer of the item after the commit that included it.

    `commit` gets the items of a batch, in order, and returns one answer for each; if it raises, the error is
    the answer to all of them. It runs in one thread at a time. A patience of None means no time limit; it is
    for tests that explore interleavings, in which time does not pass.

    Thread safety:
        Owner: the database that built it closes it; any thread may run items.
        Lock: `_lock` guards the queue and the leadership, for arithmetic only; leadership itself, held
            while `commit` runs, admits one thread and blocks only writers; `_shared` belongs to the leader.
        Guarantee: each item is committed once, or its `run` raises; each answer reaches its own caller; there
            is a leader whenever the queue is not empty.
    Cancel safety: a writer interrupted while it waits leaves the queue, or passes the leadership on; one
        interrupted while it leads makes `OutcomeUnknown` the answer to its followers.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Sequence[Answer]],
        *,
        location: str,
        batch: int = 256,
        patience_seconds: float | None = 60.0,
        busy: Callable[[float], StoreBusy] = StoreBusy,
    ) -> None:
        self._commit = commit
        self._location = location
        self._batch = batch
        self._patience_seconds = patience_seconds
        self._busy = busy
        self._lock = threading.Lock()
        self._queue: deque[_Ticket[Item, Answer]] = deque()
        self._leading = False
        self._shared = False
        self._leader_thread = 0
        self._drained: threading.Event | None = None

    def run(self, item: Item) -> Answer:
        """Commit the item together with other waiting items.

        Raises `Closed`, `StoreBusy`, or `OutcomeUnknown`.
        """
        if self._leader_thread == threading.get_ident():  # guard: it would deadlock on itself
            raise RuntimeError("a nested write would deadlock; use the connection of the outer write")
        ticket: _Ticket[Item, Answer] = _Ticket(item)
        try:
            self._enqueue(ticket)
            if not ticket.leads:
                self._wait(ticket)
            if ticket.leads:
                self._lead()
        except BaseException:
            self._withdraw(ticket)
            raise
        if ticket.error is not None:
            raise ticket.error
        return ticket.answers[0]

    def close(self) -> None:
        """Refuse new items; return once all queued items are committed.

        Raises `StoreBusy` if the commits take too long.
        """
        with self._lock:
            if self._drained is None:
                self._drained = threading.Event()
            drained = self._drained
            if not self._leading:
                drained.set()
        if not drained.wait(self._patience_seconds):
            raise self._busy(self._patience_seconds or 0.0)

    def _enqueue(self, ticket: _Ticket[Item, Answer]) -> None:
        with self._lock:
            if self._drained is not None:  # guard: after close, nothing is committed any more
                raise Closed("the database")
            self._queue.append(ticket)
            if not self._leading:  # guard: one leader at a time
                self._leading = True
                ticket.leads = True

    def _wait(self, ticket: _Ticket[Item, Answer]) -> None:
        """Return when the ticket has its answer, or leads."""
        if ticket.woken.wait(self._patience_seconds):
            return
        if self._withdraw(ticket):
            raise self._busy(self._patience_seconds or 0.0)
        # A leader has taken it: the running commit decides its outcome.
        if not ticket.woken.wait(self._patience_seconds):
            raise OutcomeUnknown(self._location, "no answer arrived in time")

    def _withdraw(self, ticket: _Ticket[Item, Answer]) -> bool:
        """Remove the ticket from the queue, passing on its leadership; return False if it is not queued."""
        with self._lock:
            if ticket not in self._queue:  # guard: an item that a leader has taken cannot be withdrawn
                return False
            self._queue.remove(ticket)
        if ticket.leads:  # guard: a leader that leaves silently would leave the queue without one
            self._pass_on()
        return True

    def _lead(self) -> None:
        batch: list[_Ticket[Item, Answer]] = []
        try:
            if self._shared:
                time.sleep(_GATHER_SECONDS)
            self._take(batch)
            self._shared = len(batch) > 1
            self._leader_thread = threading.get_ident()
            answers = self._commit([ticket.item for ticket in batch])
            for ticket, answer in zip(batch, answers, strict=True):
                ticket.answers = (answer,)
        except BaseException as error:
            if not batch:  # guard: it is still queued, and `run` withdraws it and passes the leadership on
                raise
            interrupted = not isinstance(error, Exception)
            unknown = OutcomeUnknown(self._location, "the commit was interrupted")
            for ticket in batch:
                ticket.error = unknown if interrupted else error
            if interrupted:
                raise
        finally:
            if batch:
                self._leader_thread = 0
                self._pass_on()
                for ticket in batch:
                    ticket.woken.set()

    def _take(self, batch: list[_Ticket[Item, Answer]]) -> None:
        """Move queued tickets into the batch one by one: an interrupt leaves each in exactly one place."""
        with self._lock:
            while self._queue and len(batch) < self._batch:
                batch.append(self._queue[0])
                self._queue.popleft()

    def _pass_on(self) -> None:
        with self._lock:
            if self._queue:
                heir = self._queue[0]
                heir.leads = True
            else:
                heir = None
                self._leading = False
                if self._drained is not None:
                    self._drained.set()
        if heir is not None:
            heir.woken.set()
