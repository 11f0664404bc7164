"""Several processes decide about one plan, or apply several to one repository, at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import ApplyConflict, StalePlan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import ReadyResult, Strategy
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.sandbox_edits import SandboxEdits
from tests.plan_bench import PlanBench, command, edit, new_repository, plan_bench, write

ROOT = Path(__file__).parents[2]
Rollback = Callable[[SandboxEdits, PlanBench, Plan], Any]
PROGRAM = [sys.executable, "-m", "tests.races.plan_decider"]
ROUNDS = 3
READY = (Phase.EXECUTE, PlanState.COMPLETE)


class Deciders:
    """Processes that decide at the same time about plans of this bench."""

    def __init__(self, home: Path, bench: PlanBench) -> None:
        self.bench = bench
        self._home = home
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(
            PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def decide(self, *deeds: tuple[str, Any]) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"home": str(self._home), "deeds": deeds}) + "\n")
        self._process.stdin.flush()
        answers: list[str] = json.loads(self._process.stdout.readline())
        assert not [answer for answer in answers if answer.startswith("broke")], answers
        return answers

    def both(self, one: str, other: str, plan: Plan) -> list[str]:
        return self.decide((one, plan.id), (other, plan.id))

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def deciders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deciders]:
    home = tmp_path_factory.mktemp("deciders")
    with plan_bench(home) as bench:
        made = Deciders(home, bench)
        yield made
        made.close()


@pytest.fixture(params=range(ROUNDS))
def bench(deciders: Deciders, tmp_path: Path) -> PlanBench:
    deciders.bench.repository = new_repository(tmp_path / "repository")
    return deciders.bench


def test_one_of_two_concurrent_applies_succeeds(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.done(edit("b.txt", "alpha", "alpha\nmore"))
    answers = deciders.both("apply", "apply", plan)
    assert sorted(answers)[1] == "applied"
    assert sorted(answers)[0] in ("StalePlan", "IllegalPlanMove")
    assert bench.now(plan).state is PlanState.APPLIED
    assert bench.text("b.txt") == "alpha\nmore\n"


@pytest.mark.parametrize("against", ["cancel", "reject"])
def test_a_plan_is_applied_or_discarded_never_both(
    deciders: Deciders, bench: PlanBench, against: str
) -> None:
    plan = bench.done(write("x.txt", "x\n"))
    applied, other = deciders.both("apply", against, plan)
    state = bench.now(plan).state
    assert (state is PlanState.APPLIED) == (applied == "applied") == (bench.repository / "x.txt").exists()
    assert (state is PlanState.APPLIED) == (other in ("PlanError", "StalePlan", "IllegalPlanMove"))
    assert state in (PlanState.APPLIED, PlanState.CANCELLED, PlanState.REJECTED)


def test_two_resumes_make_a_call_once(deciders: Deciders, bench: PlanBench) -> None:
    """google/adk-python#4751: two concurrent resumes corrupted the history for good."""
    plan = bench.done(command("echo ran >> runs.log; echo x >> x.txt; test -e ready.log"))
    (bench.sandbox(plan).root / "ready.log").touch()
    answers = deciders.both("resume", "resume", plan)
    assert "complete" in answers
    assert set(answers) <= {"complete", "StalePlan", "PlanError"}
    assert (bench.sandbox(plan).root / "runs.log").read_text() == "ran\nran\n"
    assert (bench.sandbox(plan).root / "x.txt").read_text() == "x\n"
    bench.ensure_consistent(plan)


