"""A bench for plans: a small repository, the real parts, and jobs that run when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from cleveragents.app.container import Container
from cleveragents.app.plan_parts import PlanParts
from cleveragents.config.settings import Settings
from cleveragents.core.actions.model import Check
from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.tool import ToolCall
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker, CancellationToken
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.plans.checks import FindsOwnCheckout, PlanChecks
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, StrategyStep
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.run import PlanRun, kind_of_plan
from cleveragents.sandboxes.git_sandbox import Sandbox
from tests.apply_bench import git
from tests.ready_database import ready_database
from tests.ready_repository import made_once

__all__ = [
    "FILES",
    "BenchParts",
    "PlanBench",
    "check",
    "command",
    "edit",
    "new_repository",
    "plan_bench",
    "step",
    "write",
]

FILES: Mapping[str, str] = {
    "a.txt": "one\ntwo\nthree\nfour\nfive\nsix\nseven\n",
    "b.txt": "alpha\n",
    "folder/c.txt": "gamma\n",
    ".gitignore": "*.log\n/kept/\n",
}


def step(
    tool: str, *, name: str = "", more: Mapping[str, Any] | None = None, **arguments: Any
) -> StrategyStep:
    """Return a step; `more` are further fields of it."""
    return StrategyStep(name or tool, tool, arguments, **(more or {}))


def write(path: str, content: str) -> StrategyStep:
    return step("write", path=path, content=content)


def edit(path: str, old: str, new: str) -> StrategyStep:
    return step("edit", path=path, old=old, new=new)


def command(script: str, **more: Any) -> StrategyStep:
    return step("command", script=script, more=more)


def check(text: str, *, required: bool = True, timeout_seconds: float = 60.0) -> Check:
    return Check(text, text, required, timeout_seconds)


def new_repository(root: Path, files: Mapping[str, str] = FILES) -> Path:
    """Return a repository with one commit of these files."""

    def make(place: Path) -> None:
        git(place, "init", "-q", "-b", "main")
        for path, content in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(content)
        git(place, "add", "-A")
        git(place, "commit", "-qm", "first")

    key = ("new_repository", *files.items())
    made_once(root, key, make, lambda: git(root, "update-index", "-q", "--refresh"))
    return root


class BenchParts(PlanParts):
    """The real parts, but the check for files that a check would import only runs in tests about it."""

    own_checkout: FindsOwnCheckout = staticmethod(lambda *asked: None)

    def checks(self, resource: Path) -> PlanChecks:
        return changed(super().checks(resource), own_checkout=self.own_checkout)


class PlanBench:
    """The parts of one process, and its user's repository."""

    def __init__(self, home: Path, *, isolation: str = "auto", faults: FaultPoints | None = None) -> None:
        facts = msgspec.to_builtins(demo_settings(home / "state"))
        self.settings = msgspec.convert({**facts, "sandbox": {"isolation": isolation}}, Settings)
        self.repository = home / "repository"
        ready_database(home / "state" / "state.db")
        if not self.repository.exists():
            new_repository(self.repository)
        self.container = Container(self.settings, faults=faults)
        self.parts = BenchParts(self.container)
        self.strategies: dict[str, Strategy] = {}
        self.said: list[str] = []
        self.adapt: Callable[[PlanRun], PlanRun] = lambda run: run

    def plan(self, *steps: StrategyStep, checks: Sequence[Check] = (), **facts: Any) -> Plan:
        """Return a plan with a queued job for these steps."""
        strategy = Strategy(steps, tuple(checks), **{"profile": "full-auto", **facts})
        new = PlanDraft("a goal", "tests/steps", str(self.repository))
        plan = self.parts.lifecycle.create(new)
        self.strategies[plan.id] = strategy
        return plan

    def handler(self) -> PlanRun:
        run = self.parts.run(progress=self.said.append)
        return self.adapt(replace(run, make_strategy=lambda plan: self.strategies[plan.id]))

    def work(self, plan: Plan, **options: Any) -> Plan:
        """Run the plan's job once, in this thread; return the plan."""
        worker = AsyncWorker(
            self.container.jobs,
            {kind_of_plan(plan.id): JobHandler(self.handler())},
            self.container.clock,
            self.container.processes,
            WorkerOptions(name="bench", lease_seconds=600, **{"cancel_grace_seconds": 2.0, **options}),
            faults=self.container.faults,
            spawn=lambda name, work: work(),
        )
        worker._claim_ready()
        return self.now(plan)

    def owned_job(self, plan: Plan, token: CancellationToken | None = None) -> AsyncJob:
        """Return a claimed job: the plan's own, if it is queued, else a new one."""
        jobs, now = self.container.jobs, self.container.clock.now()
        owner = WorkerIdentity("bench", "nowhere", 1, 1)
        job = jobs.claim(owner, [kind_of_plan(plan.id)], now=now)
        if job is None:
            jobs.submit(NewJob("bench", {"plan_id": plan.id}), now=now)
            job = jobs.claim(owner, ["bench"], now=now)
        assert job is not None
        return AsyncJob(
            job.id, job.kind, job.payload, job.attempt, job.fence, token or CancellationToken(), {}
        )

    def give_back(self, job: AsyncJob) -> None:
        """Give the job back as a worker does that could not end it: another may claim it."""
        outcome = AttemptOutcome(JobState.QUEUED)
        self.container.jobs.finish(job.id, job.fence, outcome, now=self.container.clock.now())

    def done(self, *steps: StrategyStep, **facts: Any) -> Plan:
        """Return a plan that completed these steps."""
        return self.work(self.plan(*steps, **facts))

    def now(self, plan: Plan) -> Plan:
        return self.parts.plans.get(plan.id)

    def resume(self, plan: Plan) -> Plan:
        return self.work(self.parts.lifecycle.resume(self.now(plan)))

    def answer(self, plan: Plan, granted: bool) -> Plan:
        return self.work(self.parts.lifecycle.answer(self.now(plan), granted))

    def cancel(self, plan: Plan, reason: str = "not wanted") -> Plan:
        return self.parts.lifecycle.cancel(self.now(plan), reason)

    def apply(self, plan: Plan) -> Plan:
        return self.parts.apply.apply(self.now(plan), CancellationToken())[0]

    def sandbox(self, plan: Plan) -> Sandbox:
        return self.parts.sandboxes.open(plan.id)

    def calls(self, plan: Plan) -> Sequence[ToolCall]:
        return self.parts.history.calls(plan.id)

    def states_of(self, plan: Plan) -> list[str]:
        """Return the states of its calls, in order."""
        return [call.state.value for call in self.calls(plan)]

    def diff(self, plan: Plan, *options: str) -> str:
        return self.parts.result.diff(self.now(plan), self.sandbox(plan), options=options).decode()

    def text(self, path: str) -> str:
        """Return the text of one of the user's files."""
        return (self.repository / path).read_text()

    def ensure_consistent(self, plan: Plan) -> None:
        """Check that the sandbox matches the records, and the diff matches git's."""
        sandbox = self.sandbox(plan)
        found = sandbox.scan()
        assert self.parts.history.differences(plan.id) == found
        tree = sandbox.tree({path: difference.after for path, difference in found.items()})
        base = self.parts.history.base(plan.id, sandbox)
        assert self.diff(plan) == sandbox.diff(tree, base=base).decode()


@contextmanager
def plan_bench(home: Path, **facts: Any) -> Iterator[PlanBench]:
    bench = PlanBench(home, **facts)
    with bench.container:
        yield bench
