"""An unusable store: logged once, survived by workers, and the end of a foreground run."""

from __future__ import annotations

import threading
from math import inf
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cleveragents.app.container import Container
from cleveragents.cli.plan.exit_codes import TRY_AGAIN
from cleveragents.cli.render.board import PlainBoard
from cleveragents.cli.run.foreground import run_in_front
from cleveragents.core.errors import DatabaseFailed, DatabaseUnreachable, DatabaseUnusable, StoreFull
from cleveragents.core.json_value import FrozenObject
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.ready_database import ready_database
from tests.worker_bench import Bench, claim

pytestmark = pytest.mark.timeout(20)

FULL = StoreFull("the disk")
TIMEOUT = 100.0


class Away(InMemoryJobStore):
    """Refuses the operations in `refused`."""

    def __init__(self) -> None:
        super().__init__(CountingIdentifiers("job"))
        self.refused: dict[str, Exception] = {}
        self.tries = 0
        self.interrupted = False
        self.bench = Bench(store=self)

    def fill(self) -> None:
        self.refused = dict.fromkeys(("claim", "finish", "heartbeats", "reclaim"), FULL)

    def claim(self, *args: object, **more: object) -> Job | None:
        self._ask("claim")
        return super().claim(*args, **more)

    def finish(self, *args: object, **more: object) -> Job:
        self._ask("finish")
        return super().finish(*args, **more)

    def finish_and_claim(self, *args: object, **more: object) -> object:
        self._ask("finish")
        return super().finish_and_claim(*args, **more)

    def heartbeats(self, *args: object, **more: object) -> object:
        self._ask("heartbeats")
        return super().heartbeats(*args, **more)

    def reclaim(self, *args: object, **more: object) -> Job:
        self._ask("reclaim")
        return super().reclaim(*args, **more)

    def list(self, **more: object) -> object:
        self.bench.clock.advance(1)  # each poll of the waiting caller takes time
        if self.interrupted and threading.current_thread() is threading.main_thread():
            self.interrupted = False
            raise KeyboardInterrupt
        self._ask("list")
        return super().list(**more)

    def _ask(self, what: str) -> None:
        if what in self.refused:
            self.tries += 1
            raise self.refused[what]


@pytest.fixture
def store() -> Away:
    return Away()


def told(logs: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(line["event"], line.get("doing")) for line in logs if line["log_level"] == "warning"]


def left_by(store: Away, worker: AsyncWorker) -> str:
    """Return the id of a job whose report failed for a whole lease."""
    job_id = store.bench.submit()
    claim(worker)
    store.fill()
    store.bench.clock.advance(12)
    store.bench.run_all()
    assert (store.get(job_id).state, worker.statistics().lease_lost) == (JobState.RUNNING, 1)
    return job_id


def test_waiting_for_jobs_raises_the_error_that_blocked_the_store_for_a_lease(store: Away) -> None:
    worker = store.bench.worker(poll_seconds=0.001)
    left_by(store, worker)
    before = store.bench.clock.monotonic()
    with pytest.raises(StoreFull, match="no space left for the disk"):
        worker.run_until_idle(TIMEOUT)
    assert store.bench.clock.monotonic() - before == 15


@pytest.mark.parametrize(
    ("doing", "error"),
    [
        ("claim", FULL),
        ("list", DatabaseUnreachable("the database", "it hung up")),
        ("list", DatabaseUnusable("the database", "it is read-only")),
    ],
)
def test_waiting_for_idleness_raises_the_error_of_the_store(
    store: Away, doing: str, error: Exception
) -> None:
    worker = store.bench.worker(poll_seconds=0.001)
    store.bench.submit()
    store.refused = {doing: error}
    if doing == "claim":
        claim(worker)
    with pytest.raises(type(error)):
        worker.run_until_idle(TIMEOUT)


