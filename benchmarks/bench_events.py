"""The event bus, compared with blinker, bubus and the predecessor's deep copy; ordered and durable delivery.

    python -m benchmarks.bench_events

prints every result once; `asv run` stores them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from benchmarks.ratio import ratio, seconds_of
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.sink import DurableAuditSink
from cleveragents.storage.database import open_database

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
EVENT = DomainEvent(EventType.JOB_CLAIMED, "subject", "id", MOMENT, {"job": "01J", "attempt": 1})
EMITTERS = 8

Durability = Literal["normal", "full"]


def _handlers(count: int) -> list[Callable[..., None]]:
    def make(number: int) -> Callable[..., None]:
        def handler(event: object) -> None:
            """Do nothing: the cost of a handler is not measured."""

        handler.__name__ = f"handler_{number}"  # bubus requires different names
        return handler

    return [make(number) for number in range(count)]


def _repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            call()

    return run


class _Predecessor:
    """One pydantic deep copy per emit, into the log, and a copy of the list of handlers."""

    def __init__(self, handlers: list[Callable[..., None]]) -> None:
        from pydantic import BaseModel

        class Event(BaseModel):
            event_type: EventType
            subject: str
            event_id: str
            occurred_at: datetime
            payload: dict[str, Any]

        self.event = Event(
            event_type=EVENT.event_type,
            subject=EVENT.subject,
            event_id=EVENT.event_id,
            occurred_at=MOMENT,
            payload=dict(EVENT.payload),
        )
        self._audit_log: deque[Event] = deque(maxlen=1000)
        self._subscriptions = {EVENT.event_type: handlers}

    def emit(self) -> None:
        self._audit_log.append(self.event.model_copy(deep=True))
        for handler in list(self._subscriptions.get(self.event.event_type, ())):
            handler(self.event)


class Emit:
    """`emit` to inline handlers without the durable sink, as a ratio to others."""

    params = (1, 10)
    param_names = ("handlers",)
    timeout = 600

    def setup(self, handlers: int) -> None:
        self.handlers = _handlers(handlers)
        self.bus = ReactiveEventBus()
        for handler in self.handlers:
            self.bus.subscribe(EVENT.event_type, handler)

    def _ours(self, times: int) -> Callable[[], None]:
        bus = self.bus
        return _repeat(lambda: bus.emit(EVENT), times)

    def track_blinker_ratio(self, handlers: int) -> float:
        import blinker

        signal = blinker.Signal()
        for handler in self.handlers:
            signal.connect(handler)
        return ratio(self._ours(20_000), _repeat(lambda: signal.send(EVENT), 20_000))

    def track_predecessor_ratio(self, handlers: int) -> float:
        predecessor = _Predecessor(self.handlers)
        return ratio(self._ours(5_000), _repeat(predecessor.emit, 5_000))

    def track_bubus_ratio(self, handlers: int) -> float:
        return seconds_of(self._ours(20_000)) / 20_000 / _bubus_seconds(self.handlers, 100)

    track_blinker_ratio.unit = "ratio"
    track_predecessor_ratio.unit = "ratio"
    track_bubus_ratio.unit = "ratio"


def _bubus_seconds(handlers: list[Callable[..., None]], times: int) -> float:
    import logging

    import bubus

    logging.getLogger("bubus").setLevel(logging.CRITICAL)

    class Claimed(bubus.BaseEvent[None]):
        subject: str = "subject"

    async def run() -> float:
        bus = bubus.EventBus()
        for handler in handlers:
            bus.on(Claimed, handler)
        await bus.dispatch(Claimed())
        began = time.perf_counter()
        for _ in range(times):
            await bus.dispatch(Claimed())
        elapsed = time.perf_counter() - began
        await bus.stop()
        return elapsed / times

    return asyncio.run(run())


def _emit_at_once(bus: ReactiveEventBus, each: int, make: Callable[[int, int], DomainEvent]) -> None:
    def work(number: int) -> None:
        for n in range(each):
            bus.emit(make(number, n))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(EMITTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Ordered:
    """Events through the dispatcher of one ordered subscriber, from 8 emitters."""

    timeout = 600

    def track_events_per_second(self) -> float:
        return 1 / self._seconds_each()

    def track_queue_ratio(self) -> float:
        """Compared with the standard bounded `queue.Queue` with one consumer, which numbers
        and logs nothing.
        """
        return self._seconds_each() / _queue_seconds_each(25_000)

    def track_lock_ratio(self) -> float:
        """Compared with a bare lock around a counter and a log, without delivery."""
        return self._seconds_each() / _lock_seconds_each(25_000)

    def _seconds_each(self) -> float:
        each = 25_000
        bus = ReactiveEventBus(block_seconds=60.0)
        seen: list[int] = []
        bus.subscribe(None, lambda event: seen.append(event.sequence), ordered=True)
        began = time.perf_counter()
        _emit_at_once(bus, each, lambda number, n: EVENT)
        bus.close(timeout=60.0)
        elapsed = time.perf_counter() - began
        assert seen == list(range(1, EMITTERS * each + 1)), "order kept, nothing lost"
        return elapsed / (EMITTERS * each)

    track_events_per_second.unit = "events/s"
    track_queue_ratio.unit = "ratio"
    track_lock_ratio.unit = "ratio"


def _queue_seconds_each(each: int) -> float:
    from queue import Queue

    waiting: Queue[DomainEvent] = Queue(10_000)
    seen: list[int] = []

    def consume() -> None:
        seen.extend(waiting.get().sequence for _ in range(EMITTERS * each))

    def produce() -> None:
        for _ in range(each):
            waiting.put(EVENT)

    return _wall_seconds([*[produce] * EMITTERS, consume]) / (EMITTERS * each)


def _lock_seconds_each(each: int) -> float:
    lock = threading.Lock()
    log: deque[DomainEvent] = deque(maxlen=1000)
    numbers = [0]

    def number() -> None:
        for _ in range(each):
            with lock:
                numbers[0] += 1
                log.append(EVENT.sequenced(numbers[0]))

    return _wall_seconds([number] * EMITTERS) / (EMITTERS * each)


def _wall_seconds(bodies: list[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=body) for body in bodies]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


class Durable:
    """Events sequenced and attested on SQLite, from 8 emitters, until the last is acknowledged."""

    params = ("normal", "full")
    param_names = ("durability",)
    timeout = 600

    def track_events_per_second(self, durability: Durability) -> float:
        return 1 / self._seconds_each(durability)

    def track_single_commits_ratio(self, durability: Durability) -> float:
        """Compared with bare sqlite3 with one transaction per event: the gain of group commits."""
        return self._seconds_each(durability) / _single_commit_seconds_each(durability, 2_000)

    def _seconds_each(self, durability: Durability) -> float:
        each = 5_000
        with (
            TemporaryDirectory() as directory,
            open_database(f"sqlite:///{directory}/store.db", durability=durability) as database,
        ):
            log = DurableAuditLog(database, Path(directory), durability=durability)
            with DurableAuditSink(log) as sink:
                bus = ReactiveEventBus(sink=sink, block_seconds=60.0)
                began = time.perf_counter()
                _emit_at_once(bus, each, _fresh)
                sink.flush(60.0)
                elapsed = time.perf_counter() - began
            report = log.verify()
            assert report.ok
            assert report.attested == EMITTERS * each, "nothing acknowledged is lost"
        return elapsed / (EMITTERS * each)

    track_events_per_second.unit = "events/s"
    track_single_commits_ratio.unit = "ratio"


def _single_commit_seconds_each(durability: Durability, times: int) -> float:
    import sqlite3

    with TemporaryDirectory() as directory:
        connection = sqlite3.connect(f"{directory}/bare.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {durability}")
        connection.execute("CREATE TABLE events (position INTEGER PRIMARY KEY, event_id TEXT, payload TEXT)")
        began = time.perf_counter()
        for n in range(times):
            connection.execute("INSERT INTO events VALUES (?, ?, ?)", (n, f"id-{n}", '{"attempt":1}'))
        elapsed = time.perf_counter() - began
        connection.close()
    return elapsed / times


def _fresh(number: int, n: int) -> DomainEvent:
    return DomainEvent(
        EventType.JOB_CLAIMED, "subject", f"{number}-{n}", MOMENT, {"job": "01J", "attempt": n}
    )


def _print_all() -> None:
    emit = Emit()
    for handlers in emit.params:
        emit.setup(handlers)
        for name in ("blinker", "predecessor", "bubus"):
            value = getattr(emit, f"track_{name}_ratio")(handlers)
            print(f"emit to {handlers} handlers / {name}: {value:.4f}")
    print(f"ordered, 8 emitters: {Ordered().track_events_per_second():,.0f} events/s")
    print(f"ordered / queue.Queue: {Ordered().track_queue_ratio():.2f}")
    print(f"ordered / a bare lock: {Ordered().track_lock_ratio():.2f}")
    for durability in Durable.params:
        floor = Durable().track_single_commits_ratio(durability)
        print(f"durable ({durability}) / a bare commit for each: {floor:.2f}")
        value = Durable().track_events_per_second(durability)
        print(f"durable ({durability}), 8 emitters: {value:,.0f} events/s")


if __name__ == "__main__":
    _print_all()
