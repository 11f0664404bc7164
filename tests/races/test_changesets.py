"""Every change lands in its own changeset, whatever runs at the same time, or the call raises."""

from __future__ import annotations

import contextvars
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.errors import AmbiguousChangeset, ChangesetClosed, NoActiveChangeset
from cleveragents.testing.changeset_store import InMemoryChangesetStore
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.linearizability import Call, History, Operation, is_linearizable, run_programs
from tests.races.naive_changesets import (
    LockOnlyContext,
    NaiveChangesetStore,
    NaiveContext,
    OneBigLockContext,
)

NAIVE_CONTEXTS = [NaiveContext, LockOnlyContext, OneBigLockContext]

EFFORT = 60

REFUSALS = (NoActiveChangeset, AmbiguousChangeset, ChangesetClosed)


def change(name: str) -> ChangeEntry:
    return ChangeEntry(ChangeKind.CREATE, name)


@dataclass
class Shared:
    """One context, shared by all workers of a scenario, and their answers."""

    context: Any
    store: Any
    names: dict[str, str] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    def start(self, name: str) -> str:
        self.names[name] = self.context.start_changeset()
        return self.names[name]

    def note(self, who: str, act: Any) -> None:
        """Return the answer of `act`: the changeset of an entry, or the name of the error."""
        try:
            answer = act()
        except Exception as error:
            answer = type(error).__name__
        else:
            answer = getattr(answer, "changeset_id", answer)
        self.answers[who] = answer

    def filed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return each changeset, by the name its worker gave it, with the recorded paths."""
        return tuple(
            (name, tuple(r.entry.path for r in self.store.entries(changeset)))
            for name, changeset in sorted(self.names.items())
        )

    def answer(self, who: str) -> str:
        """Return the answer, with the id of a changeset replaced by its name."""
        by_id = {changeset: name for name, changeset in self.names.items()}
        found = self.answers[who]
        return by_id.get(found, found) if isinstance(found, str) else type(found).__name__


def sharing(context_class: Any, *started: str, store_class: Any = InMemoryChangesetStore) -> Any:
    """Build a shared context with those changesets open, none of them current."""

    def setup() -> Shared:
        store = store_class()
        shared = Shared(context_class("plan", store), store)
        contextvars.Context().run(lambda: [shared.start(name) for name in started])
        return shared

    return setup


def node(name: str) -> Any:
    """A graph node: starts its changeset, records one change, and names no handle."""

    def run(shared: Shared) -> None:
        shared.start(name)
        shared.note(name, lambda: shared.context.record_change(change(f"by-{name}")))

    return run


def two_nodes(context_class: Any) -> Scenario[Shared]:
    """Two nodes share a context: each entry is in its own node's changeset."""
    right = (("a", ("by-a",)), ("b", ("by-b",)))
    return Scenario(
        name=f"two nodes, {context_class.__name__}",
        setup=sharing(context_class),
        workers=[node("a"), node("b")],
        outcome=lambda shared: (shared.filed(), shared.answer("a"), shared.answer("b")),
        allowed=lambda outcome: outcome == (right, "a", "b"),
        reachable=frozenset({(right, "a", "b")}),
    )


def start_beside_record(context_class: Any) -> Scenario[Shared]:
    """A record without a handle during another start goes into the existing changeset, or is refused."""

    def stranger(shared: Shared) -> None:
        shared.note("stranger", lambda: shared.context.record_change(change("x")))

    right = {
        ((("new", ()), ("old", ("x",))), "old"),
        ((("new", ()), ("old", ())), "AmbiguousChangeset"),
    }
    return Scenario(
        name=f"start beside record, {context_class.__name__}",
        setup=sharing(context_class, "old"),
        workers=[lambda shared: shared.start("new"), stranger],
        outcome=lambda shared: (shared.filed(), shared.answer("stranger")),
        allowed=lambda outcome: outcome in right,
        reachable=frozenset(right),
    )


@pytest.mark.parametrize("scenario", [two_nodes, start_beside_record])
def test_a_change_is_recorded_in_its_own_changeset(scenario):
    assert_holds(scenario(PlanExecutionContext), effort=EFFORT)


@pytest.mark.parametrize("naive", NAIVE_CONTEXTS)
@pytest.mark.parametrize("scenario", [two_nodes, start_beside_record])
def test_the_latest_changeset_does_not_identify_a_changeset(scenario, naive):
    assert_caught(scenario(naive), effort=EFFORT)


