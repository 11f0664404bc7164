"""The lease of a turn: when another process may take it over, and when its owner gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.conversations.model import Conversation, NewConversation, NewTurn, TurnState
from cleveragents.conversations.running_turns import LeaseObserver, LeaseTerms, RunningTurns
from cleveragents.conversations.store import SqlConversationStore
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import Cancelled, Closed, ConversationBusy, StaleTurn
from cleveragents.core.identifiers import TurnFence, WorkerIdentity
from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.storage.conversation_tables import conversations, ensure_turn_held
from cleveragents.storage.database import Database, open_database
from cleveragents.testing.clock import CountingIdentifiers, FakeClock
from tests.ready_database import ready_database

TERMS = LeaseTerms(lease_seconds=15.0, heartbeat_seconds=5.0)
ELSEWHERE = WorkerIdentity("ann", "another machine", 1, 1)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "state.db")) as opened:
        yield opened


@pytest.fixture
def store(database: Database) -> SqlConversationStore:
    return SqlConversationStore(database, CountingIdentifiers("id"))


def output_in(database: Database) -> Callable[[TurnFence], SqlPlanOutput]:
    """Return what gives the output of a turn to its owner."""
    return lambda fence: SqlPlanOutput(
        database, owners=conversations, ensure=lambda connection: ensure_turn_held(connection, fence)
    )


def begun(store: SqlConversationStore, owner: WorkerIdentity) -> Conversation:
    now = SystemClock().now()
    talk = store.create(NewConversation("default", "/r"), now=now)
    return store.begin(talk.id, NewTurn("hello"), owner, now=now)


def test_a_silent_owner_elsewhere_is_abandoned_after_a_lease(store: SqlConversationStore) -> None:
    clock = FakeClock()
    observer = LeaseObserver(PsutilProcessSupervisor(), clock, TERMS)
    held = begun(store, ELSEWHERE)
    assert observer.abandoned(held) is None
    clock.advance(14.9)
    assert observer.abandoned(held) is None
    store.beat(held.held)
    clock.advance(10)
    assert observer.abandoned(store.get(held.id)) is None  # a heartbeat begins another lease
    clock.advance(15)
    silent = store.get(held.id)
    assert observer.abandoned(silent) == silent.observed
    store.beat(held.held)  # at the last moment
    with pytest.raises(ConversationBusy):
        store.begin(held.id, NewTurn("me"), ELSEWHERE, now=clock.now(), abandoned=silent.observed)


def test_a_wall_clock_that_jumps_abandons_nothing(store: SqlConversationStore) -> None:
    clock = FakeClock()
    observer = LeaseObserver(PsutilProcessSupervisor(), clock, TERMS)
    held = begun(store, ELSEWHERE)
    observer.abandoned(held)
    clock.jump(86_400)
    assert observer.abandoned(held) is None


def test_a_dead_owner_of_this_machine_is_abandoned_at_once(store: SqlConversationStore) -> None:
    processes = PsutilProcessSupervisor()
    observer = LeaseObserver(processes, FakeClock(), TERMS)
    me = processes.identity("me")
    held = begun(store, me)
    assert observer.abandoned(held) is None
    dead = replace(held, owner=structs.replace(me, started_ticks=me.started_ticks - 1))
    assert observer.abandoned(dead) == held.observed
    assert observer.abandoned(replace(held, owner=None)) is None


def test_an_owner_that_lost_its_turn_stops_and_stores_nothing(
    database: Database, store: SqlConversationStore
) -> None:
    clock = SystemClock()
    turns = RunningTurns(store, output_in(database), clock, LeaseTerms(15.0, 0.01))
    held = begun(store, ELSEWHERE)
    stopped = threading.Event()

    def work(stop: CancellationToken, told: object) -> str:
        assert stop.wait(60)
        stopped.set()
        raise Cancelled(stop.reason)

    turns.start(held, work, by=None)
    other = WorkerIdentity("bob", "here", 2, 2)
    seen = store.get(held.id)
    while True:  # until no heartbeat came in between
        try:
            store.begin(held.id, NewTurn("again"), other, now=clock.now(), abandoned=seen.observed)
            break
        except ConversationBusy:
            seen = store.get(held.id)
    assert stopped.wait(60)
    turns.close()
    assert [turn.state for turn in store.turns(held.id)] == [TurnState.INTERRUPTED, TurnState.RUNNING]
    with pytest.raises(Closed):
        turns.ensure_room()


def test_close_interrupts_running_turns(database: Database, store: SqlConversationStore) -> None:
    turns = RunningTurns(store, output_in(database), SystemClock(), TERMS)
    held = begun(store, ELSEWHERE)
    begins = threading.Event()

    def work(stop: CancellationToken, told: object) -> str:
        begins.set()
        stop.wait(60)
        stop.raise_if_cancelled()
        return "never"

    turns.start(held, work, by=None)
    assert begins.wait(60)
    turns.close()
    (turn,) = store.turns(held.id)
    assert (turn.state, store.get(held.id).owner) == (TurnState.INTERRUPTED, None)


def test_an_unexpected_error_fails_the_turn(database: Database, store: SqlConversationStore) -> None:
    turns = RunningTurns(store, output_in(database), SystemClock(), TERMS)
    held = begun(store, ELSEWHERE)

    def work(stop: CancellationToken, told: object) -> str:
        raise KeyError("a mistake of ours")

    turns.start(held, work, by=None)
    turns.close()
    (turn,) = store.turns(held.id)
    assert (turn.state, turn.error) == (TurnState.FAILED, "internal error: KeyError")


def test_late_words_of_a_lost_turn_are_not_output_of_the_next(
    database: Database, store: SqlConversationStore
) -> None:
    clock = SystemClock()
    turns = RunningTurns(store, output_in(database), clock, TERMS)
    held = begun(store, ELSEWHERE)
    output_in(database)(held.held).append(held.id, [("model", "in time")], now=clock.now())

    def work(stop: CancellationToken, told: Callable[[Progress], None]) -> str:
        other = WorkerIdentity("bob", "here", 2, 2)
        seen = store.get(held.id)
        store.begin(held.id, NewTurn("again"), other, now=clock.now(), abandoned=seen.observed)
        told(Progress(ProgressKind.THOUGHT, "assistant", "main", "too late"))
        raise StaleTurn(held.id, held.turns)

    turns.start(held, work, by=None)
    turns.close()
    assert [piece.text for piece in SqlPlanOutput(database).read(held.id)] == ["in time"]
    assert [turn.first_output for turn in store.turns(held.id)] == [0, 1]


def test_a_thread_that_does_not_start_leaves_nothing_to_close(
    database: Database, store: SqlConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = RunningTurns(store, output_in(database), SystemClock(), TERMS)
    held = begun(store, ELSEWHERE)

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError):
            turns.start(held, lambda stop, told: "never", by=None)
    turns.close()  # joins no thread that has not started
    (turn,) = store.turns(held.id)
    assert (turn.state, store.get(held.id).owner) == (TurnState.INTERRUPTED, None)


def test_a_close_during_a_start_waits_for_the_thread(
    database: Database, store: SqlConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = RunningTurns(store, output_in(database), SystemClock(), TERMS)
    held = begun(store, ELSEWHERE)
    real, failed, closers = threading.Thread.start, list[BaseException](), list[threading.Thread]()

    def close() -> None:
        try:
            turns.close()
        except RuntimeError as error:
            failed.append(error)

    def slow(thread: threading.Thread) -> None:
        if thread.name.startswith("turn-" + held.id):
            closers.append(threading.Thread(target=close, name="closer"))
            real(closers[0])
            closers[0].join(0.2)  # a close that does not wait for the start ends in this time
        real(thread)

    def work(stop: CancellationToken, told: object) -> str:
        stop.raise_if_cancelled()
        return "done"

    monkeypatch.setattr(threading.Thread, "start", slow)
    turns.start(held, work, by=None)
    closers[0].join(60)
    assert failed == []
    assert store.get(held.id).owner is None