def test_a_cancel_beats_a_resume_whenever_it_comes(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.done(command("test -e ready.log"))
    (bench.sandbox(plan).root / "ready.log").touch()
    _, cancelled = deciders.both("resume", "cancel", plan)
    assert cancelled in ("cancelled", "queued", "processing")
    over = bench.parts.lifecycle.reconciled(bench.now(plan))
    assert over.state is PlanState.CANCELLED


def test_two_cancels_are_one(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.done(write("x.txt", ""))
    assert deciders.both("cancel", "cancel", plan) == ["cancelled", "cancelled"]
    assert bench.now(plan).version == plan.version + 1


def test_a_question_gets_one_answer(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.done(write("x.txt", ""), profile="manual")
    answers = deciders.both("approve", "deny", plan)
    assert sorted(answers) == ["PlanError", "queued"]
    [call] = bench.calls(plan)
    assert call.approval == ("granted" if answers[0] == "queued" else "denied")
    assert bench.work(plan).state is (PlanState.COMPLETE if answers[0] == "queued" else PlanState.ERRORED)


def test_an_applied_plan_is_undone_once(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.apply(bench.done(edit("b.txt", "alpha", "beta")))
    answers = deciders.both("undo", "undo", plan)
    assert sorted(answers)[1] == "undone"
    assert sorted(answers)[0] in ("ApplyRefused", "PlanError", "StalePlan")
    assert bench.text("b.txt") == "alpha\n"


def test_an_apply_during_a_rollback_matches_the_records(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.done(write("1.txt", "1\n"), write("2.txt", "2\n"))
    deciders.both("apply", "rollback", plan)
    bench.ensure_consistent(plan)
    if bench.now(plan).state is not PlanState.APPLIED:
        bench.apply(plan)
    shown = set(bench.diff(plan, "--name-only").split())
    assert shown == {name for name in ("1.txt", "2.txt") if (bench.repository / name).exists()}


def revised(bench: PlanBench) -> Plan:
    """Return a plan with a result of two calls. The first was the result from before a revision."""
    plan = bench.done(write("1.txt", "1\n"), write("2.txt", "2\n"))
    ready = ReadyResult(call=1, correction=0, tasks=0, guidance=0)
    strategy = replace(Strategy.from_json(plan.strategy), ready=ready).to_json()
    return bench.parts.plans.move(plan, READY, PlanFacts(strategy=strategy), now=bench.container.clock.now())


@pytest.mark.parametrize("against", ["apply", "cancel", "reject", "withdraw"])
def test_a_withdrawal_is_whole_or_leaves_the_plan_to_the_other_decision(
    deciders: Deciders, bench: PlanBench, against: str
) -> None:
    plan = revised(bench)
    withdrawn, other = deciders.both("withdraw", against, plan)
    over = bench.now(plan)
    bench.ensure_consistent(plan)
    applied = [(bench.repository / name).exists() for name in ("1.txt", "2.txt")]
    assert applied == [over.state is PlanState.APPLIED] * 2
    if against == "withdraw":
        assert sorted((withdrawn, other)) == ["StalePlan", "complete"]
    if withdrawn == "complete":
        files = {change.entry.path for change in bench.parts.history.changes(plan.id)}
        assert bench.parts.history.states(plan.id).keys() == {"1.txt"} < files
    else:
        assert withdrawn in ("StalePlan", "PlanError"), (withdrawn, other)
        assert over.phase_state != READY or against == "withdraw"


class HeldCalls:
    """Calls of a rollback that was allowed, held before or after its call is recorded."""

    def __init__(self, calls: Any, *, recorded: bool) -> None:
        self._calls = calls
        self._recorded = recorded
        self.allowed, self.go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def add(self, *facts: Any, **more: Any) -> Any:
        call = self._calls.add(*facts, **more) if self._recorded else None
        self.allowed.set()
        assert self.go_on.wait(60)
        return call or self._calls.add(*facts, **more)


def rolled_back_by(edits: SandboxEdits, bench: PlanBench, plan: Plan) -> Any:
    return edits.rollback(plan, 2)


def withdrawn_by(edits: SandboxEdits, bench: PlanBench, plan: Plan) -> Any:
    return replace(bench.parts.correction, sandbox_edits=edits).withdraw(plan)


def begin_apply_during_rollback(
    bench: PlanBench, threads: ThreadPoolExecutor, plan: Plan, *, recorded: bool, rollback: Rollback
) -> tuple[Future[Any], Future[Plan]]:
    """Begin an apply before or after the call of a rollback is recorded, then let the rollback continue."""
    held = HeldCalls(bench.parts.calls, recorded=recorded)
    sandbox_edits = replace(bench.parts.sandbox_edits, calls=held)
    rolled_back = threads.submit(rollback, sandbox_edits, bench, plan)
    assert held.allowed.wait(60)
    applied = threads.submit(bench.apply, plan)
    while bench.now(plan).phase_state == plan.phase_state:
        assert not applied.done()
    held.go_on.set()
    return rolled_back, applied


@pytest.mark.parametrize("rollback", [rolled_back_by, withdrawn_by])
def test_a_rollback_is_refused_once_an_apply_has_begun(tmp_path: Path, rollback: Rollback) -> None:
    """The approved result is applied, and stays as it was approved."""
    with plan_bench(tmp_path) as bench, ThreadPoolExecutor(2) as threads:
        plan = revised(bench)
        rolled_back, applied = begin_apply_during_rollback(
            bench, threads, plan, recorded=False, rollback=rollback
        )
        with pytest.raises(StalePlan):
            rolled_back.result(60)
        applied.result(60)
        bench.ensure_consistent(plan)
        assert [(bench.repository / name).exists() for name in ("1.txt", "2.txt")] == [True, True]


def test_an_apply_waits_for_an_earlier_rollback(tmp_path: Path) -> None:
    """Then the approved result no longer exists, and nothing is applied."""
    with plan_bench(tmp_path) as bench, ThreadPoolExecutor(2) as threads:
        plan = revised(bench)
        rolled_back, applied = begin_apply_during_rollback(
            bench, threads, plan, recorded=True, rollback=rolled_back_by
        )
        assert rolled_back.result(60).state.value == "ended"
        with pytest.raises(StalePlan):
            applied.result(60)
        bench.ensure_consistent(plan)
        assert not (bench.repository / "1.txt").exists()
        bench.apply(plan)
        assert [(bench.repository / name).exists() for name in ("1.txt", "2.txt")] == [True, False]


def test_a_withdrawal_that_an_apply_interrupts_is_repeated(tmp_path: Path) -> None:
    """Neither the approved result nor the restored one is applied unseen."""
    with plan_bench(tmp_path) as bench, ThreadPoolExecutor(2) as threads:
        withdrawn, applied = begin_apply_during_rollback(
            bench, threads, plan := revised(bench), recorded=True, rollback=withdrawn_by
        )
        for refused in (withdrawn, applied):
            with pytest.raises(StalePlan):
                refused.result(60)
        bench.ensure_consistent(plan)
        assert not (bench.repository / "1.txt").exists()
        assert bench.parts.correction.withdraw(bench.now(plan)).phase_state == READY
        bench.apply(plan)
        assert [(bench.repository / name).exists() for name in ("1.txt", "2.txt")] == [True, False]


def test_a_plan_deleted_during_a_resume_is_gone_or_runs(deciders: Deciders, bench: PlanBench) -> None:
    plan = bench.done(command("exit 1"))
    _, deleted = deciders.both("resume", "delete", plan)
    known = {one.id for one in bench.parts.plans.list(limit=1000)}
    if deleted == "errored":
        assert plan.id not in known
    else:
        assert bench.now(plan).state in (PlanState.ERRORED, PlanState.COMPLETE)
        bench.ensure_consistent(plan)


def test_two_plans_on_different_places_of_a_file_are_both_applied(bench: PlanBench) -> None:
    """bdfinst/agentic-dev-team#1571, griffinwork40/agent-afk#2028: one agent's edits reverted another's."""
    first, second = bench.done(edit("a.txt", "one", "1")), bench.done(edit("a.txt", "seven", "7"))
    bench.apply(first)
    bench.apply(second)
    assert bench.text("a.txt") == "1\ntwo\nthree\nfour\nfive\nsix\n7\n"


def test_the_second_of_two_plans_on_one_place_is_refused(deciders: Deciders, bench: PlanBench) -> None:
    plans = [bench.done(edit("a.txt", "four", word)) for word in ("4", "vier")]
    answers = deciders.decide(*(("apply", plan.id) for plan in plans))
    assert sorted(answers) == ["ApplyConflict", "applied"]
    winner = answers.index("applied")
    assert bench.text("a.txt").splitlines()[3] == ("4", "vier")[winner]
    loser = plans[1 - winner]
    assert bench.now(loser).state is PlanState.CONSTRAINED
    with pytest.raises(ApplyConflict):
        bench.apply(loser)


def test_eight_concurrent_plans_on_one_repository_end_correctly(tmp_path: Path) -> None:
    lines = [f"word{number}" for number in range(80)]
    with plan_bench(tmp_path) as bench:
        (bench.repository / "shared.txt").write_text("\n".join(lines) + "\n")
        many = Deciders(tmp_path, bench)
        try:
            wishes = [
                {"pattern": f"word{number}\n", "replacement": f"WORD{number}\n", "glob": "shared.txt"}
                for number in range(5, 80, 10)
            ]
            assert many.decide(*(("replace", wish) for wish in wishes)) == ["applied"] * 8
        finally:
            many.close()
        wanted = [line.upper() if number % 10 == 5 else line for number, line in enumerate(lines)]
        assert bench.text("shared.txt").splitlines() == wanted
        for plan in bench.parts.plans.list():
            bench.ensure_consistent(plan)