def test_two_nodes_that_name_their_handles_and_close_leave_nothing_active():
    def handling(name: str) -> Any:
        def run(shared: Shared) -> None:
            mine = shared.start(name)
            shared.note(name, lambda: shared.context.record_change(change(f"by-{name}"), mine))
            shared.context.close_changeset(mine)

        return run

    right = ((("a", ("by-a",)), ("b", ("by-b",))), "a", "b", ())
    assert_holds(
        Scenario(
            name="two nodes with handles",
            setup=sharing(PlanExecutionContext),
            workers=[handling("a"), handling("b")],
            outcome=lambda shared: (
                shared.filed(),
                shared.answer("a"),
                shared.answer("b"),
                shared.context.active_changesets,
            ),
            allowed=lambda outcome: outcome == right,
            reachable=frozenset({right}),
        ),
        effort=EFFORT,
    )


def test_a_record_during_a_first_start_sees_it_or_not():
    right = {((("a", ("x",)),), "a"), ((("a", ()),), "NoActiveChangeset")}
    assert_holds(
        Scenario(
            name="first start beside record",
            setup=sharing(PlanExecutionContext),
            workers=[
                lambda shared: shared.start("a"),
                lambda shared: shared.note("x", lambda: shared.context.record_change(change("x"))),
            ],
            outcome=lambda shared: (shared.filed(), shared.answer("x")),
            allowed=lambda outcome: outcome in right,
            reachable=frozenset(right),
        ),
        effort=EFFORT,
    )


def close_beside_record(store_class: Any, *, handle: bool) -> Scenario[Shared]:
    """Recorded before the close, or refused; the close counts what is recorded."""

    def recorder(shared: Shared) -> None:
        changeset = shared.names["a"] if handle else None
        shared.note("x", lambda: shared.context.record_change(change("x"), changeset))

    def closer(shared: Shared) -> None:
        shared.answers["sealed"] = shared.context.close_changeset(shared.names["a"])

    def outcome(shared: Shared) -> Any:
        final = shared.store.get(shared.names["a"])
        sealed = shared.answers["sealed"]
        entries = len(shared.store.entries(final.id))
        return shared.answer("x"), sealed == final, final.closed, final.length, entries

    def allowed(outcome: Any) -> bool:
        answer, sealed_is_final, closed, length, entries = outcome
        recorded = answer == "a"
        refused = answer == "ChangesetClosed" or (answer == "NoActiveChangeset" and not handle)
        return sealed_is_final and closed and length == entries == int(recorded) and recorded != refused

    reached = {("a", True, True, 1, 1), ("ChangesetClosed", True, True, 0, 0)}
    return Scenario(
        name=f"close beside record, {store_class.__name__}",
        setup=sharing(PlanExecutionContext, "a", store_class=store_class),
        workers=[recorder, closer],
        outcome=outcome,
        allowed=allowed,
        reachable=frozenset(reached if handle else {*reached, ("NoActiveChangeset", True, True, 0, 0)}),
    )


@pytest.mark.parametrize("handle", [True, False])
def test_a_change_is_recorded_before_the_close_or_refused(handle):
    assert_holds(close_beside_record(InMemoryChangesetStore, handle=handle), effort=EFFORT)


def test_a_naive_store_loses_the_close():
    assert_caught(close_beside_record(NaiveChangesetStore, handle=True), effort=EFFORT)


def one_of_two_closes_beside_record() -> Scenario[Shared]:
    """While both are open, a record without a handle is refused; once one is closed, the other is used."""
    return Scenario(
        name="one of two closes beside record",
        setup=sharing(PlanExecutionContext, "a", "b"),
        workers=[
            lambda shared: shared.context.close_changeset(shared.names["b"]),
            lambda shared: shared.note("x", lambda: shared.context.record_change(change("x"))),
        ],
        outcome=lambda shared: (shared.answer("x"), shared.filed()),
        allowed=lambda outcome: (
            outcome
            in {
                ("AmbiguousChangeset", (("a", ()), ("b", ()))),
                ("a", (("a", ("x",)), ("b", ()))),
            }
        ),
        reachable=frozenset(
            {("AmbiguousChangeset", (("a", ()), ("b", ()))), ("a", (("a", ("x",)), ("b", ())))}
        ),
    )


def test_refuses_to_guess_until_one_changeset_is_left():
    assert_holds(one_of_two_closes_beside_record(), effort=EFFORT)


def test_two_threads_may_close_the_same_changeset():
    def close(who: str) -> Any:
        def run(shared: Shared) -> None:
            shared.note(who, lambda: shared.context.close_changeset(shared.names["a"]))

        return run

    assert_holds(
        Scenario(
            name="two closers",
            setup=sharing(PlanExecutionContext, "a"),
            workers=[close("one"), close("two")],
            outcome=lambda shared: (
                shared.answer("one"),
                shared.answer("two"),
                shared.context.active_changesets,
            ),
            allowed=lambda outcome: outcome == ("Changeset", "Changeset", ()),
        ),
        effort=EFFORT,
    )


