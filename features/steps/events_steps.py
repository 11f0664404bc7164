"""Steps of `events.feature`."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from behave import given, then, when

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.sink import DurableAuditSink
from cleveragents.storage.database import open_database
from tests.races.hammer import hammer

IDS = count()


def event(event_type: EventType = EventType.JOB_CLAIMED) -> DomainEvent:
    return DomainEvent(event_type, "subject", f"event-{next(IDS)}", datetime(2026, 1, 1, tzinfo=UTC))


@given("an event bus with one inline and one ordered handler")
def bus_with_two(context: Any) -> None:
    context.bus = ReactiveEventBus(audit_log_limit=100_000)
    context.inline, context.ordered = [], []
    context.bus.subscribe(None, lambda e: context.inline.append(e.sequence))
    context.bus.subscribe(None, lambda e: context.ordered.append(e.sequence), ordered=True)


@when("{threads:d} threads emit {events:d} events each on the event bus and subscribe in between")
def emit_and_subscribe(context: Any, threads: int, events: int) -> None:
    def work(_: int) -> None:
        for _ in range(events):
            with context.bus.subscribe(EventType.JOB_CLAIMED, lambda e: None):
                context.bus.emit(event())

    hammer(work, threads=threads)
    context.bus.close()
    context.expected = list(range(1, threads * events + 1))


@then("the event bus's handlers each got every event exactly once")
def got_everything(context: Any) -> None:
    assert sorted(context.inline) == context.expected
    assert sorted(context.ordered) == context.expected


@then("the event bus's audit log is gapless and in the order of its numbers")
def log_in_order(context: Any) -> None:
    assert [logged.sequence for logged in context.bus.audit_log] == context.expected


@then("the event bus's ordered handler saw that very order")
def ordered_in_order(context: Any) -> None:
    assert context.ordered == context.expected


@given("an event bus that {threads:d} threads keep emitting on")
def busy_bus(context: Any, threads: int) -> None:
    context.bus = ReactiveEventBus(audit_log_limit=50)
    context.stop = threading.Event()
    context.called = threading.Event()
    context.returned = False
    context.late = []

    def handler(_: DomainEvent) -> None:
        context.called.set()
        if context.returned:
            context.late.append(True)

    def emit() -> None:
        while not context.stop.is_set():
            context.bus.emit(event())

    context.subscription = context.bus.subscribe(None, handler)
    context.threads = [threading.Thread(target=emit, daemon=True) for _ in range(threads)]
    for thread in context.threads:
        thread.start()
    assert context.called.wait(20)


def end_threads(context: Any) -> None:
    context.stop.set()
    for thread in context.threads:
        thread.join(20)
        assert not thread.is_alive()


@when("the event bus's handler is unsubscribed in the middle")
def unsubscribe(context: Any) -> None:
    context.bus.unsubscribe(context.subscription)
    context.returned = True
    seen = threading.Event()
    with context.bus.subscribe(None, lambda e: seen.set()):
        assert seen.wait(20), "the others go on"


@then("the event bus never calls that handler again")
def never_again(context: Any) -> None:
    end_threads(context)
    assert not context.late


@when("the event bus's audit log is read {times:d} times")
def read_log(context: Any, times: int) -> None:
    context.readings = [context.bus.audit_log for _ in range(times)]


@then("every reading of the event bus's audit log was gapless")
def readings_gapless(context: Any) -> None:
    end_threads(context)
    for reading in context.readings:
        numbers = [logged.sequence for logged in reading]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@given("an event bus whose handler takes a lock of the application")
def bus_with_app_lock(context: Any) -> None:
    context.bus = ReactiveEventBus()
    context.app_lock = threading.Lock()
    context.in_handler = threading.Event()

    def handler(_: DomainEvent) -> None:
        context.in_handler.set()
        with context.app_lock:
            pass

    context.bus.subscribe(EventType.JOB_CLAIMED, handler)


@when("one thread emits while another emits under that lock")
def emit_under_lock(context: Any) -> None:
    emitting = threading.Thread(target=lambda: context.bus.emit(event()), daemon=True)
    with context.app_lock:
        emitting.start()
        assert context.in_handler.wait(20)
        context.second = context.bus.emit(event(EventType.JOB_FAILED))
    emitting.join(20)
    context.ended = not emitting.is_alive()


@then("both threads of the event bus come to their end")
def both_ended(context: Any) -> None:
    assert context.ended
    assert context.second == 2


@given("an event bus with a handler that raises and one that does not")
def bus_with_failing(context: Any) -> None:
    context.bus = ReactiveEventBus()
    context.good = []

    def fail(_: DomainEvent) -> None:
        raise ValueError("as it does")

    context.bus.subscribe(None, fail)
    context.bus.subscribe(None, lambda e: context.good.append(e))


@when("{events:d} events go over the event bus")
def emit_some(context: Any, events: int) -> None:
    for _ in range(events):
        context.bus.emit(event())


@then("the event bus's good handler got {events:d} events")
def good_got(context: Any, events: int) -> None:
    assert len(context.good) == events


@then("the event bus counted {failures:d} failures")
def counted(context: Any, failures: int) -> None:
    assert context.bus.statistics().failures == failures


@when('somebody subscribes on the event bus to "{name}"')
def subscribe_to(context: Any, name: str) -> None:
    try:
        context.bus.subscribe(name, lambda e: None)
    except CleverAgentsError as error:
        context.refusal = error
    context.bus.close()


@then('the event bus refuses it and suggests "{name}"')
def refused(context: Any, name: str) -> None:
    assert name in str(context.refusal)


@given("an event bus whose audit log is kept in a database")
def kept_bus(context: Any) -> None:
    stack = ExitStack()
    context.add_cleanup(stack.close)
    directory = Path(stack.enter_context(TemporaryDirectory()))
    context.database = stack.enter_context(open_database(f"sqlite:///{directory}/store.db"))
    context.log = DurableAuditLog(context.database, directory)
    sink = stack.enter_context(DurableAuditSink(context.log))
    context.bus = ReactiveEventBus(sink=sink)


@given("{events:d} events were emitted durably on the event bus")
def emit_durably(context: Any, events: int) -> None:
    positions = [context.bus.emit_durably(event()) for _ in range(events)]
    assert positions == list(range(1, events + 1))
    assert context.log.verify().ok


@when("row {row:d} of the event bus's kept log is altered in the database")
def alter(context: Any, row: int) -> None:
    statement = f"UPDATE events SET subject = 'somebody else' WHERE position = {row}"
    context.database.write(lambda connection: connection.exec_driver_sql(statement))


@then("verifying the event bus's kept log names row {row:d}")
def named(context: Any, row: int) -> None:
    assert [finding.position for finding in context.log.verify().findings] == [row]
