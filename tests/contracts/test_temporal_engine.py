"""What only the Temporal engine has to keep: jobs that it was not told of, attempts that it gave up."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import CancelledError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from cleveragents.app.container import Container
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.config.settings import Settings
from cleveragents.contrib.temporal.connection import TemporalConnection
from cleveragents.contrib.temporal.names import (
    PROTOCOL,
    is_of_older_protocol,
    memo_of,
    priority_key,
    summary_of,
    task_queue_of,
    workflow_id,
)
from cleveragents.contrib.temporal.store import TemporalJobStore
from cleveragents.contrib.temporal.workflow import ACTIVITY, WORKFLOW, JobWorkflow, WorkflowInput
from cleveragents.core.errors import ConfigurationError, EngineUnavailable, UnknownJob
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.engine import WorkerRequest
from cleveragents.jobs.model.job import HANDED_ON, AttemptOutcome, Job, JobState, Lane, NewJob, submitted
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob
from tests.conditions import wait_until
from tests.ready_database import ready_database
from tests.temporal_bench import TemporalServer, settle_sdk, temporal_program, temporal_server

pytestmark = pytest.mark.skipif(temporal_program() is None, reason="there is no Temporal server here")

if temporal_program() is not None:
    settle_sdk()

NOBODY = "127.0.0.1:9"
QUEUE = "plans"
HERE = "plans@here"
QUICK = {"lease_seconds": 4.0, "heartbeat_seconds": 0.5}
ME = WorkerIdentity("me", "here", 1, 1)
YOU = WorkerIdentity("you", "here", 2, 2)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """One server for all."""
    with temporal_server() as found:
        yield found


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """With a Temporal that nobody can reach."""
    facts = {
        "state": {"directory": str(tmp_path)},
        "database": {"url": ready_database(tmp_path / "jobs.db")},
        "jobs": {"engine": "temporal", "temporal_address": NOBODY},
    }
    with Container(msgspec.convert(facts, Settings)) as made:
        yield made


def test_runs_jobs_submitted_while_temporal_was_down(
    container: Container, tmp_path: Path, address: str
) -> None:
    jobs = [container.engine.submit(NewJob("plan:1", queue=queue)) for queue in (QUEUE, HERE)]
    assert {job.state for job in jobs} == {JobState.QUEUED}
    assert [container.jobs.get(job.id).queue for job in jobs] == [QUEUE, HERE]
    with Container(_settings(container, tmp_path, temporal_address=address)) as back:
        handler = JobHandler(lambda job: "done")
        back.engine.run_worker(WorkerRequest({"plan": handler}, queues=(QUEUE, HERE)))
        for job in jobs:
            wait_until(lambda job=job: container.jobs.get(job.id).state is JobState.SUCCEEDED)


def _settings(
    container: Container, tmp_path: Path, *, worker: dict[str, float] | None = None, **temporal: str
) -> Settings:
    facts = {
        "worker": worker or {},
        "state": {"directory": str(tmp_path)},
        "database": {"url": container.settings.database.url},
        "jobs": {"engine": "temporal", **temporal},
    }
    return msgspec.convert(facts, Settings)


def test_runs_a_job_whose_workflow_was_ended_in_temporal(
    container: Container, tmp_path: Path, address: str
) -> None:
    with Container(_settings(container, tmp_path, temporal_address=address)) as back:
        job = back.engine.submit(NewJob("plan:1", queue=QUEUE))
        assert not back.temporal.start(job, ""), "one that runs is left alone"
        back.temporal.run(lambda client: client.get_workflow_handle(job.id).terminate())
        back.engine.run_worker(WorkerRequest({"plan": JobHandler(lambda job: "done")}, queues=(QUEUE,)))
        wait_until(lambda: back.jobs.get(job.id).state is JobState.SUCCEEDED)


def test_a_job_whose_workflow_is_cancelled_in_temporal_is_cancelled_though_no_worker_has_a_place_for_it(
    container: Container, tmp_path: Path, address: str
) -> None:
    """Between two phases as before the first one no code of it runs that could be told."""
    handler = Held()
    with ExitStack() as stack:
        back = stack.enter_context(Container(_settings(container, tmp_path, temporal_address=address)))
        stack.callback(handler.can_continue.set)
        request = WorkerRequest({"plan": JobHandler(handler)}, queues=(QUEUE,), concurrency=1)
        back.engine.run_worker(request)
        held = back.engine.submit(NewJob("plan:held", queue=QUEUE))
        wait_until(lambda: handler.runs[held.id] == 1)
        job = back.engine.submit(NewJob("plan:1", queue=QUEUE))
        back.temporal.run(lambda client: client.get_workflow_handle(job.id).cancel())
        wait_until(lambda: back.jobs.get(job.id).state.ended)
        assert back.jobs.get(held.id).state is JobState.RUNNING
        ended = back.jobs.get(job.id)
        assert (ended.state, ended.cancel_reason) == (JobState.CANCELLED, "cancelled in Temporal")
        with pytest.raises(WorkflowFailureError) as failed:
            back.temporal.run(lambda client: _history(client, job.id))
        assert isinstance(failed.value.cause, CancelledError)
        _replayed(back.temporal.run(lambda client: client.get_workflow_handle(job.id).fetch_history()))


def _replayed(history: WorkflowHistory) -> None:
    """Raises if the workflow would now do anything else than it did then."""
    replayer = Replayer(workflows=[JobWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    asyncio.run(replayer.replay_workflow(history))


def test_each_part_of_a_job_is_an_activity_and_its_workflow_can_be_run_again_from_its_history(
    container: Container, tmp_path: Path, address: str
) -> None:
    parts: list[tuple[int, int]] = []

    def run(job: AsyncJob) -> object:
        parts.append((job.attempt, job.fence))
        return HANDED_ON if len(parts) < 3 else "done"

    with Container(_settings(container, tmp_path, temporal_address=address)) as back:
        job = back.engine.submit(NewJob("plan:1", queue=QUEUE, max_attempts=1))
        back.engine.run_worker(WorkerRequest({"plan": JobHandler(run)}, queues=(QUEUE,)))
        wait_until(lambda: back.jobs.get(job.id).state.ended)
        assert back.jobs.get(job.id).state is JobState.SUCCEEDED
        assert parts == [(1, 1), (1, 2), (1, 3)]
        history = back.temporal.run(lambda client: _history(client, job.id))
    begun = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
    assert begun.count(ACTIVITY) == 3
    _replayed(history)


async def _history(client: Client, job_id: str) -> WorkflowHistory:
    workflow = client.get_workflow_handle(job_id)
    await workflow.result()
    return await workflow.fetch_history()


def test_a_workflow_that_was_begun_when_one_activity_ran_all_phases_goes_on() -> None:
    kept = Path(__file__).parent / "temporal_histories" / "one_activity.json"
    _replayed(WorkflowHistory.from_json("01M7GP6AHDFWZS9PW695M58K3G", kept.read_text()))


def begun_by_an_older_version(job: Job) -> Callable[[Client], Awaitable[None]]:
    """Starts its workflow as it was called and queued before queues had the protocol's number."""

    async def begin(client: Client) -> None:
        order = WorkflowInput(job.id, 4.0)
        await client.start_workflow(WORKFLOW, order, id=job.id, task_queue=f"cleveragents-{QUEUE}")

    return begin