def recorders_beside_a_reader(store_class: Any) -> Scenario[Shared]:
    """Two concurrent records get 1 and 2; a retry records nothing; a reader sees no gap."""

    def record(who: str, key: str) -> Any:
        def run(shared: Shared) -> None:
            recorded = shared.store.record(shared.names["a"], change(key), key=key)
            shared.answers[who] = recorded.sequence

        return run

    def allowed(outcome: Any) -> bool:
        one, again, other, sequences, length = outcome
        return one == again and {one, other} == {1, 2} and sequences == (1, 2) and length == 2

    return Scenario(
        name=f"recorders, {store_class.__name__}",
        setup=sharing(PlanExecutionContext, "a", store_class=store_class),
        workers=[record("one", "k1"), record("again", "k1"), record("other", "k2")],
        outcome=lambda shared: (
            shared.answers["one"],
            shared.answers["again"],
            shared.answers["other"],
            tuple(r.sequence for r in shared.store.entries(shared.names["a"])),
            shared.store.get(shared.names["a"]).length,
        ),
        allowed=allowed,
        reachable=frozenset({(1, 1, 2, (1, 2), 2), (2, 2, 1, (1, 2), 2)}),
    )


def test_numbers_are_gapless_and_a_key_records_once():
    assert_holds(recorders_beside_a_reader(InMemoryChangesetStore), effort=EFFORT)


def test_a_naive_store_assigns_a_number_twice():
    assert_caught(recorders_beside_a_reader(NaiveChangesetStore), effort=EFFORT)


def test_a_plans_changesets_can_be_listed_while_one_starts():
    assert_holds(
        Scenario(
            name="listing beside a start",
            setup=sharing(PlanExecutionContext, "a", "b"),
            workers=[
                lambda shared: shared.store.start("plan"),
                lambda shared: shared.note("seen", lambda: str(len(shared.store.of_plan("plan")))),
            ],
            outcome=lambda shared: shared.answer("seen"),
            allowed=lambda seen: seen in {"2", "3"},
            reachable=frozenset({"2", "3"}),
        ),
        effort=EFFORT,
    )


# ── Programs against a sequential model ───────────────────────────────────────────────────────────────────


# The changeset of a call is chosen at one moment, and the store acts at a later one. So the model says where
# an entry goes, not its number. A close without a name and without a current changeset has an effect at both
# moments, and is not part of the programs.


@dataclass(frozen=True)
class Sequential:
    """The state of the model: active, closed and current changesets."""

    active: tuple[str, ...]
    sealed: frozenset[str]
    stacks: tuple[tuple[str, ...], ...]


def sequential(state: Sequential, call: Call) -> tuple[Sequential, Any]:
    """The behaviour of a context without concurrency. `call.args` is (thread, changeset or None)."""
    thread, named = call.args
    stack = state.stacks[thread]
    if call.name == "start":
        stacks = _with(state.stacks, thread, (*stack, named))
        return Sequential((*state.active, named), state.sealed, stacks), named
    meant = named or (stack[-1] if stack else None)
    if meant is None:
        if len(state.active) != 1:
            return state, "refused"
        meant = state.active[0]
    if call.name == "close":
        active = tuple(one for one in state.active if one != meant)
        stacks = _with(state.stacks, thread, tuple(one for one in stack if one != meant))
        return Sequential(active, state.sealed | {meant}, stacks), meant
    return state, "refused" if meant in state.sealed else meant


def _with(stacks: tuple[tuple[str, ...], ...], thread: int, stack: tuple[str, ...]) -> Any:
    return tuple(stack if n == thread else other for n, other in enumerate(stacks))


def perform(shared: Shared, call: Call) -> Any:
    """Make the same call on the real context."""
    named = call.args[1]
    if call.name == "start":
        return shared.start(named)
    handle = () if named is None else (shared.names[named],)
    try:
        if call.name == "close":
            return shared.context.close_changeset(*handle).id
        recorded = shared.context.record_change(change("x"), *handle)
    except REFUSALS:
        return "refused"
    return recorded.changeset_id


def told_by_name(shared: Shared, operations: list[Operation]) -> list[Operation]:
    """Return the history with ids replaced by the names of the programs."""
    by_id = {changeset: name for name, changeset in shared.names.items()}
    return [
        replace(operation, answer=by_id.get(operation.answer, operation.answer)) for operation in operations
    ]


