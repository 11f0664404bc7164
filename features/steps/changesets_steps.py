"""Steps of changesets.feature: threads behind a barrier, and where their changes ended up."""

from __future__ import annotations

import threading
from typing import Any

from behave import given, then, when

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.errors import AmbiguousChangeset, ChangesetClosed, NoActiveChangeset, PlanError
from cleveragents.testing.changeset_store import InMemoryChangesetStore
from tests.races.hammer import hammer


def change(path: str) -> ChangeEntry:
    return ChangeEntry(ChangeKind.CREATE, path)


def paths(context: Any, changeset: str) -> list[str]:
    return [recorded.entry.path for recorded in context.store.entries(changeset)]


@given("a plan execution context shared by {nodes:d} nodes")
def shared_context(context: Any, nodes: int) -> None:
    context.store = InMemoryChangesetStore()
    context.execution = PlanExecutionContext("plan", context.store)
    context.nodes = nodes


@given("a plan execution context with one active changeset")
def context_with_one(context: Any) -> None:
    shared_context(context, 1)
    context.changeset = context.execution.start_changeset()


@when("at a barrier every node starts a changeset and records {changes:d} changes without naming it")
def nodes_start_and_record(context: Any, changes: int) -> None:
    context.started = {}

    def node(number: int) -> None:
        context.started[number] = context.execution.start_changeset()
        for turn in range(changes):
            context.execution.record_change(change(f"{number}/{turn}"))

    hammer(node, threads=context.nodes)


@then("every changeset holds exactly the {changes:d} changes of its own node, numbered without a gap")
def each_holds_its_own(context: Any, changes: int) -> None:
    assert len(set(context.started.values())) == context.nodes
    for number, changeset in context.started.items():
        assert paths(context, changeset) == [f"{number}/{turn}" for turn in range(changes)]
        numbers = [recorded.sequence for recorded in context.store.entries(changeset)]
        assert numbers == list(range(1, changes + 1))


@when("{times:d} times at a barrier one thread starts a changeset while another records without a handle")
def start_beside_record(context: Any, times: int) -> None:
    context.refused = []

    def run(number: int, turn: int) -> None:
        if number == 0:
            context.execution.close_changeset(context.execution.start_changeset())
            return
        try:
            context.execution.record_change(change(str(turn)))
        except AmbiguousChangeset:
            context.refused.append(str(turn))

    for turn in range(times):
        hammer(lambda number, turn=turn: run(number, turn), threads=2)
    context.expected = {str(turn) for turn in range(times)}


@then("each of those changes is in the changeset that was there before, or was refused as ambiguous")
def filed_or_refused(context: Any) -> None:
    filed = paths(context, context.changeset)
    assert set(filed) | set(context.refused) == context.expected
    assert len(filed) + len(context.refused) == len(context.expected)
    others = [c.id for c in context.store.of_plan("plan") if c.id != context.changeset]
    assert all(paths(context, changeset) == [] for changeset in others)


@when("a change is recorded without a changeset")
def record_without(context: Any) -> None:
    try:
        context.execution.record_change(change("a"))
    except PlanError as error:
        context.refusal = error


@then("recording a change is refused with a plan error that says to call start_changeset")
def refused_as_plan_error(context: Any) -> None:
    assert isinstance(context.refusal, NoActiveChangeset)
    assert "start_changeset()" in str(context.refusal)


@when("at a barrier one thread closes the changeset while {recorders:d} threads record changes into it")
def close_beside_records(context: Any, recorders: int) -> None:
    context.acknowledged = []
    first_is_in = threading.Event()

    def run(number: int) -> None:
        if number == 0:
            assert first_is_in.wait(30)
            context.sealed = context.execution.close_changeset(context.changeset)
            return
        for turn in range(200):
            try:
                recorded = context.execution.record_change(change(f"{number}/{turn}"), context.changeset)
            except ChangesetClosed:
                return
            context.acknowledged.append(recorded)
            first_is_in.set()

    hammer(run, threads=recorders + 1)


@then("the sealed changeset holds exactly the changes that were acknowledged")
def sealed_holds_acknowledged(context: Any) -> None:
    kept = list(context.store.entries(context.changeset))
    assert sorted(context.acknowledged, key=lambda recorded: recorded.sequence) == kept
    assert context.sealed.length == len(kept)
    assert context.store.get(context.changeset) == context.sealed
