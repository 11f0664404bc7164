"""A worker of a shared queue in this process: it runs plans, reports itself, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cleveragents.app.container import Container
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.config.service_settings import AuditSettings
from cleveragents.config.settings import Settings
from cleveragents.core.errors import DeadlineExceeded, StoreBusy
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import JobState, NewJob
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.jobs.worker import async_worker
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.jobs.worker.reports import BusyCount, WorkerReports
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.storage.settings import DatabaseOptions
from cleveragents.testing.clock import FakeClock
from tests.conditions import wait_until
from tests.plan_bench import new_repository
from tests.ready_database import ready_database

SECONDS = 60.0
DEAD = WorkerIdentity("dead", "another machine", 1, 1)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    facts = msgspec.to_builtins(demo_settings(tmp_path / "state"))
    facts["sandbox"] = {"isolation": "off"}
    facts["worker"] = {"poll_seconds": 0.05, "heartbeat_seconds": 0.2, "lease_seconds": 10.0}
    ready_database(tmp_path / "state" / "state.db")
    new_repository(tmp_path / "repository")
    with Container(msgspec.convert(facts, Settings)) as made:
        yield made


def plan_of(container: Container, tmp_path: Path, script: str, **request: object) -> Plan:
    facts = {"arguments": {"argv": ["sh", "-c", script]}, "profile": "full-auto", "queue": "plans"}
    kept = freeze({**facts, **request})
    assert isinstance(kept, FrozenObject)
    new = PlanDraft("a goal", "builtin/command", str(tmp_path / "repository"), kept)
    return container.plan_parts.lifecycle.create(new)


def test_runs_plans_ends_them_and_records_their_output(container: Container, tmp_path: Path) -> None:
    script = "echo seen; echo made > made.txt"
    plan = plan_of(container, tmp_path, script, apply="auto", checks=["test -e made.txt"])
    parts = WorkerParts(container)
    assert not parts.is_idle()
    with parts.start(name="one", concurrency=3) as worker:
        wait_until(parts.is_idle)
        [record] = container.worker_registry.list()
        assert (record.name, record.queue, record.engine, record.state) == (
            "one", f"plans,plans@{container.home}", "embedded", "working",
        )  # fmt: skip
        assert (record.concurrency, record.pid) == (3, container.processes.identity("x").pid)
    assert container.plan_parts.plans.get(plan.id).phase_state == (Phase.APPLY, PlanState.APPLIED)
    assert (tmp_path / "repository" / "made.txt").read_text() == "made\n"
    assert (worker.ended, worker.running) == (1, 0)
    printed = SqlPlanOutput(container.database).read(plan.id)
    assert "seen\n" in {piece.text for piece in printed if piece.kind == "output"}
    # The check ran with the plan, and once more before its result was applied.
    assert "".join(piece.text for piece in printed if piece.kind == "progress").count("made.txt") > 1
    [record] = container.worker_registry.list()
    assert record.state == "gone"
    worker.close()


def test_a_worker_anchors_the_audit_log(container: Container, tmp_path: Path) -> None:
    target = tmp_path / "outside.jsonl"
    audit = AuditSettings(anchor=str(target), anchor_minutes=1)
    container.settings = msgspec.structs.replace(container.settings, audit=audit)
    plan_of(container, tmp_path, "true")
    with WorkerParts(container).start(name="one"):
        wait_until(target.exists)
    assert container.audit.verify(container.anchors.read()).coverage[0].events > 0


def test_a_drained_worker_reports_draining_and_claims_no_more(container: Container, tmp_path: Path) -> None:
    with WorkerParts(container).start(name="one") as worker:
        assert worker.drain(SECONDS)
        wait_until(lambda: container.worker_registry.list()[0].state == "draining")
        plan = plan_of(container, tmp_path, "true")
        assert container.jobs.get(str(plan.job_id)).state is JobState.QUEUED


def test_jobs_of_other_queues_do_not_prevent_idleness(container: Container) -> None:
    for queue in ("", "others"):
        container.jobs.submit(NewJob("plan:1", queue=queue), now=container.clock.now())
    assert WorkerParts(container).is_idle()
    assert not WorkerParts(container).is_idle(["more", "others"])


def test_a_plan_whose_workers_died_too_often_is_updated(container: Container, tmp_path: Path) -> None:
    """Its job does not run again, so no other code would update the plan."""
    plan = plan_of(container, tmp_path, "true")
    for _ in range(10):
        now = container.clock.now()
        job = container.jobs.claim(DEAD, ["plan"], now=now, queues=["plans"])
        assert job is not None
        container.jobs.reclaim(job.id, job.fence, 0, error="its worker died", now=now)
    assert container.jobs.get(str(plan.job_id)).state is JobState.FAILED
    with WorkerParts(container).start(name="one"):
        wait_until(lambda: container.plan_parts.plans.get(plan.id).state is PlanState.ERRORED)


def test_start_settles_applies_that_a_dead_process_left_incomplete(
    container: Container, tmp_path: Path
) -> None:
    plan = plan_of(container, tmp_path, "echo x > x.txt", apply="review")
    parts = WorkerParts(container)
    with parts.start(name="one"):
        wait_until(parts.is_idle)
    plans = container.plan_parts.plans
    plan = plans.get(plan.id)
    for state in (PlanState.QUEUED, PlanState.PROCESSING):
        plan = plans.move(plan, (Phase.APPLY, state), now=container.clock.now())
    with parts.start(name="two"):
        after = plans.get(plan.id)
    assert (after.phase, after.state) == (Phase.APPLY, PlanState.ERRORED)


def test_a_worker_that_cannot_start_is_reported_as_gone(container: Container) -> None:
    with pytest.raises(ValueError, match="concurrency"):
        WorkerParts(container).start(name="one", concurrency=-1)
    assert [one.state for one in container.worker_registry.list()] == ["gone"]


def test_a_worker_that_ends_late_keeps_its_output_and_is_reported_as_gone(
    container: Container, tmp_path: Path
) -> None:
    plan = plan_of(container, tmp_path, "true")
    worker = WorkerParts(container).start(name="one", queues=("others",))
    inner = worker._worker

    class Slow:
        def close(self) -> None:
            inner.close()
            raise DeadlineExceeded("closing the worker", 1.0)

    worker._worker = Slow()
    say = worker._recorder.watch(plan).progress
    assert say is not None
    say("the last word")
    with pytest.raises(DeadlineExceeded):
        worker.close()
    assert [piece.text for piece in SqlPlanOutput(container.database).read(plan.id)] == ["the last word\n"]
    assert [one.state for one in container.worker_registry.list()] == ["gone"]


def test_close_waits_as_long_as_the_store_may_block() -> None:
    assert DatabaseOptions().patience_seconds < async_worker._JOIN_SECONDS


# ── reports ─────────────────────────────────────────────────────────────────────────────────────


class Registry:
    """Records reports; refuses some of them."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []
        self.refuse = False

    def report(self, worker: WorkerRecord) -> None:
        if self.refuse:
            raise StoreBusy(1.0)
        self.said.append((worker.state, worker.running))

    def list(self) -> list[WorkerRecord]:
        return []