def test_moves_workflows_of_an_older_version_to_this_one(
    container: Container, tmp_path: Path, address: str
) -> None:
    job = container.engine.submit(NewJob("plan:1", queue=QUEUE))
    began = begun_by_an_older_version(job)

    with Container(_settings(container, tmp_path, temporal_address=address)) as back:
        back.temporal.run(began)
        back.engine.run_worker(WorkerRequest({"plan": JobHandler(lambda job: "done")}, queues=(QUEUE,)))
        wait_until(lambda: back.jobs.get(job.id).state is JobState.SUCCEEDED)


def test_of_many_who_move_the_same_workflow_one_does_and_none_ends_what_that_began(
    container: Container, tmp_path: Path, address: str
) -> None:
    job = container.engine.submit(NewJob("plan:1", queue=QUEUE))
    began = begun_by_an_older_version(job)

    async def ended(client: Client) -> list[bool]:
        found = client.list_workflows(f"WorkflowId = '{job.id}'")
        return sorted([run.close_time is not None async for run in found])

    with Container(_settings(container, tmp_path, temporal_address=address)) as back:
        back.temporal.run(began)
        with ThreadPoolExecutor(8) as many:
            moved = list(many.map(lambda _: back.temporal.start(job, ""), range(8)))
        assert any(moved)
        wait_until(lambda: True in (runs := back.temporal.run(ended)) and False in runs)
        assert back.temporal.run(ended) == [False, True]


