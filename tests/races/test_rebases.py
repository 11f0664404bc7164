"""A rebase, interrupted by another action on the same plan, and the reverse.

A rebase runs git and locks files, which explorers of interleavings cannot step through. Instead, the second
action starts at the first, second, third … place of the first one: after each of its commits, and at the
first read after it took or released a lock of a file, or at each read. The second action runs to its end, or
until it waits for a lock of the first.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cleveragents.changes.model.merge_conflict import REBASE, Take
from cleveragents.core.errors import CleverAgentsError, IllegalPlanMove, PlanError, StalePlan
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.apply import PlanApply
from cleveragents.plans.conflicts.rebase import PlanRebase
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.plan_bench import FILES, PlanBench, new_repository, plan_bench, write
from tests.races.naive_rebase import AnyVersionCallStore, RemembersResult

TEXT = FILES["a.txt"]
PLANNED = TEXT.replace("one\n", "planned\n")
ENDS = ("cancel", "discard")
REFUSALS = (StalePlan, PlanError, IllegalPlanMove)
SECONDS = 60.0


class Interruption:
    """At the nth place of the watched thread, a second action runs in another thread: to its end, or until it
    sleeps because it waits for a lock.
    """

    def __init__(self) -> None:
        self._watched: threading.Thread | None = None
        self._places = count(1)
        self._nth = 0
        self._has_new_locks = True
        self.every_read = False
        self._second: threading.Thread | None = None
        self._goes_on = threading.Event()

    def read(self) -> None:
        if threading.current_thread() is self._watched and (self._has_new_locks or self.every_read):
            self._has_new_locks = False
            self.committed()

    def committed(self) -> None:
        if threading.current_thread() is self._watched and next(self._places) == self._nth:
            assert self._second is not None
            self._second.start()
            assert self._goes_on.wait(SECONDS)

    def flock(self, *about: Any, flock: Callable[..., None] = fcntl.flock) -> None:
        """`fcntl.flock`, which takes and releases locks of files."""
        if threading.current_thread() is self._watched:
            self._has_new_locks = True
        flock(*about)

    def sleep(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """`time.sleep`, which is how a thread waits for the lock of a file."""
        if threading.current_thread() is self._second:
            self._goes_on.set()
        sleep(seconds)

    def run(self, nth: int, first: Callable[[], object], second: Callable[[], object]) -> bool:
        """Run both actions; return whether the first one got to its nth place."""

        def interrupts() -> None:
            try:
                second()
            finally:
                self._goes_on.set()

        self._places, self._nth, self._goes_on = count(1), nth, threading.Event()
        self._second = threading.Thread(target=interrupts)
        self._watched, self._has_new_locks = threading.current_thread(), True
        try:
            first()
        finally:
            self._watched = None
            began = self._second.ident is not None
            if began:
                self._second.join(SECONDS)
                assert not self._second.is_alive()
            self._second = None
        return began


class Interrupted:
    """A backend of a database whose callers are interrupted."""

    def __init__(self, backend: Any, points: Interruption) -> None:
        self._backend = backend
        self._points = points

    def read(self) -> Any:
        self._points.read()
        return self._backend.read()

    def commit(self, write: Any) -> Any:
        outcome = self._backend.commit(write)
        self._points.committed()
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@dataclass
class World:
    """One plan after another, each in a repository of its own that has changed since the plan's base."""

    root: Path
    bench: PlanBench
    points: Interruption
    rebase: PlanRebase
    apply: PlanApply
    refused: list[str] = field(default_factory=list)
    rebases_at_end: int | None = None

    def made(self, current: str) -> Plan:
        self.refused.clear()
        self.rebases_at_end = None
        self.bench.repository = new_repository(self.root / f"repository-{time.monotonic_ns()}")
        plan = self.bench.done(write("a.txt", PLANNED))
        assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
        (self.bench.repository / "a.txt").write_text(current)
        return plan

    def act(self, name: str, plan: Plan) -> None:
        """Do it with the plan as it was read before both actions; a refusal is an outcome."""
        acts: dict[str, Callable[[], object]] = {
            "rebase": lambda: self.rebase.rebase(plan),
            "killed rebase": lambda: self.rebase.merge(plan),
            "apply": lambda: self.apply.apply(plan, CancellationToken()),
            "cancel": lambda: self.bench.parts.lifecycle.cancel(plan, "not wanted"),
            "discard": lambda: self.bench.parts.lifecycle.reject(plan),
        }
        try:
            acts[name]()
        except REFUSALS as refusal:
            self.refused.append(f"{name}: {refusal!r}")
        else:
            if name in ENDS:
                self.rebases_at_end = len(self.rebases(plan))

    def rebases(self, plan: Plan) -> list[ToolCall]:
        return [call for call in self.bench.calls(plan) if call.tool == REBASE]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    points = Interruption()
    monkeypatch.setattr(time, "sleep", points.sleep)
    monkeypatch.setattr(fcntl, "flock", points.flock)
    with plan_bench(tmp_path, isolation="off") as bench:
        database: Any = bench.container.database
        database._backend = Interrupted(database._backend, points)
        yield World(tmp_path, bench, points, bench.parts.rebase, bench.parts.apply)


