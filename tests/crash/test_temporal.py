"""Plans that Temporal gives to workers: killed, stopped and cancelled, with a real server and processes."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace
from temporalio.client import Client

from cleveragents.api.plans.changes import found_changes
from cleveragents.api.plans.create import PlanSpec, requested_plan
from cleveragents.api.plans.details import fields_of
from cleveragents.app.container import Container
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.config.loader import load_configuration
from cleveragents.contrib.temporal.names import workflow_id
from cleveragents.core.json_value import freeze
from cleveragents.jobs.engine import WorkerRequest
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.plans.jobs.names import SHARED_QUEUE
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.output_recorder import OutputRecorder
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from tests.cli_bench import paint_shop
from tests.conditions import wait_until
from tests.fork_server import Forked
from tests.ready_database import ready_database
from tests.temporal_bench import settle_sdk, temporal_program, temporal_server

pytestmark = pytest.mark.skipif(temporal_program() is None, reason="there is no Temporal server here")

settle_sdk()

_SECONDS = 240.0
_LEASE = 4.0
_BEGUN = ".git/begun"
# Independent of the time until it is seen running: the first runs until it is ended, the second ends at once.
_FIRST_STAYS = f"test -e {_BEGUN} || {{ touch {_BEGUN}; exec sleep 1000; }}; echo done > done.txt"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with temporal_server() as found:
        yield found


class World:
    """A repository, a state directory, and workers in their own processes."""

    def __init__(self, place: Path, address: str) -> None:
        self.repository = paint_shop(place / "shop")
        state = place / "state"
        ready_database(state / "state.db")
        self._environment = {
            "HOME": str(place),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "CLEVERAGENTS_STATE_DIRECTORY": str(state),
            "CLEVERAGENTS_JOBS_ENGINE": "temporal",
            "CLEVERAGENTS_JOBS_TEMPORAL_ADDRESS": address,
            "CLEVERAGENTS_WORKER_LEASE_SECONDS": str(_LEASE),
            "CLEVERAGENTS_WORKER_HEARTBEAT_SECONDS": "0.5",
        }
        self.queue = f"{SHARED_QUEUE}-{place.name}"  # unique, on a server that all tests share
        self._log = place / "workers.log"
        self._children: list[subprocess.Popen[bytes]] = []
        self.container = Container(load_configuration(self._environment, place, ()).settings)
        self.parts = self.container.plan_parts

    def work(self) -> subprocess.Popen[bytes]:
        """Start another worker."""
        name = f"worker-{len(self._children) + 1}"
        command = [sys.executable, "-m", "cleveragents", "--set", "log.level=info", "worker"]
        with self._log.open("ab") as log:
            child = Forked(
                [*command, "--name", name, "--queue", self.queue, "--concurrency", "2"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._children.append(child)
        return child

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def plan(self, script: str, **request: str) -> Plan:
        """Create a plan of the shared queue that runs this script in a shell."""
        words = ("sh", "-c", script)
        wanted = PlanSpec("builtin/command", words, (), (), None, False, (), None, False)
        new = requested_plan(self.parts, wanted, self.repository)
        request = freeze({**new.request, "queue": self.queue, **request})
        return self.parts.lifecycle.create(replace(new, request=request))

    def at(self, plan: Plan) -> Plan:
        return self.parts.plans.get(plan.id)

    def job(self, plan: Plan) -> Job:
        job_id = self.at(plan).job_id
        assert job_id is not None
        return self.container.jobs.get(job_id)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        wait_until(holds, what=lambda: f"{what}\n{self.said[-3000:]}", seconds=_SECONDS)

    def begun(self, plan: Plan) -> Job:
        """Return its job once a worker runs its command for the first time."""
        mark = self.parts.sandboxes.directory / plan.id / "tree" / _BEGUN
        self.until(mark.exists, "the plan's command is begun")
        return self.job(plan)

    def activities(self, plan: Plan) -> list[str]:
        """Return the activities that Temporal ran for it."""

        async def asked(client: Client) -> list[str]:
            history = await client.get_workflow_handle(workflow_id(self.job(plan))).fetch_history()
            begun = [event.activity_task_scheduled_event_attributes for event in history.events]
            return [one.activity_type.name for one in begun if one.activity_type.name]

        assert self.container.temporal is not None
        return self.container.temporal.run(asked)

    def goals(self, plan: Plan) -> list[object]:
        """Return the goals of the workflows that a search for the plan finds."""

        async def asked(client: Client) -> list[object]:
            found = client.list_workflows(f'WorkflowId STARTS_WITH "plan-{plan.id}"')
            return [(await one.memo())["goal"] async for one in found]

        assert self.container.temporal is not None
        return self.container.temporal.run(asked)

    def put_to_sleep(self, worker: subprocess.Popen[bytes]) -> None:
        """Stop the worker while it holds neither SQLite's lock nor the audit log's: otherwise others would
        wait for it, unlike on a database that machines share.
        """

        def sleeps() -> bool:
            worker.send_signal(signal.SIGSTOP)
            if self._is_free():
                return True
            worker.send_signal(signal.SIGCONT)
            return False

        self.until(sleeps, "the worker holds no lock")

    def _is_free(self) -> bool:
        state = self.container.state_directory
        try:
            with closing(sqlite3.connect(state / "state.db", timeout=0)) as database:
                database.execute("BEGIN IMMEDIATE")
            with (state / "audit.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (sqlite3.OperationalError, BlockingIOError):
            return False
        return True

    def command_of(self, text: str) -> list[int]:
        """Return the processes whose command line contains it."""
        alive = psutil.process_iter(["pid", "cmdline"])
        return [one.info["pid"] for one in alive if text in " ".join(one.info["cmdline"] or ())]

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()
        self.container.close()


@pytest.fixture
def world(tmp_path: Path, address: str) -> Iterator[World]:
    world = World(tmp_path, address)
    try:
        yield world
    finally:
        world.close()


def test_a_plan_of_a_killed_worker_continues_on_another(world: World) -> None:
    by_pid = {child.pid: child for child in (world.work(), world.work())}
    plan = world.plan(_FIRST_STAYS, apply="auto")
    owner = world.begun(plan).owner
    assert owner is not None
    by_pid[owner.pid].kill()
    world.until(lambda: world.job(plan).state.ended, "its job has ended")
    assert world.at(plan).phase_state == (Phase.APPLY, PlanState.APPLIED)
    assert (world.repository / "done.txt").read_text() == "done\n"
    ended = world.job(plan)
    # A claim for each of three phases, and one for every lost attempt: two phases cost none.
    assert ended.state is JobState.SUCCEEDED
    assert ended.attempt > 1
    assert ended.fence == ended.attempt + 2
    done = list(dict.fromkeys(world.activities(plan)))
    assert done == ["cleveragents-strategize", "cleveragents-execute", "cleveragents-apply"]
    world.until(lambda: world.goals(plan) == [plan.goal], "it is found in Temporal")


def test_a_worker_that_lost_its_lease_is_refused(world: World) -> None:
    by_pid = {child.pid: child for child in (world.work(), world.work())}
    plan = world.plan(_FIRST_STAYS)
    first = world.begun(plan)
    assert first.owner is not None
    zombie = by_pid[first.owner.pid]
    world.put_to_sleep(zombie)
    world.until(lambda: world.job(plan).fence > first.fence, "another worker has it")
    zombie.send_signal(signal.SIGCONT)
    done = (Phase.EXECUTE, PlanState.COMPLETE)
    world.until(lambda: world.at(plan).phase_state == done, "the plan is done")
    world.until(lambda: "job.lease_lost" in world.said, "the one that slept knows")
    changes = [(row["path"], row["change"]) for row in found_changes(world.parts, world.at(plan)).rows]
    assert changes == [("done.txt", "created")]


def test_a_cancel_reaches_the_running_code(world: World) -> None:
    world.work()
    plan = world.plan("sleep 613.771")
    world.until(lambda: bool(world.command_of("613.771")), "the command runs")
    world.parts.lifecycle.cancel(world.at(plan), "enough")
    world.until(lambda: world.at(plan).state is PlanState.CANCELLED, "the plan is cancelled")
    assert world.command_of("613.771") == []
    assert "enough" in str(fields_of(world.at(plan))["error"])


@pytest.mark.parametrize("by", ["a user", "Temporal"])
def test_a_cancel_between_two_phases_cancels_the_plan_at_once(world: World, by: str) -> None:
    """No worker runs it then: the first has checked for a cancel for the last time and has not yet passed the
    plan on, or it has, and takes no more.
    """
    container = world.container
    recorder = OutputRecorder(SqlPlanOutput(container.database), container.clock)
    handler = WorkerParts(container).handlers(recorder)["plan"]

    def run(job: AsyncJob) -> object:
        answer = handler(job)
        if by == "a user":
            world.parts.lifecycle.cancel(world.parts.plans.get(str(job.payload["plan_id"])), "enough")
        else:
            worker.stop_claiming()
        return answer

    request = WorkerRequest({"plan": JobHandler(run)}, queues=(world.queue,))
    worker = container.engine.run_worker(request)
    plan = world.plan("touch done.txt")
    if by == "Temporal":
        handed_on = (1, JobState.QUEUED)
        world.until(lambda: (world.job(plan).fence, world.job(plan).state) == handed_on, "one phase is done")
        workflow = workflow_id(world.job(plan))
        container.temporal.run(lambda client: client.get_workflow_handle(workflow).cancel())
    world.until(lambda: world.job(plan).state.ended, "its job has ended")
    world.until(lambda: world.at(plan).state is PlanState.CANCELLED, "the plan is cancelled")
    assert world.at(plan).phase is Phase.EXECUTE
