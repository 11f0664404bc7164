"""`agents worker` as its user sees it: it says what it does, and stops as it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.conditions import wait_until
from tests.fork_server import Forked, ran
from tests.plan_bench import new_repository
from tests.ready_database import ready_database
from tests.unisolated import ALLOW_UNISOLATED
from tests.unit.jobs.test_worker_parts import plan_of

pytestmark = pytest.mark.usefixtures("commands_are_forked")
SECONDS = 60.0


class Home:
    """A state directory, a repository, and workers in processes of their own."""

    def __init__(self, root: Path, **more: str) -> None:
        self.root = root
        ready_database(root / "state" / "state.db")
        new_repository(root / "repository")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CLEVERAGENTS_")},
            "CLEVERAGENTS_STATE_DIRECTORY": str(root / "state"),
            "CLEVERAGENTS_SANDBOX_ISOLATION": "off",
            **ALLOW_UNISOLATED,
            "CLEVERAGENTS_WORKER_POLL_SECONDS": "0.05",
            "CLEVERAGENTS_WORKER_CANCEL_GRACE_SECONDS": "1",
            **more,
        }
        self.container = Container(load_configuration(self.environment, root, []).settings)
        self.started: list[subprocess.Popen[str]] = []

    def plan(self, script: str) -> Plan:
        return plan_of(self.container, self.root, script)

    def now(self, plan: Plan) -> Plan:
        return self.container.plan_parts.plans.get(plan.id)

    def worker(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cleveragents", "worker", "--name", "one", *words]
        process = Forked(command, cwd=self.root, env=self.environment, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def close(self) -> None:
        self.container.close()
        for process in self.started:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()


def ended(process: subprocess.Popen[str]) -> str:
    """What it said, once it has ended."""
    stop = Timer(SECONDS, process.kill)
    stop.start()
    try:
        return process.communicate()[1]
    finally:
        stop.cancel()


def test_a_worker_runs_queued_jobs_and_reports_them(home: Home) -> None:
    plans = [home.plan(f"echo {number} > {number}.txt") for number in range(2)]
    process = home.worker("--until-idle", "--concurrency", "2")
    said = ended(process)
    assert process.returncode == 0
    mine = f"'plans' and 'plans@{home.container.home}'"
    assert f"one takes jobs from {mine}; max parallel: 2" in said
    assert "worker one has ended after 2 jobs" in said
    assert {home.now(plan).phase_state for plan in plans} == {(Phase.APPLY, PlanState.APPLIED)}


def test_a_stop_signal_lets_the_job_end(home: Home) -> None:
    flag = home.root / "go"
    running = home.plan(f"while [ ! -e {flag} ]; do sleep 0.05; done; echo x > x.txt")
    process = home.worker("--concurrency", "1")
    wait_until(lambda: home.now(running).phase is Phase.EXECUTE)
    waiting = home.plan("true")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    told = "".join(process.stderr.readline() for _ in range(4))  # two lines warn that nothing is isolated
    assert "taking no more jobs; 1 job may continue" in told
    flag.touch()
    ended(process)
    assert process.returncode == 130
    assert home.now(running).phase_state == (Phase.APPLY, PlanState.APPLIED)
    assert home.container.jobs.get(str(waiting.job_id)).state is JobState.QUEUED


def test_a_second_signal_returns_the_job_to_the_queue(home: Home) -> None:
    flag = home.root / "go"
    plan = home.plan(f"while [ ! -e {flag} ]; do sleep 0.05; done; echo x > x.txt")
    process = home.worker()
    wait_until(lambda: home.now(plan).phase is Phase.EXECUTE)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "taking no more jobs" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert "return to the queue" in ended(process)
    assert process.returncode == 0
    job = home.container.jobs.get(str(plan.job_id))
    assert (job.state, job.owner) == (JobState.QUEUED, None)
    flag.touch()
    said = ended(home.worker("--until-idle", "--queue", "others", "--queue", "plans"))
    assert "takes jobs from 'others' and 'plans';" in said
    assert "has ended after 1 job" in said
    assert home.now(plan).phase_state == (Phase.APPLY, PlanState.APPLIED)


def test_the_next_worker_takes_over_from_a_killed_one(home: Home) -> None:
    flag = home.root / "go"
    plan = home.plan(f"while [ ! -e {flag} ]; do sleep 0.05; done; echo x > x.txt")
    process = home.worker()
    wait_until(lambda: home.now(plan).phase is Phase.EXECUTE)
    process.kill()
    process.wait()
    flag.touch()
    ended(home.worker("--until-idle"))
    assert home.now(plan).phase_state == (Phase.APPLY, PlanState.APPLIED)
    assert home.container.jobs.get(str(plan.job_id)).attempt == 2


def test_a_command_neither_runs_a_plan_of_the_workers_nor_waits_for_it(home: Home) -> None:
    plan = home.plan("true")
    command = [sys.executable, "-m", "cleveragents", "plan", "resume", plan.id]
    code, _, said = ran(command, cwd=home.root, env=home.environment, timeout=SECONDS)
    assert (code, home.now(plan)) == (0, plan)
    assert f"follow it with `agents plan watch {plan.id}`" in said