def explore(there: World, first: str, second: str, current: str) -> int:
    """Interrupt the first action at each of its places; return how many there are."""
    there.points.every_read = second in ENDS
    for nth in count(1):
        plan = there.made(current)
        try:
            if not there.points.run(nth, partial(there.act, first, plan), partial(there.act, second, plan)):
                assert not there.refused
                return nth - 1
            ensure_sound(there, plan, current)
        except BaseException as error:
            error.add_note(f"{first}, interrupted by {second} at place {nth}; refused: {there.refused}")
            raise
    raise AssertionError


def ensure_sound(there: World, plan: Plan, current: str) -> None:
    """Check the files of the user and of the sandbox, then carry the plan through."""
    bench, parts = there.bench, there.bench.parts
    parts.apply.settle()
    now = parts.lifecycle.reconciled(bench.now(plan))
    rebases = there.rebases(plan)
    assert [call.state for call in rebases].count(CallState.ENDED) <= 1
    if now.state in (PlanState.CANCELLED, PlanState.REJECTED):
        assert bench.text("a.txt") == current
        assert len(rebases) == there.rebases_at_end  # none started after the plan had ended
        assert not parts.history.open_calls(plan.id)
        return
    if now.state is PlanState.APPLIED:
        assert bench.text("a.txt") == merged(current)
        return
    assert bench.text("a.txt") == current
    carry_through(there, now)
    bench.ensure_consistent(plan)
    assert bench.text("a.txt") == merged(current)


def carry_through(there: World, plan: Plan) -> None:
    bench, parts = there.bench, there.bench.parts
    if not plan.state.running:
        plan = parts.rebase.rebase(plan)
    if plan.state.running:
        plan = bench.work(plan)
    if plan.state is PlanState.WAITING:
        parts.manual_resolution.resolve(plan, "a.txt", Take.OURS)
        plan = bench.resume(plan)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), (plan.error, plan.waiting_for)
    assert bench.apply(plan).state is PlanState.APPLIED


ELSEWHERE = TEXT.replace("seven\n", "seven current\n")
SAME_LINE = TEXT.replace("one\n", "current\n")


def merged(current: str) -> str:
    """Return the file with both changes, or with the plan's where they conflict."""
    return current.replace("one\n", "planned\n").replace("current\n", "planned\n", current == SAME_LINE)


PAIRS = {
    "rebase, rebase": SAME_LINE,
    "rebase, killed rebase": SAME_LINE,
    "rebase, apply": ELSEWHERE,
    "apply, rebase": ELSEWHERE,
    "apply, killed rebase": ELSEWHERE,
    "rebase, cancel": ELSEWHERE,
    "cancel, rebase": ELSEWHERE,
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_rebase_and_another_action_keep_both_sides(there: World, pair: str) -> None:
    assert explore(there, *pair.split(", "), PAIRS[pair]) > 1


def test_a_rebase_that_reads_the_result_once_is_caught(there: World) -> None:
    parts = there.bench.parts
    result = RemembersResult(parts.history, parts.result.reviews, parts.result.clock)
    there.rebase = replace(there.rebase, result=result)
    with pytest.raises((AssertionError, CleverAgentsError)):
        explore(there, "rebase", "killed rebase", SAME_LINE)


def test_a_rebase_of_any_version_is_caught(there: World) -> None:
    container, opened = there.bench.container, there.rebase.execution
    calls = AnyVersionCallStore(container.database, container.identifiers)
    there.rebase = replace(there.rebase, execution=lambda *about: replace(opened(*about), calls=calls))
    with pytest.raises(AssertionError, match="rebases_at_end"):
        explore(there, "rebase", "cancel", ELSEWHERE)