def programs(*, longest: int) -> Any:
    """A few calls for each of two threads; `shared` is open from the beginning."""

    def program(thread: int) -> Any:
        named = st.sampled_from([None, None, "shared"])
        used = st.builds(
            Call, st.sampled_from(["record", "record", "close"]), st.tuples(st.just(thread), named)
        )
        starts = st.integers(1, 2).map(lambda n: Call("start", (thread, f"own-{thread}-{n}")))
        return st.lists(st.one_of(starts, used), min_size=1, max_size=longest).map(_sensible)

    return st.tuples(program(0), program(1))


def _sensible(calls: list[Call]) -> list[Call]:
    """No name is started twice, and nothing is closed without a name if nothing is current."""
    kept: list[Call] = []
    current = 0
    for call in calls:
        if call.name == "start" and call in kept:
            continue
        if call.name == "close" and call.args[1] is None and current == 0:
            continue
        current += {"start": 1, "close": -1 if call.args[1] is None else 0}.get(call.name, 0)
        kept.append(call)
    return kept


def linearizable(context_class: Any, both: tuple[list[Call], list[Call]]) -> Scenario[Any]:
    initial = Sequential(("shared",), frozenset(), ((), ()))
    build = sharing(context_class, "shared")
    return Scenario(
        name=f"{context_class.__name__}: {both}",
        setup=lambda: (build(), History()),
        workers=run_programs(both, perform),
        outcome=lambda state: is_linearizable(
            told_by_name(state[0], state[1].operations), initial, sequential
        ),
        allowed=bool,
    )


@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
@given(programs(longest=3))
def test_every_program_has_a_sequential_explanation(both):
    assert_holds(linearizable(PlanExecutionContext, both), effort=20)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs(longest=6))
def test_longer_programs_have_one_on_real_threads(both):
    scenario = linearizable(PlanExecutionContext, both)
    state = scenario.setup()
    with switch_interval(SWITCH_INTERVALS[1]):
        hammer(lambda number: scenario.workers[number](state), threads=2)
    assert scenario.allowed(scenario.outcome(state))


@pytest.mark.parametrize("naive", NAIVE_CONTEXTS)
def test_the_shortest_program_without_one_for_the_naive(naive):
    both = ([Call("record", (0, None))], [Call("start", (1, "own"))])
    assert_caught(linearizable(naive, both), effort=20)


# ── Real threads, exact totals ────────────────────────────────────────────────────────────────────────────


def file_under_own_changesets(context: Any, store: Any, *, rounds: int, close: bool) -> None:
    """Eight nodes, each with its own changesets: every entry is in the right one."""
    strays: list[str] = []
    # Without barriers, threads run many rounds each, and two nodes are hardly ever active together.
    all_started = threading.Barrier(8)

    def work(number: int) -> None:
        for turn in range(rounds):
            mine = context.start_changeset()
            if turn % 10 == 0:
                all_started.wait(30)
            for step in range(3):
                recorded = context.record_change(change(f"{number}/{turn}/{step}"))
                if (recorded.changeset_id, recorded.sequence) != (mine, step + 1):
                    strays.append(recorded.entry.path)
            if close:
                context.close_changeset()

    hammer(work)
    assert strays == []
    changesets = store.of_plan("plan")
    assert len(changesets) == 8 * rounds
    assert all((c.length, c.closed) == (3, close) for c in changesets)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_eight_nodes_record_every_entry_in_their_own_changesets(interval):
    store = InMemoryChangesetStore()
    context = PlanExecutionContext("plan", store)
    with switch_interval(interval):
        file_under_own_changesets(context, store, rounds=100, close=True)
    assert context.active_changesets == ()


@pytest.mark.parametrize("naive", NAIVE_CONTEXTS)
def test_the_same_load_scatters_entries_of_naive_contexts(naive):
    store = InMemoryChangesetStore()
    with switch_interval(SWITCH_INTERVALS[1]), pytest.raises(AssertionError, match="assert"):
        file_under_own_changesets(naive("plan", store), store, rounds=100, close=False)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_eight_recorders_into_one_changeset_get_every_number_once_until_it_is_sealed(interval):
    store = InMemoryChangesetStore()
    context = PlanExecutionContext("plan", store)
    changeset = context.start_changeset()
    acknowledged: list[tuple[int, str]] = []

    def work(number: int) -> None:
        for turn in range(300):
            try:
                recorded = context.record_change(change(f"{number}/{turn}"))
            except (ChangesetClosed, NoActiveChangeset):
                return
            acknowledged.append((recorded.sequence, recorded.entry.path))
            if number == 0 and turn == 200:
                context.close_changeset(changeset)

    with switch_interval(interval):
        hammer(work)
    kept = [(r.sequence, r.entry.path) for r in store.entries(changeset)]
    assert sorted(acknowledged) == kept
    assert [sequence for sequence, _ in kept] == list(range(1, len(kept) + 1))
    assert store.get(changeset).length == len(kept)