def test_waits_through_an_outage_shorter_than_a_lease(store: Away) -> None:
    worker = store.bench.worker(poll_seconds=0.001)
    store.bench.submit()
    store.refused = {"list": DatabaseUnreachable("the database", "it hung up"), "claim": FULL}
    with capture_logs() as logs:
        claim(worker)
        assert worker._unfinished()
        store.refused.clear()
        assert worker._unfinished()
        claim(worker)
        store.bench.run_all()
    worker.run_until_idle(TIMEOUT)
    waits, resumed = "worker.store_waits", "worker.store_goes_on"
    assert told(logs) == [
        (waits, "claiming"), (waits, "looking"), (resumed, "looking"), (resumed, "claiming"),
    ]  # fmt: skip


def test_logs_a_full_disk_once_and_its_recovery_once(store: Away) -> None:
    worker = store.bench.worker()
    job_id = store.bench.submit()
    claim(worker)
    store.fill()
    store.bench.clock.advance(5)
    with capture_logs() as logs:
        for _ in range(3):
            worker._keeper.beat()
        store.refused.clear()
        for _ in range(2):
            worker._keeper.beat()
    assert (store.tries, store.get(job_id).beat) == (3, 1)
    assert told(logs) == [("worker.store_waits", "writing"), ("worker.store_goes_on", "writing")]


def test_a_report_waits_for_disk_space_and_logs_it_once(store: Away) -> None:
    class Roomy(Away):
        def _ask(self, what: str) -> None:
            if self.tries == 2:
                self.refused.clear()
            super()._ask(what)

    def run(job: AsyncJob) -> object:
        roomy.fill()
        return "kept"

    roomy = Roomy()
    with capture_logs() as logs:
        job_id = roomy.bench.play(roomy.bench.worker(run))
    assert roomy.get(job_id).result == "kept"
    assert told(logs) == [("worker.store_waits", "writing"), ("worker.store_goes_on", "writing")]


def test_a_worker_continues_after_a_full_disk_without_loss(store: Away) -> None:
    worker = store.bench.worker(lambda job: job.attempt)
    job_id = left_by(store, worker)
    with capture_logs() as logs:
        for _ in range(6):
            worker._sweep()
            claim(worker)
            store.bench.clock.advance(5)
        store.refused.clear()
        worker._sweep()
        claim(worker)
        store.bench.run_all()
    assert store.get(job_id).result == 2
    worker.run_until_idle(TIMEOUT)
    assert sorted(told(logs)) == sorted(
        (event, doing)
        for event in ("worker.store_waits", "worker.store_goes_on")
        for doing in ("claiming", "reclaiming", "writing")
        if (event, doing) != ("worker.store_waits", "writing")  # logged before
    )


def test_a_job_reclaimed_by_a_peer_or_a_failed_reclaim_ends_no_wait(
    store: Away,
) -> None:
    worker, peer = store.bench.worker(name="b"), store.bench.worker()
    job_id = store.bench.submit()
    claim(peer)
    store.bench.machine.dead.add("a")
    for error in (FULL, DatabaseFailed("the database", "a constraint")):
        store.refused = {"reclaim": error}
        worker._sweep()
        assert (worker._table.trouble.since(inf) is FULL) == (error is FULL)
        job = store.get(job_id)
        store.refused.clear()
        if error is FULL:
            super(Away, store).reclaim(job_id, job.fence, job.beat, error="died", now=store.bench.clock.now())
            worker._sweep()
            assert worker._table.trouble.since(inf) is None
            claim(peer)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_ends_with_a_remedy_if_its_store_cannot_be_written(
    store: Away, tmp_path: Path, capsys: pytest.CaptureFixture[str], interrupted: bool
) -> None:
    store.interrupted = interrupted
    worker = store.bench.worker(poll_seconds=0.001)
    left_by(store, worker)
    ready_database(tmp_path / "state" / "state.db")
    with Container(demo_settings(tmp_path / "state")) as container:
        new = PlanDraft("a goal", "builtin/command", str(tmp_path), FrozenObject({}))
        plan = container.plan_parts.lifecycle.create(new)
        with pytest.raises(StoreFull) as stopped:
            run_in_front(
                container, [plan], lambda: PlainBoard([plan], alone=True), lambda board, recorder: worker
            )
    assert stopped.value.exit_code == TRY_AGAIN
    said = capsys.readouterr().err
    assert f"fix this, then run `agents plan resume {plan.id}`" in said
    assert "earlier records are safe" in said
    worker.close()
