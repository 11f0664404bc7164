"""An actor plan whose process is killed at its durable steps, or stopped beyond its lease.

The next process continues after the last finished call: no finished call of a tool or a model is repeated,
the result is the same, and the budget counts every call once, at most at its worst case.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cleveragents.actors.runner import BridgeActorRunner
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.jobs.ports import JobHandler
from cleveragents.models.script_document import read_script
from cleveragents.plans.actors.actor_stage import ActorTurn
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.run import kind_of_plan
from cleveragents.storage.actor_tables import model_calls
from cleveragents.testing.scripted_server import ScriptedServer
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, answer, call, executes, says
from tests.apply_bench import snapshot
from tests.conditions import wait_until
from tests.crash.programs.goal_runner import CHECKS, RULES, THOUGHTS, carried_through
from tests.crash.runner import Runner, running
from tests.crash.test_plans import distinct
from tests.fork_server import Forked
from tests.plan_bench import FILES

ROOT = Path(__file__).parents[2]
RESULT = {
    **{path: text for path, text in FILES.items() if path != "folder/c.txt"},
    "b.txt": "alpha\nmore\n",
    "made.txt": "made\n",
    "moved.txt": "gamma\n",
}
RECORDED = [("create", "made.txt"), ("modify", "b.txt"), ("rename", "moved.txt")]
TOOLS = ["read", "write", "read", "command"]
POINTS = 9


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    template = tmp_path_factory.mktemp("runner") / "template"
    with actor_plan_bench(template) as bench:
        bench.script(*RULES, input_price=1.0, output_price=1.0)
        assert bench.parts.plans.list() == []
    with running("goal_runner", template) as made:
        yield made


@pytest.mark.timeout(1800)
def test_a_killed_actor_plan_repeats_no_finished_call(runner: Runner, tmp_path: Path) -> None:
    """sipyourdrink-ltd/bernstein#3376: a kill destroyed the state that a resume needs."""
    whole = runner.home(tmp_path / "whole")
    assert runner.run(whole) == 0
    tokens = ensure_complete(whole, before=None)
    points = chosen(distinct(json.loads((whole / "points.json").read_text())))
    reached = 0
    for name, nth in points:
        home = runner.home(tmp_path / "killed")
        ended = runner.run(home, point=name, nth=nth)
        if ended == 0:  # writes share commits, so a run may have fewer than the counted one
            shutil.rmtree(home)
            continue
        assert ended == -signal.SIGKILL, (name, nth)
        reached += 1
        before = Known(home)
        try:
            plan = carried_through(home)
            assert plan.phase_state == (Phase.APPLY, PlanState.APPLIED), plan
            assert ensure_complete(home, before=before) >= tokens
        except BaseException as error:
            error.add_note(f"killed at {name}, the {nth}th time")
            raise
        shutil.rmtree(home)
    assert reached > len(points) // 2


