"""Items and events from other threads, in batches, so that a burst of them costs few repaints."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from cleveragents.core.errors import CleverAgentsError, Closed

if TYPE_CHECKING:
    from textual.message_pump import MessagePump

    from cleveragents.api.client import Client
    from cleveragents.api.events import EventView

__all__ = ["Batches", "EventReader", "call_after", "plans_of"]

_T = TypeVar("_T")

_NAMES = ("plan_id", "plan", "root", "root_id", "parent", "child")
"""Facts of events that contain the id of a plan."""
_BATCH_SECONDS = 0.05
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


def call_after(receiver: MessagePump, seconds: float, callback: Callable[[], object]) -> None:
    """Call `callback` on the loop of the app, after this time. Nothing happens if the receiver is closed.

    `set_timer` of Textual is not used: it drops the call if the process is suspended for longer than this
    time while the timer starts. On a busy machine, the app would then never show another event.
    """
    asyncio.get_running_loop().call_later(seconds, receiver.call_later, callback)


class Batches(Generic[_T]):
    """Passes items from any thread to a widget or app, at most 20 times a second.

    `deliver` runs on the loop of the app, with the items since its last call, in order. An item that equals a
    pending one is not added again, so that ids of plans take bounded memory.

    Thread safety:
        Owner: the widget or app that receives the items.
        Lock: `_scheduled` is held while a delivery is scheduled; no thread waits for the lock.
        Guarantee: every item is delivered once, and at most one delivery is scheduled at a time. An item is
            added before the lock is tried, and the lock is released before the items are taken, so an item
            is taken by the scheduled delivery or schedules the next one.
    Cancel safety: items that are pending when the app ends are dropped.
    """

    def __init__(
        self,
        receiver: MessagePump,
        deliver: Callable[[list[_T]], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        after: Callable[[MessagePump, float, Callable[[], object]], None] = call_after,
    ) -> None:
        self._receiver = receiver
        self._after = after
        self._deliver = deliver
        self._clock = clock
        self._pending: OrderedDict[_T, None] = OrderedDict()
        self._scheduled = threading.Lock()
        self._last = -_BATCH_SECONDS

    def put(self, item: _T) -> None:
        """Add an item. Any thread may call it."""
        self._pending[item] = None
        if self._scheduled.acquire(blocking=False):
            self._receiver.call_later(self._schedule)

    async def flush(self) -> None:
        """Deliver the pending items now. Only for the loop of the app."""
        items: list[_T] = []
        with suppress(KeyError):
            while True:  # one by one: other threads add items meanwhile
                items.append(self._pending.popitem(last=False)[0])
        if items:
            self._last = self._clock()
            await self._deliver(items)

    async def _schedule(self) -> None:
        wait = self._last + _BATCH_SECONDS - self._clock()
        if wait > 0:
            self._after(self._receiver, wait, self._flush_scheduled)
        else:
            await self._flush_scheduled()

    async def _flush_scheduled(self) -> None:
        self._scheduled.release()
        await self.flush()


def plans_of(event: EventView) -> list[str]:
    """Return the ids of all plans that the event may concern, perhaps with ids of jobs. The page has the same
    rule.
    """
    kind = event.facts.get("kind")
    job_of = kind.split(":")[1] if isinstance(kind, str) and ":" in kind else None
    named = [event.subject, *(event.facts.get(name) for name in _NAMES), job_of]
    return list(dict.fromkeys(one for one in named if isinstance(one, str) and one))


class EventReader:
    """A thread that reads the events of a client.

    `changed` gets the ids of the plans that an event may concern; an empty list means all plans, after each
    connection. `lost` gets the error when the events cannot be read; the thread tries again after a growing
    pause, and continues after the last event that it saw. Both run on the thread.

    Thread safety: the app starts and stops it; the thread shares only the event `_stopped`.
    """

    def __init__(
        self,
        client: Client,
        changed: Callable[[list[str]], None],
        lost: Callable[[CleverAgentsError], None],
    ) -> None:
        self._client = client
        self._changed = changed
        self._lost = lost
        self._stopped = threading.Event()
        self._pause = _FIRST_PAUSE_SECONDS
        self._after: int | None = None

    def start(self) -> None:
        """Start the thread. It does not keep the process alive."""
        threading.Thread(target=self._run, name="event-reader", daemon=True).start()

    def stop(self) -> None:
        """Stop after the current event."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
                return
            except Closed:
                return
            except CleverAgentsError as error:
                if not self._stopped.is_set():
                    self._lost(error)
            self._stopped.wait(self._pause)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)

    def _read(self) -> None:
        events = self._client.events
        if self._after is None:  # the position before the plans are read: no event is missed between
            latest = events.list(limit=1).items
            self._after = latest[-1].position if latest else 0
        self._changed([])
        for event in events.follow(after=self._after):
            if self._stopped.is_set():
                return
            self._after, self._pause = event.position, _FIRST_PAUSE_SECONDS
            found = plans_of(event)
            if found:
                self._changed(found)