def test_ends_open_workflows_of_an_older_version(container: Container, tmp_path: Path, address: str) -> None:
    over, waits, held = (
        container.engine.submit(NewJob("plan:1", {"plan_id": "1"}, queue=QUEUE)) for _ in range(3)
    )
    strange = replace(over, id="0STRANGER")
    table, now = container.jobs.table, container.clock.now()
    for job in (over, held):
        claimed = table.claim_this(job.id, ME, now=now)
        assert claimed is not None
    table.finish(over.id, 1, AttemptOutcome(JobState.SUCCEEDED), now=now)
    older = f"TaskQueue = 'cleveragents-{QUEUE}' AND ExecutionStatus = 'Running'"

    async def still_open(client: Client) -> set[str]:
        return {run.id async for run in client.list_workflows(older)}

    async def said(client: Client) -> list[str]:
        history = await client.get_workflow_handle(over.id).fetch_history()
        return [event.workflow_execution_terminated_event_attributes.reason for event in history.events]

    with Container(_settings(container, tmp_path, temporal_address=address)) as back:
        for job in (over, waits, held, strange):
            back.temporal.run(begun_by_an_older_version(job))
        everyone = {over.id, waits.id, held.id, strange.id}
        wait_until(lambda: everyone <= back.temporal.run(still_open))
        request = WorkerRequest({"plan": JobHandler(lambda job: "done")}, queues=(QUEUE,))
        back.engine.run_worker(request)
        wait_until(lambda: back.jobs.get(waits.id).state is JobState.SUCCEEDED)
        wait_until(lambda: not {over.id, waits.id} & back.temporal.run(still_open))
        assert {held.id, strange.id} <= back.temporal.run(still_open)
        assert back.temporal.run(said)[-1] == "the job is succeeded"


def test_task_queues_say_which_protocol_their_workers_speak() -> None:
    older = ("cleveragents-plans", f"cleveragents-v{PROTOCOL - 1}-plans")
    others = (task_queue_of(QUEUE), f"cleveragents-v{PROTOCOL + 1}-plans")
    assert [is_of_older_protocol(name) for name in (*older, *others)] == [True, True, False, False]


def test_a_plan_is_found_in_temporal_by_its_id_and_known_by_its_goal() -> None:
    now = datetime.now(UTC)
    ours, nobodys = (
        submitted(NewJob(kind, payload), "job", now).job
        for kind, payload in (("apply:1", {"plan_id": "1"}), ("other", {}))
    )
    assert [workflow_id(job) for job in (ours, nobodys)] == ["plan-1-job", "job"]
    assert memo_of(ours, "a goal") == {"job": "job", "kind": "apply:1", "plan": "1", "goal": "a goal"}
    assert summary_of(ours, "a goal\nin two lines") == "apply 1: a goal"
    assert [summary_of(job, "") for job in (ours, nobodys)] == ["apply 1", "other"]
    assert len(summary_of(ours, 400 * "ö").encode()) <= 200, "Temporal refuses what is much longer"


def test_temporal_tells_five_priorities_apart() -> None:
    assert [priority_key(ours) for ours in (9, 2, 1, 0, -1, -2, -9)] == [1, 1, 2, 3, 4, 5, 5]


class Held:
    """A handler that lets one job not end until it may, and counts."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.can_continue = threading.Event()

    def __call__(self, job: AsyncJob) -> object:
        self.runs[job.id] += 1
        if job.kind == "plan:held":
            self.can_continue.wait(60)
            job.token.raise_if_cancelled()
        return "done"


@pytest.mark.parametrize("remembers", [True, False])
def test_all_jobs_end_once_though_temporal_is_killed_meanwhile(
    container: Container, tmp_path: Path, remembers: bool
) -> None:
    """And though it comes back with nothing of what it was told. What ran all the while is nobody else's."""
    handler = Held()
    server = TemporalServer(tmp_path / "temporal.db" if remembers else None)
    with ExitStack() as stack:
        stack.enter_context(server)
        server.start()
        settings = _settings(container, tmp_path, worker=QUICK, temporal_address=server.address)
        mine, others = (stack.enter_context(Container(settings)) for _ in range(2))
        stack.callback(handler.can_continue.set)
        request = WorkerRequest({"plan": JobHandler(handler)}, queues=(QUEUE,), concurrency=1)
        mine.engine.run_worker(request)
        held = mine.engine.submit(NewJob("plan:held", queue=QUEUE))
        wait_until(lambda: handler.runs[held.id] == 1)
        queued = [mine.engine.submit(NewJob("plan:1", queue=QUEUE)) for _ in range(3)]
        _beats(mine, held, 3)  # so that the worker has told of them, too
        server.kill()
        _beats(mine, held, 9)  # it is away for longer than a worker may be silent
        queued.append(mine.engine.submit(NewJob("plan:1", queue=QUEUE)))
        server.start()
        if remembers:  # what it was told is offered to another; what it forgot, the first has to tell again
            others.engine.run_worker(request)
            for job in queued:
                wait_until(lambda job=job: mine.jobs.get(job.id).state.ended)
        handler.can_continue.set()
        for job in (held, *queued):
            wait_until(lambda job=job: mine.jobs.get(job.id).state.ended)
        ended = [mine.jobs.get(job.id) for job in (held, *queued)]
        assert {(job.state, job.fence) for job in ended} == {(JobState.SUCCEEDED, 1)}
        assert handler.runs == {job.id: 1 for job in ended}