def reports_of(registry: Registry, running: Callable[[], int]) -> WorkerReports:
    clock = FakeClock()
    first = WorkerRecord(
        "id", "one", "here", 1, "home", "embedded", "plans", 1, 0, "working", clock.now(), clock.now()
    )
    return WorkerReports(registry, clock, first, running, every_seconds=60.0)


def test_a_worker_reports_when_it_begins_drains_and_ends() -> None:
    registry, busy = Registry(), BusyCount()
    reports = reports_of(registry, lambda: busy.running)
    reports.start()
    assert registry.said[0] == ("working", 0)
    reports.draining()
    wait_until(lambda: registry.said[-1] == ("draining", 0))
    reports.close()
    assert registry.said[-1] == ("gone", 0)


def test_a_worker_ends_even_if_its_last_report_cannot_be_stored() -> None:
    registry = Registry()
    reports = reports_of(registry, lambda: 0)
    reports.start()
    registry.refuse = True
    reports.close()
    assert registry.said[-1][0] == "working"


def test_handlers_are_counted_while_they_run_however_they_end() -> None:
    busy = BusyCount()
    seen: list[int] = []

    def run(job: AsyncJob) -> object:
        seen.append(busy.running)
        raise OSError

    job = AsyncJob("id", "plan:1", {}, 1, 1, CancellationToken(), {})
    with pytest.raises(OSError):
        busy.counted(run)(job)
    assert (seen, busy.running, busy.ended) == ([1], 0, 1)
