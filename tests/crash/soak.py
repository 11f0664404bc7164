"""`python -m tests.crash.soak [SECONDS] [SEED]`: endless jobs, with a worker killed every second or so.

Three worker processes run graphs on one SQLite database while a random one is repeatedly killed with SIGKILL
and replaced. At the end the counts must be exact: no job lost, none failed, every change recorded once, an
audit log that verifies. `plans` as the first argument soaks plans instead: `plan_soak.py`.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from threading import Event

import msgspec

from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import JobState, NewJob
from tests.crash.plan_soak import soak_plans
from tests.crash.programs.migrating_worker import MIGRATE, MIGRATED

PROGRAM = "tests.crash.programs.migrating_worker"
WORKERS = 3
OUTSTANDING = 24
ATTEMPTS = 1000  # an often unlucky job is still not lost
DRAIN_SECONDS = 120.0


class Worker:
    """A process that runs migrations until it is killed or asked to finish."""

    def __init__(self, name: str, settings: Settings, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM], stdin=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self._input.write(f"{name}\n{msgspec.json.encode(settings).decode()}\n")
        self._input.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DRAIN_SECONDS)

    def finish(self) -> int:
        """Let it complete its work; return its exit code."""
        with suppress(BrokenPipeError):
            self._input.close()
        return self._process.wait(DRAIN_SECONDS)


def soak(seconds: float, seed: int) -> list[str]:
    """Run, and return the problems."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="soak-") as home, ExitStack() as cleanup:
        container = cleanup.enter_context(Container(demo_settings(Path(home))))
        names = count(1)

        def start() -> Worker:
            worker = Worker(f"worker-{next(names)}", container.settings, Path(home) / "workers.log")
            cleanup.callback(worker.finish)
            return worker

        workers = [start() for _ in range(WORKERS)]
        submitted: list[str] = []
        kills = 0
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            _top_up(container, submitted)
            Event().wait(dice.uniform(0.2, 2.0))
            running = container.jobs.list(states=[JobState.RUNNING])
            owners = {job.owner.pid for job in running if job.owner is not None}
            busy = [n for n, worker in enumerate(workers) if worker.pid in owners]
            if busy:
                victim = dice.choice(busy)
                workers[victim].kill()
                workers[victim] = start()
                kills += 1
        _wait_for_the_end(container, submitted)
        exits = [worker.finish() for worker in workers]
        _say(f"{len(submitted)} jobs, {kills} workers killed, exit codes of the last ones {exits}")
        return [*_wrong_jobs(container, submitted), *_wrong_log(container)]


def _top_up(container: Container, submitted: list[str]) -> None:
    waiting = container.jobs.list(states=[JobState.QUEUED, JobState.RUNNING], limit=OUTSTANDING)
    for _ in range(OUTSTANDING - len(waiting)):
        new = NewJob(MIGRATE, max_attempts=ATTEMPTS)
        submitted.append(container.jobs.submit(new, now=container.clock.now()).id)


def _wait_for_the_end(container: Container, submitted: list[str]) -> None:
    give_up = time.monotonic() + DRAIN_SECONDS
    while container.jobs.list(states=[JobState.QUEUED, JobState.RUNNING], limit=1):
        if time.monotonic() > give_up:
            return
        Event().wait(0.1)


def _wrong_jobs(container: Container, submitted: list[str]) -> list[str]:
    wrong = []
    states: Counter[str] = Counter()
    attempts = 0
    for job_id in submitted:
        job = container.jobs.get(job_id)
        states[job.state.value] += 1
        attempts += job.attempt
        if job.state is not JobState.SUCCEEDED:
            wrong.append(f"job {job_id} is {job.state.value}: {job.error}")
        changes = [
            change.entry.path
            for changeset in container.changesets.of_plan(job_id)
            for change in container.changesets.entries(changeset.id)
        ]
        if changes != list(MIGRATED):
            wrong.append(f"job {job_id} recorded {changes}")
    _say(f"{dict(states)}, {attempts} attempts, {attempts - len(submitted)} of them after a kill")
    return wrong


def _wrong_log(container: Container) -> list[str]:
    container.audit.sequence_pending()
    report = container.audit.verify()
    _say(f"audit log: {report.rows} events, {len(report.findings)} findings")
    return [str(finding) for finding in report.findings]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    plans = arguments[:1] == ["plans"]
    given = arguments[1:] if plans else arguments
    seconds = float(given[0]) if given else 600.0 if plans else 60.0
    problems = (soak_plans if plans else soak)(seconds, int(given[1]) if given[1:] else 1)
    for problem in problems:
        _say(f"WRONG: {problem}")
    _say("nothing lost" if not problems else f"{len(problems)} things went wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