def chosen(points: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return as many points as time permits, evenly distributed up to the apply; all of them on request.

    Applies, sandboxes and the audit log have their own tests. The writer of the log reaches a point depending
    on how many events it finds, so there is no n-th time to come back to.
    """
    before = takewhile(lambda point: not point[0].startswith("apply"), points)
    actors = [point for point in before if not point[0].startswith(("sandbox", "audit"))]
    if os.environ.get("CLEVERAGENTS_EVERY_FAULT_POINT"):
        return actors
    return actors[:: max(1, len(actors) // POINTS)]


class Known:
    """The calls of a plan in the database when its process died."""

    def __init__(self, home: Path) -> None:
        with actor_plan_bench(home) as bench:
            self.thoughts = thoughts_of(bench)
            plans = bench.parts.plans.list()
            self.tools = [c.tool for plan in plans for c in bench.calls(plan) if c.state.value == "ended"]
        runs = [*home.glob("state/sandboxes/*/tree/runs.log")]
        self.runs = runs[0].read_text() if runs else ""


def thoughts_of(bench: ActorPlanBench) -> list[tuple[str, str]]:
    """Return every call of a model: its permanent name and its outcome."""
    query = select(model_calls.c.key, model_calls.c.state).order_by(model_calls.c.number)
    with bench.container.database.read() as connection:
        return [(key, state) for key, state in connection.execute(query)]


def ensure_complete(home: Path, before: Known | None) -> int:
    """Assert that the result exists once and only a running call was repeated. Returns the spending."""
    with actor_plan_bench(home) as bench:
        [plan] = bench.parts.plans.list()
        found = {p: text for p, (kind, text) in snapshot(bench.repository).items() if kind.startswith("file")}
        assert found == {path: text.encode() for path, text in RESULT.items()}
        changes = [change.entry for change in bench.parts.history.changes(plan.id)]
        assert [(entry.kind.value, entry.path) for entry in changes] == RECORDED
        bench.ensure_consistent(plan)
        assert bench.tools_of(plan) == TOOLS
        assert bench.states_of(plan) == ["ended"] * len(TOOLS)
        ensure_thought_once(bench, before)
        runs = (bench.sandbox(plan).root / "runs.log").read_text()
        done = before is not None and "command" in before.tools
        assert runs in ({"ran\n"} if done or before is None else {"ran\n", "ran\nran\n"})
        return ensure_accounted(bench, plan)


def ensure_thought_once(bench: ActorPlanBench, before: Known | None) -> None:
    thoughts = thoughts_of(bench)
    times = Counter(key for key, _ in thoughts)
    assert len(times) == THOUGHTS
    again = [key for key, n in times.items() if n > 1]
    if before is None or not before.thoughts:
        assert again == []
        return
    # The answer of the last call may not have been stored when the process died; all others were.
    assert again in ([], [before.thoughts[-1][0]])
    assert all(n <= 2 for n in times.values())
    states = [state for _, state in thoughts]
    assert states.count("settled") >= THOUGHTS
    # Only the running call counts at its worst case.
    was_open = [key for key, state in before.thoughts if state == "reserved"]
    assert [key for key, state in thoughts if state == "forfeited"] == was_open


def ensure_accounted(bench: ActorPlanBench, plan: Plan) -> int:
    """Assert that the spending is the sum of the calls, each once, and nothing is reserved."""
    view = bench.spent(plan)
    assert (view.reserved.tokens, view.reserved.picodollars, view.reserved.steps) == (0, 0, 0)
    query = select(model_calls).where(model_calls.c.plan_id == plan.id)
    with bench.container.database.read() as connection:
        rows = connection.execute(query).mappings().all()
    assert view.spent.steps == len(rows)
    taken = [
        row["worst_tokens"] if row["state"] == "forfeited" else row["input_tokens"] + row["output_tokens"]
        for row in rows
    ]
    assert view.spent.tokens == sum(taken)
    assert all(amount <= row["worst_tokens"] for amount, row in zip(taken, rows, strict=True))
    return view.spent.tokens


# ── Two owners ────────────────────────────────────────────────────────────────────────────────────


class TakenOver:
    """Another worker that takes over and completes the plan as soon as a model has answered its owner."""

    def __init__(self, peer: ActorPlanBench) -> None:
        self._peer = peer
        self.plan: Plan | None = None
        self.facts: object = None

    def reach(self, name: str) -> None:
        if name != "store.write.after_commit" or self.plan is None or self.facts is not None:
            return
        if not any(thought.state == "settled" for thought in self._peer.thoughts(self.plan)):
            return
        self.facts = "being taken over"
        jobs = self._peer.container.jobs
        job = jobs.get(str(self._peer.now(self.plan).job_id))
        jobs.reclaim(job.id, job.fence, job.beat, error="silent", now=self._peer.container.clock.now())
        assert self._peer.work(self.plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
        self.facts = facts_of(self._peer, self.plan)


def facts_of(bench: ActorPlanBench, plan: Plan) -> object:
    """Return all that a stale owner might damage: the plan, its calls and changes, the checkpoints of its
    runs.
    """
    store = SqlCheckpointStore(bench.container.database)
    kept = {
        (row.thread_id, row.checkpoint_id, len(row.writes)) for row in store.list(None) if row is not None
    }
    return (
        bench.now(plan),
        list(bench.calls(plan)),
        list(bench.parts.history.changes(plan.id)),
        list(bench.parts.actor_parts.decisions.of_plan(plan.id)),
        kept,
    )


class FenceIgnored:
    """A saver that checks neither the owner of the run nor its predecessor."""

    def __init__(self, store: SqlCheckpointStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, checkpoint: Any, *, fence: Any = None) -> None:
        self._store.put(replace(checkpoint, parent_id=None))

    def put_writes(self, *where: Any, fence: Any = None, checkpoint: Any = None, **facts: Any) -> None:
        if checkpoint is not None:
            self.put(checkpoint)
        self._store.put_writes(*where, **facts)


def owner_that_was_taken_over(home: Path, *, naive: bool) -> tuple[object, object]:
    """Return the state after the other worker, and after the old owner has continued too."""
    with actor_plan_bench(home) as peer:
        taken = TakenOver(peer)
        with actor_plan_bench(home, faults=taken) as owner:
            plan = owner.goal(owner.script(*RULES), checks=CHECKS)
            peer.strategies[plan.id] = owner.strategies[plan.id]
            taken.plan = plan
            with ExitStack() as cleanup:
                if naive:
                    store: Any = FenceIgnored(SqlCheckpointStore(owner.container.database))
                    runner = cleanup.enter_context(BridgeActorRunner(store))
                    turn = ActorTurn(lambda: runner)
                    owner.adapt = lambda run: replace(
                        run,
                        strategize_phase=lambda by: replace(run.strategize_phase(by), turn=turn),
                        execute_phase=lambda by: replace(run.execute_phase(by), turn=turn),
                    )
                owner.work(plan)
        return taken.facts, facts_of(peer, plan)


def test_a_replaced_owner_writes_nothing(tmp_path: Path) -> None:
    """google/adk-python#4751: two concurrent resumes corrupted the history for good."""
    left, found = owner_that_was_taken_over(tmp_path, naive=False)
    assert isinstance(left, tuple)
    assert found == left


def test_a_saver_that_ignores_the_fence_is_caught(tmp_path: Path) -> None:
    left, found = owner_that_was_taken_over(tmp_path, naive=True)
    assert isinstance(left, tuple)
    assert found != left


def test_an_owner_stopped_beyond_its_lease_is_too_late(tmp_path: Path) -> None:
    """Its answer has arrived when it wakes, but another worker has finished the plan."""
    slow = {"reply": says("done", delay_seconds=2.5), "times": 1, "when": {"tool": "write"}}
    rules = [slow, executes(answer(call("write", path="new.txt", content="new\n")), says("done"))]
    lease = {"lease_seconds": 3.0, "heartbeat_seconds": 0.3, "poll_seconds": 0.05}
    script = read_script(json.dumps({"version": 1, "rules": rules}), "a script")
    with ScriptedServer(script) as server:
        models = {"base_url": server.base_url, "timeout_seconds": 60.0}
        with actor_plan_bench(tmp_path, models=models, worker=lease) as bench:
            plan = bench.goal("openai/scripted", cast=(None, "builtin/executor", None))
            order = {"home": str(tmp_path), "plan": plan.id, "models": models, "worker": lease}
            stopped = start_worker(order)
            try:
                server.wait_until(lambda seen: seen.requests == 2, 240)
                stop_between_writes(stopped, bench.container.state_directory / "state.db")
                worker = bench.container.worker(
                    {kind_of_plan(plan.id): JobHandler(bench.handler())}, name="b"
                )
                worker.start()
                wait_until(lambda: bench.now(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE))
                facts = facts_of(bench, plan)
                stopped.send_signal(signal.SIGCONT)
                assert stopped.wait(240) == 0
            finally:
                stopped.kill()
                stopped.wait()
            assert facts_of(bench, plan) == facts
            assert bench.tools_of(plan) == ["write"]
            assert bench.spent(plan).reserved.tokens == 0


def stop_between_writes(process: subprocess.Popen[str], database: Path) -> None:
    """Stop the process while it holds no lock on the database, which would block every other process."""
    for _ in range(100):
        process.send_signal(signal.SIGSTOP)
        with closing(sqlite3.connect(database, timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
    raise AssertionError("the process writes without a pause")


def start_worker(order: dict[str, Any]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    program = [sys.executable, "-m", "tests.crash.programs.goal_worker"]
    child = Forked(program, cwd=ROOT, env=environment, stdin=subprocess.PIPE, text=True)
    assert child.stdin is not None
    child.stdin.write(json.dumps(order))
    child.stdin.close()
    return child
