"""Runs a plan: Strategize, then Execute, as one job with one owner.

The job may be killed anywhere and claimed again: each phase is taken up where its records say it stands. A
plan that needs a person's leave is put to *waiting* and its job ends; the answer queues a new job, so nobody
has to stay alive meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.jobs import JobStore
from cleveragents.application.ports.plans import PlanFacts, PlanStore
from cleveragents.application.ports.sandboxes import Sandbox, Sandboxes, SandboxRequest
from cleveragents.application.services.async_worker import AsyncJob
from cleveragents.application.services.plan_checks import CheckGround, ChecksFor
from cleveragents.application.services.sandbox_setup import SandboxSetup
from cleveragents.application.services.tool_execution import CallRequest, ToolExecution
from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.domain.plan import Phase, Plan, PlanState
from cleveragents.domain.strategy import Strategy, StrategyStep
from cleveragents.domain.tool import CallState, ToolCall
from cleveragents.errors import (
    Cancelled,
    CleverAgentsError,
    DatabaseUnreachable,
    NeedsHuman,
    PlanFailed,
    SandboxBusy,
    SandboxMissing,
    StalePlan,
    StoreBusy,
    StoreFull,
)

__all__ = ["ATTEMPTS", "MakeStrategy", "OpenExecution", "PlanRun", "kind_of_plan"]

ATTEMPTS = 3
_PASSING = (StoreBusy, StoreFull, DatabaseUnreachable, SandboxBusy)
_TOLD = 400


class MakeStrategy(Protocol):
    """What Strategize does for a plan: read-only."""

    def __call__(self, plan: Plan) -> Strategy: ...


class OpenExecution(Protocol):
    """The tool calls of a plan's run in its sandbox."""

    def __call__(self, plan: Plan, strategy: Strategy, sandbox: Sandbox, job: AsyncJob) -> ToolExecution: ...


def kind_of_plan(plan_id: str) -> str:
    """The kind of a plan's jobs: its own, so that who runs a plan in the foreground runs no other."""
    return f"plan:{plan_id}"