def _beats(container: Container, job: Job, count: int) -> None:
    """Waits for so many heartbeats of who runs it."""
    before = container.jobs.get(job.id).beat
    wait_until(lambda: container.jobs.get(job.id).beat >= before + count)


def test_a_namespace_that_is_not_there_is_said_when_a_worker_starts(
    container: Container, tmp_path: Path, address: str
) -> None:
    where = {"temporal_address": address, "temporal_namespace": "nowhere"}
    with Container(_settings(container, tmp_path, **where)) as lost:
        nothing = WorkerRequest({"plan": JobHandler(lambda job: None)}, queues=(QUEUE,))
        with pytest.raises(EngineUnavailable, match="nowhere"):
            lost.engine.run_worker(nothing)
        with pytest.raises(EngineUnavailable, match="nowhere"):
            WorkerParts(lost).ensure_reachable()
    with Container(_settings(container, tmp_path, temporal_address=address)) as found:
        WorkerParts(found).ensure_reachable()


def test_a_worker_that_cannot_reach_temporal_says_where_it_looked(container: Container) -> None:
    with pytest.raises(EngineUnavailable, match=NOBODY):
        container.engine.run_worker(WorkerRequest({"plan": JobHandler(lambda job: None)}, queues=(QUEUE,)))


def test_a_job_is_cancelled_though_temporal_is_away(container: Container) -> None:
    job = container.engine.submit(NewJob("plan:1", queue=QUEUE))
    assert container.engine.cancel(job.id, "enough").state is JobState.CANCELLED


def test_without_its_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("temporalio", *(name for name in sys.modules if name.startswith("temporalio."))):
        monkeypatch.setitem(sys.modules, name, None)
    connection = TemporalConnection(NOBODY, "default", lease_seconds=3)
    try:
        job = submitted(NewJob("plan:1", queue=QUEUE), "job", datetime.now(UTC)).job
        for ask in (lambda: connection.start(job, ""), lambda: connection.cancel(job)):
            with pytest.raises(ConfigurationError, match=r"pip install .*\[temporal\]"):
                ask()
    finally:
        connection.close()


def test_a_claim_by_id_takes_a_queued_job_that_is_due_and_has_no_owner(
    container: Container,
) -> None:
    table, clock = container.job_table, container.clock
    lane = (Lane("project:shop", 1),)
    jobs = [table.submit(NewJob(f"plan:{n}", queue=QUEUE, lanes=lane), now=clock.now()) for n in range(2)]
    first = table.claim_this(jobs[0].id, ME, now=clock.now())
    assert first is not None
    assert (first.owner, first.fence) == (ME, 1)
    assert table.claim_this(first.id, YOU, now=clock.now()) is None
    assert table.claim_this(jobs[1].id, ME, now=clock.now()) is None  # its lane is full
    in_an_hour = clock.now() + timedelta(hours=1)
    table.finish(first.id, first.fence, AttemptOutcome(JobState.QUEUED, retry_at=in_an_hour), now=clock.now())
    assert table.claim_this(first.id, YOU, now=clock.now()) is None
    assert table.claim_this(jobs[1].id, ME, now=clock.now()) is not None
    with pytest.raises(UnknownJob):
        table.claim_this("nobody", ME, now=clock.now())


def test_a_claim_by_id_keeps_the_bound_of_its_kind(container: Container) -> None:
    table, clock = container.job_table, container.clock
    new = NewJob("plan:1", queue=QUEUE, at_most=1)
    first, second = (table.submit(new, now=clock.now()) for _ in range(2))
    running = table.claim_this(first.id, ME, now=clock.now())
    assert running is not None
    assert table.claim_this(second.id, YOU, now=clock.now()) is None
    table.finish(first.id, running.fence, AttemptOutcome(JobState.SUCCEEDED), now=clock.now())
    assert table.claim_this(second.id, YOU, now=clock.now()) is not None


def test_private_jobs_are_not_temporals(container: Container) -> None:
    store = container.jobs
    assert isinstance(store, TemporalJobStore)
    job = store.submit(NewJob("greet"), now=container.clock.now())
    claimed = store.claim(ME, ["greet"], now=container.clock.now())
    assert claimed is not None
    assert claimed.id == job.id
    assert store.reclaim(job.id, 1, 0, error="gone", now=container.clock.now()).state is JobState.QUEUED
