"""Keywords for `event_bus.robot`."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.sink import DurableAuditSink
from cleveragents.storage.database import open_database
from tests.races.hammer import hammer


class EventBusLibrary:
    """One bus per test."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ids = count()
        self._inline: list[int] = []
        self._ordered: list[int] = []
        self._streamed: list[int] = []
        self._bus = ReactiveEventBus()
        self._log: DurableAuditLog | None = None

    def open_an_event_bus(self) -> None:
        self._bus = ReactiveEventBus(audit_log_limit=100_000)
        self._listen()

    def open_an_event_bus_with_a_durable_log(self) -> None:
        directory = Path(self._stack.enter_context(TemporaryDirectory()))
        database = self._stack.enter_context(open_database(f"sqlite:///{directory}/store.db"))
        self._log = DurableAuditLog(database, directory)
        self._bus = ReactiveEventBus(sink=self._stack.enter_context(DurableAuditSink(self._log)))
        self._listen()

    def close_the_event_bus(self) -> None:
        self._bus.close()
        self._stack.close()

    def emit_from_threads(self, threads: int, events: int) -> None:
        def work(_: int) -> None:
            for _ in range(events):
                with self._bus.subscribe(None, lambda event: None):
                    self._bus.emit(self._event())

        hammer(work, threads=threads)

    def emit_durably_from_threads(self, threads: int, events: int) -> None:
        hammer(lambda _: [self._bus.emit_durably(self._event()) for _ in range(events)], threads=threads)

    def every_handler_should_have_got(self, events: int) -> None:
        self._bus.close()
        expected = list(range(1, events + 1))
        assert sorted(self._inline) == expected
        assert sorted(self._ordered) == expected

    def audit_log_should_be_gapless_up_to(self, events: int) -> None:
        assert [event.sequence for event in self._bus.audit_log] == list(range(1, events + 1))

    def ordered_handler_should_have_seen_the_audit_order(self) -> None:
        assert self._ordered == [event.sequence for event in self._bus.audit_log]

    def observe_the_stream(self) -> None:
        self._bus.stream().subscribe(lambda event: self._streamed.append(event.sequence))

    def stream_should_have_seen_in_order(self, events: int) -> None:
        self._bus.close()
        assert self._streamed == list(range(1, events + 1))

    def durable_log_should_verify_with(self, rows: int) -> None:
        assert self._log is not None
        report = self._log.verify()
        assert report.ok, report
        assert report.rows == report.attested == rows

    def reading_by_cursor_should_give_each_position_once(self, rows: int, page: int) -> None:
        assert self._log is not None
        positions: list[int] = []
        while records := self._log.read(after=positions[-1] if positions else 0, limit=page):
            positions += [record.position for record in records]
        assert positions == list(range(1, rows + 1))

    def _listen(self) -> None:
        self._bus.subscribe(None, lambda event: self._inline.append(event.sequence))
        self._bus.subscribe(None, lambda event: self._ordered.append(event.sequence), ordered=True)

    def _event(self) -> DomainEvent:
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return DomainEvent(EventType.JOB_CLAIMED, "subject", f"event-{next(self._ids)}", moment)