@dataclass(frozen=True, slots=True)
class PlanRun:
    """The handler of a plan's jobs. Stateless but for its parts: any number may run at once."""

    plans: PlanStore
    jobs: JobStore
    sandboxes: Sandboxes
    make_strategy: MakeStrategy
    open_execution: OpenExecution
    setup: SandboxSetup
    checks: ChecksFor
    clock: Clock
    progress: Callable[[str], None] | None = None

    def __call__(self, job: AsyncJob) -> JsonValue:
        """Takes the plan as far as it goes without a person; returns where it stands then."""
        plan = self.plans.get(str(job.payload["plan_id"]))
        try:
            plan = self._strategize(plan)
            plan = self._execute(plan, job)
        except StalePlan:
            raise  # another worker owns it, or a person decided otherwise: it is not ours to move
        except Cancelled:
            # A worker that shuts down, or lost its lease, stops the run as well; the plan goes on elsewhere.
            reason = self.jobs.get(job.id).cancel_reason
            if reason is not None:
                self._cancelled(plan.id, reason, job)
            raise
        except NeedsHuman as needed:
            plan = self._wait(plan.id, needed)
        except _PASSING as error:
            if job.attempt < ATTEMPTS:
                raise  # the job is tried again, and goes on where this attempt stopped
            plan = self._end(plan.id, PlanState.ERRORED, str(error))
        except CleverAgentsError as error:
            plan = self._end(plan.id, PlanState.ERRORED, str(error))
        except Exception as error:
            self._end(plan.id, PlanState.ERRORED, f"{type(error).__name__}: {error}")
            raise
        return freeze({"plan": plan.id, "phase": plan.phase.value, "state": plan.state.value})

    def _strategize(self, plan: Plan) -> Plan:
        if plan.standing == (Phase.ACTION, PlanState.QUEUED):
            plan = self._move(plan, Phase.STRATEGIZE, PlanState.QUEUED)
        if plan.phase is not Phase.STRATEGIZE:
            return plan
        plan = self._begin(plan)
        strategy = self.make_strategy(plan)
        plan = self._move(plan, Phase.STRATEGIZE, PlanState.COMPLETE, PlanFacts(strategy=strategy.to_json()))
        return self._move(plan, Phase.EXECUTE, PlanState.QUEUED)

    def _execute(self, plan: Plan, job: AsyncJob) -> Plan:
        plan = self._begin(plan)
        strategy = Strategy.from_json(plan.strategy)
        started = self.clock.monotonic()
        sandbox = self._sandbox(plan, strategy)
        execution = self.open_execution(plan, strategy, sandbox, job)
        execution.settle()
        self.setup.prepare(strategy.setup, sandbox, execution)
        for number, step in enumerate(strategy.steps, start=1):
            left = strategy.limit_seconds - (self.clock.monotonic() - started)
            if left <= 0:
                raise PlanFailed(plan.id, f"it took more than {strategy.limit_seconds:g} s, its budget")
            if number > strategy.limit_steps:
                raise PlanFailed(plan.id, f"it has more than {strategy.limit_steps} steps, its budget")
            self._say(f"step {number} of {len(strategy.steps)}: {step.name}")
            request = CallRequest(
                str(number), step.tool, step.arguments, granted=step.granted, timeout_seconds=left
            )
            _ensure_done(plan.id, step, execution.call(request))
        ground = CheckGround(
            plan_id=plan.id,
            resource=Path(plan.resource),
            sandbox=sandbox,
            states=execution.history.states(plan.id),
            stop=job.token,
            network=execution.network,
            markers=execution.markers,
            on_output=execution.on_output,
        )
        self.checks(ground.resource).run(strategy.checks, ground, progress=self.progress)
        return self._move(plan, Phase.EXECUTE, PlanState.COMPLETE)

    def _sandbox(self, plan: Plan, strategy: Strategy) -> Sandbox:
        try:
            return self.sandboxes.open(plan.id)
        except SandboxMissing:
            request = SandboxRequest(
                plan.id,
                Path(plan.resource),
                from_head=bool(plan.request.get("from_head")),
                include=strategy.include,
            )
            return self.sandboxes.create(request, progress=self.progress)

    def _begin(self, plan: Plan) -> Plan:
        """Takes the phase; from one that died in it, too: its version is worth nothing from now on."""
        return self._move(plan, plan.phase, PlanState.PROCESSING, PlanFacts(strategy=plan.strategy))

    def _cancelled(self, plan_id: str, reason: str, job: AsyncJob) -> None:
        plan = self.plans.get(plan_id)
        if plan.strategy is not None:
            with suppress(SandboxMissing):
                strategy = Strategy.from_json(plan.strategy)
                self.open_execution(plan, strategy, self.sandboxes.open(plan.id), job).abandon(reason)
        self._end(plan_id, PlanState.CANCELLED, f"cancelled: {reason}")

    def _wait(self, plan_id: str, needed: NeedsHuman) -> Plan:
        plan = self.plans.get(plan_id)
        waited: JsonValue = {"what": needed.what, "remedy": needed.remedy}
        return self._move(plan, plan.phase, PlanState.WAITING, PlanFacts(waiting_for=waited))

    def _end(self, plan_id: str, state: PlanState, error: str) -> Plan:
        plan = self.plans.get(plan_id)
        if plan.state is state:
            return plan
        return self._move(plan, plan.phase, state, PlanFacts(error=error))

    def _move(self, plan: Plan, phase: Phase, state: PlanState, facts: PlanFacts | None = None) -> Plan:
        return self.plans.move(plan, (phase, state), facts, now=self.clock.now())

    def _say(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what)


def _ensure_done(plan_id: str, step: StrategyStep, call: ToolCall) -> None:
    if step.continue_on_failure:
        return
    if call.state is CallState.FAILED:
        raise PlanFailed(plan_id, f"step {step.name!r}: {call.error}")
    code = call.result.get("exit_code", 0) if isinstance(call.result, Mapping) else 0
    if code not in step.expect_exit:
        raise PlanFailed(plan_id, f"step {step.name!r} ended with exit code {code}{_tail(call)}")


def _tail(call: ToolCall) -> str:
    output = call.result.get("output") if isinstance(call.result, Mapping) else None
    words = " ".join(str(output or "").split())
    return f": {words[-_TOLD:]}" if words else ""
