"""The changeset of a change: by handle, by the current one, or the only active one; never by a guess."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import pickle
import threading
from contextlib import suppress

import pytest

from cleveragents.changes import execution_context as plan_execution_context
from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.errors import (
    AmbiguousChangeset,
    ChangesetClosed,
    ForeignChangeset,
    NoActiveChangeset,
    PlanError,
    UnknownChangeset,
)
from cleveragents.testing.changeset_store import InMemoryChangesetStore
from tests.observable_lock import TellingLock


def change(name: str) -> ChangeEntry:
    return ChangeEntry(ChangeKind.CREATE, name)


@pytest.fixture
def store() -> InMemoryChangesetStore:
    return InMemoryChangesetStore()


@pytest.fixture
def context(store: InMemoryChangesetStore) -> PlanExecutionContext:
    return PlanExecutionContext("plan-1", store)


def paths(store: InMemoryChangesetStore, changeset: str) -> list[str]:
    return [recorded.entry.path for recorded in store.entries(changeset)]


def elsewhere(work):
    """Return what `work` returns, or raise what it raises, on a thread without a current changeset."""
    found = []

    def run():
        try:
            found.append(contextvars.Context().run(work))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def test_records_a_batch_like_a_single_change(context, store):
    changeset = context.start_changeset()
    context.record_changes([change("a"), change("b")])
    assert paths(store, changeset) == ["a", "b"]
    store.close(changeset)
    with pytest.raises(ChangesetClosed):
        context.record_changes([change("c")])
    assert context.active_changesets == ()


def test_a_started_changeset_is_stored_active_and_current(context, store):
    changeset = context.start_changeset()
    assert store.get(changeset).plan_id == "plan-1"
    assert context.active_changesets == (changeset,)
    assert context.current_changeset == changeset


def test_has_the_names_used_in_bug_reports(context):
    changeset = context.start_changeset()
    assert context._active_changeset_ids == [changeset]
    assert isinstance(context._changeset_lock, type(threading.Lock()))


def test_reads_of_active_changesets_hold_the_lock(context):
    waited = threading.Event()
    context._changeset_lock = TellingLock(waited)
    looks = [
        lambda: context.active_changesets,
        lambda: context.record_change(change("a")),
        context.start_changeset,
        context.close_changeset,
    ]
    for look in looks:
        waited.clear()
        with context._changeset_lock:
            looking = threading.Thread(target=contextvars.copy_context().run, args=(_quietly(look),))
            looking.start()
            while looking.is_alive() and not waited.wait(0.01):
                pass
        looking.join()
        assert waited.is_set()


def _quietly(look):
    def run():
        with suppress(PlanError):
            look()

    return run


def test_a_record_names_its_changeset_and_sequence(context):
    changeset = context.start_changeset()
    recorded = context.record_change(change("a"))
    assert (recorded.changeset_id, recorded.sequence, recorded.entry) == (changeset, 1, change("a"))


def test_the_handle_wins_over_the_current_changeset(context, store):
    first = context.start_changeset()
    second = context.start_changeset()
    context.record_change(change("for-first"), first)
    context.record_change(change("for-second"))
    assert paths(store, first) == ["for-first"]
    assert paths(store, second) == ["for-second"]


def test_uses_the_only_active_changeset(context, store):
    changeset = context.start_changeset()
    elsewhere(lambda: context.record_change(change("a")))
    assert paths(store, changeset) == ["a"]


def test_raises_without_an_active_changeset(context):
    with pytest.raises(NoActiveChangeset, match=r"plan-1.*start_changeset") as raised:
        context.record_change(change("a"))
    assert isinstance(raised.value, PlanError)
    with pytest.raises(NoActiveChangeset):
        context.close_changeset()


def test_raises_instead_of_guessing(context, store):
    both = (context.start_changeset(), context.start_changeset())
    with pytest.raises(AmbiguousChangeset, match="changeset=") as raised:
        elsewhere(lambda: context.record_change(change("a")))
    assert isinstance(raised.value, PlanError)
    assert raised.value.active == both
    assert [paths(store, one) for one in both] == [[], []]
    with pytest.raises(AmbiguousChangeset):
        elsewhere(context.close_changeset)


def test_a_closed_changeset_is_inactive_and_takes_no_entries(context, store):
    changeset = context.start_changeset()
    assert context.close_changeset(changeset).closed
    assert context.active_changesets == ()
    assert context.current_changeset is None
    with pytest.raises(ChangesetClosed, match=changeset):
        context.record_change(change("late"), changeset)
    with pytest.raises(NoActiveChangeset):
        context.record_change(change("late"))
    assert paths(store, changeset) == []


def test_closing_the_inner_one_makes_the_outer_one_current_again(context, store):
    outer = context.start_changeset()
    inner = context.start_changeset()
    context.close_changeset()
    assert context.current_changeset == outer
    assert store.get(inner).closed
    assert not store.get(outer).closed


def test_closing_the_outer_one_leaves_the_inner_one_current(context):
    outer = context.start_changeset()
    inner = context.start_changeset()
    context.close_changeset(outer)
    assert context.current_changeset == inner


def test_closing_twice_is_harmless(context):
    changeset = context.start_changeset()
    assert context.close_changeset(changeset) == context.close_changeset(changeset)


def test_refuses_a_current_changeset_closed_elsewhere(context, store):
    mine = context.start_changeset()
    other = elsewhere(context.start_changeset)
    elsewhere(lambda: context.close_changeset(mine))
    assert context.active_changesets == (other,)
    with pytest.raises(ChangesetClosed, match=mine):
        context.record_change(change("a"))
    assert paths(store, other) == []
    context.close_changeset()  # acknowledges that it is closed
    assert context.current_changeset is None
    context.record_change(change("b"))
    assert paths(store, other) == ["b"]


def test_a_changeset_closed_elsewhere_is_not_the_only_active_one(context, store):
    sealed = elsewhere(context.start_changeset)
    store.close(sealed)
    with pytest.raises(ChangesetClosed):
        context.record_change(change("a"))
    assert context.active_changesets == ()
    fresh = elsewhere(context.start_changeset)
    assert context.record_change(change("b")).changeset_id == fresh


def test_two_plans_in_one_thread_do_not_see_each_others_current_changeset(context, store):
    other = PlanExecutionContext("plan-2", store)
    mine = context.start_changeset()
    theirs = other.start_changeset()
    assert context.record_change(change("a")).changeset_id == mine
    assert other.record_change(change("b")).changeset_id == theirs
    context.close_changeset()
    assert other.current_changeset == theirs
    with pytest.raises(NoActiveChangeset, match="plan-1"):
        context.record_change(change("c"))


@pytest.mark.parametrize("use", ["record", "close", "current"])
def test_refuses_a_changeset_of_another_plan(context, store, use):
    theirs = PlanExecutionContext("plan-2", store).start_changeset()
    uses = {
        "record": lambda: context.record_change(change("a"), theirs),
        "close": lambda: context.close_changeset(theirs),
        "current": lambda: context.recording_into(theirs).__enter__(),
    }
    with pytest.raises(ForeignChangeset, match=f"plan-1.*{theirs}") as raised:
        uses[use]()
    assert isinstance(raised.value, PlanError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert not store.get(theirs).closed
    assert paths(store, theirs) == []


def test_refuses_an_unknown_handle(context):
    with pytest.raises(UnknownChangeset, match="nope"):
        context.record_change(change("a"), "nope")


def test_a_resumed_plan_may_use_a_handle_it_did_not_start(context, store):
    changeset = context.start_changeset()
    resumed = PlanExecutionContext("plan-1", store)
    resumed.record_change(change("a"), changeset)
    with resumed.recording_into(changeset):
        with resumed.changeset():
            resumed.record_change(change("inner"))
        resumed.record_change(change("b"))
    assert paths(store, changeset) == ["a", "b"]


def test_a_retry_records_once_even_after_the_close(context, store):
    changeset = context.start_changeset()
    first = context.record_change(change("a"), key="call-1")
    assert context.record_change(change("a"), key="call-1") == first
    elsewhere(lambda: context.close_changeset(changeset))
    assert context.record_change(change("a"), key="call-1") == first
    assert paths(store, changeset) == ["a"]


def test_the_block_form_closes_and_restores_however_the_block_ends(context, store):
    outer = context.start_changeset()
    with pytest.raises(ZeroDivisionError), context.changeset() as inner:
        assert context.current_changeset == inner
        context.record_change(change("a"))
        raise ZeroDivisionError
    assert store.get(inner).closed
    assert context.current_changeset == outer
    assert context.active_changesets == (outer,)


def test_a_changeset_closed_in_an_inner_block_is_not_replaced(context):
    with context.changeset() as mine:
        other = elsewhere(context.start_changeset)
        elsewhere(lambda: context.close_changeset(mine))
        with context.changeset():
            context.record_change(change("inner"))
        with pytest.raises(ChangesetClosed, match=mine):
            context.record_change(change("a"))
    assert context.active_changesets == (other,)


def test_a_handle_can_be_carried_into_a_thread(context, store):
    mine, other = context.start_changeset(), context.start_changeset()

    def work():
        with context.recording_into(mine):
            context.record_change(change("a"))
        return context.current_changeset

    assert elsewhere(work) is None
    assert paths(store, mine) == ["a"]
    assert paths(store, other) == []


async def tasks_each_in_their_own(context, store):
    parent = context.start_changeset()

    async def child(name: str, own: bool) -> str:
        if own:
            with context.changeset() as changeset:
                await asyncio.sleep(0)
                context.record_change(change(name))
                return changeset
        await asyncio.sleep(0)
        return context.record_change(change(name)).changeset_id

    first, second, third = await asyncio.gather(child("a", True), child("b", True), child("c", False))
    assert third == parent
    assert (paths(store, first), paths(store, second), paths(store, parent)) == (["a"], ["b"], ["c"])
    assert context.current_changeset == parent


async def child_closing_its_parents_changeset(context, store):
    mine = context.start_changeset()
    other = elsewhere(context.start_changeset)

    async def child() -> None:
        context.close_changeset(mine)

    await asyncio.create_task(child())
    with pytest.raises(ChangesetClosed, match=mine):
        context.record_change(change("a"))
    assert paths(store, other) == []


def test_a_task_records_into_its_parents_changeset_until_it_starts_its_own(context, store):
    asyncio.run(tasks_each_in_their_own(context, store))


def test_refuses_a_changeset_closed_by_a_child_task(context, store):
    asyncio.run(child_closing_its_parents_changeset(context, store))


def test_forgets_a_deleted_context(store):
    def run() -> int:
        for number in range(5):
            PlanExecutionContext(f"plan-{number}", store).start_changeset()
        gc.collect()
        PlanExecutionContext("last", store).start_changeset()
        return len(plan_execution_context._STACKS.get())

    assert elsewhere(run) == 1
