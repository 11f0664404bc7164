"""Runs a plan: Strategize, then Execute, as one job with one owner.

The job may be killed anywhere and claimed again: each phase continues from its records. A plan that needs
approval moves to *waiting* and its job ends. The answer queues a new job, so no process has to stay alive
while the plan waits. A plan that reached a usage limit moves to *waiting*, too; its job is queued until the
limit resets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from cleveragents.access.model.project import remote_of
from cleveragents.actors.model.actor import report_in
from cleveragents.changes.model.merge_conflict import REBASE, RESOLVE
from cleveragents.core.actions.model import CheckRun, Invariant, broken_by
from cleveragents.core.errors import (
    ActorAsks,
    BudgetExhausted,
    Cancelled,
    CleverAgentsError,
    DatabaseUnreachable,
    NeedsHuman,
    PlanFailed,
    RemoteUnreachable,
    RethinkNeeded,
    SandboxBusy,
    SandboxMissing,
    StaleFence,
    StalePlan,
    StoreBusy,
    StoreFull,
    UsageLimited,
    remedies_record,
)
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.policy import Isolation
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.jobs.model.job import HandedOn
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.checks import CheckEnvironment, ChecksFor, SandboxSetup
from cleveragents.plans.history import REREAD
from cleveragents.plans.jobs.names import ATTEMPTS, kind_of_plan, queue_of, should_run
from cleveragents.plans.model.correction import RETRY, ROLLBACK
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy, skipped_text
from cleveragents.plans.model.sub_plan import ended_by, is_at_rest
from cleveragents.plans.model.usage_wait import (
    UsageWaits,
    is_parked,
    parked_until,
    usage_limit_request,
    wait_seconds,
)
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.sandboxes.ports import Sandboxes, SandboxRequest, StartTree

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.jobs.ports import JobStore
    from cleveragents.jobs.worker.async_worker import AsyncJob
    from cleveragents.plans.actors.actor_stage import ActorPhase
    from cleveragents.plans.execute import ExecutePhase
    from cleveragents.plans.lifecycle import PlanLifecycle
    from cleveragents.plans.output_recorder import PlanWatch, WatchOf
    from cleveragents.plans.sandbox_edits import SandboxEdits
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.plans.strategize import StrategizePhase
    from cleveragents.plans.sub_plans.loop import SubPlans
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "ATTEMPTS",
    "MakeStrategy",
    "OpenExecution",
    "OwnedPlan",
    "PlanRun",
    "Rethink",
    "TimeLeft",
    "kind_of_plan",
    "should_run",
    "start_of",
    "wait_reason",
]

_BY_A_PERSON = (ROLLBACK, REREAD, RETRY, REBASE, RESOLVE)
"""Calls that a person makes, and that change no result of their own."""


_LONGEST_ANSWER = 64 * 1024
_PASSING = (StoreBusy, StoreFull, DatabaseUnreachable, SandboxBusy, RemoteUnreachable)


class MakeStrategy(Protocol):
    """Returns the strategy of a plan. Reads only."""

    def __call__(self, plan: Plan) -> Strategy: ...


class TimeLeft(Protocol):
    """Returns the seconds that remain for a plan after its earlier runs."""

    def __call__(self, plan: Plan, strategy: Strategy) -> float: ...


class Rethink(Protocol):
    """Moves a plan back to Strategize if its result shows wrong decisions; returns None and changes nothing
    if that is not allowed.
    """

    def __call__(self, plan: Plan, findings: str, execution: ToolExecution, fence: Fence) -> Plan | None: ...


class OpenExecution(Protocol):
    """Opens the tool calls of a plan's run in its sandbox."""

    def __call__(self, plan: Plan, strategy: Strategy, sandbox: Sandbox, job: AsyncJob) -> ToolExecution: ...


@dataclass(frozen=True, slots=True)
class PlanRun:
    """The handler of plan jobs. Stateless: any number may run at the same time."""

    plans: SqlPlanStore
    jobs: JobStore
    sandboxes: Sandboxes
    make_strategy: MakeStrategy
    open_execution: OpenExecution
    setup: SandboxSetup
    sandbox_edits: SandboxEdits
    checks: ChecksFor
    strategize_phase: Callable[[PlanWatch], StrategizePhase]
    execute_phase: Callable[[PlanWatch], ExecutePhase]
    sub_plans: SubPlans
    think_again: Rethink
    lifecycle: PlanLifecycle
    time_left: TimeLeft
    clock: Clock
    watch: WatchOf
    record_error: Callable[[Exception, str], str]
    directory_of: Callable[[Plan], Path] = lambda plan: Path(plan.resource)
    one_phase: bool = False
    usage_limit_seconds: float = 0.0
    """How long a plan waits for the reset of a usage limit; 0: it fails."""
    faults: FaultPoints = field(default_factory=NoFaults)

    def __call__(self, job: AsyncJob) -> JsonValue | HandedOn:
        """Run the plan until it ends or needs a person; with `one_phase`, only until the current phase ends.

        Return the phase and state of the plan. If the plan waits for the reset of a usage limit, its job is
        queued until the reset.
        """
        plan = self.plans.get(str(job.payload["plan_id"]))
        plan = self.lifecycle.queueing.taken_up_by(job.id, plan)
        if plan.job_id != job.id or not should_run(plan):  # guard: not another job's plan, nor a finished one
            self._rests(plan.id)
            return _told(plan)
        until = parked_until(plan)
        if until is not None and until > self.clock.now():  # guard: its worker died before it handed it on
            return HandedOn(until)
        held = OwnedPlan(self.plans, self.clock, plan, Fence(job.id, job.fence))
        try:
            self._run(held, job)
            self._heed_cancel(held, job)
        except (StaleFence, StalePlan):
            # guard: the job may have been ended because it stopped too slowly, and no other process looks
            self.lifecycle.reconciled(self.plans.get(plan.id))
            raise
        finally:
            self._rests(plan.id)
        until = parked_until(held.plan)
        return _told(held.plan, held.left) if until is None else HandedOn(until)

    def _rests(self, plan_id: str) -> None:
        """Wake the parent of a plan that came to rest, and cancel the sub-plans of a cancelled plan. Runs at
        the end of every attempt, so that it also makes up for an earlier attempt that was killed before this
        step.
        """
        plan = self.plans.get(plan_id)
        if plan.state is PlanState.CANCELLED:
            self.lifecycle.cancel_children(plan, (plan.error or "").removeprefix("cancelled: "))
        self.lifecycle.wake(plan)

    def _run(self, held: OwnedPlan, job: AsyncJob) -> None:
        try:
            self._ensure_wanted(held)
            self._wake(held)
            self._go_on(held, job)
        except (StalePlan, StaleFence):
            raise  # another worker owns the plan, or a person decided otherwise
        except Cancelled:
            # A worker that shuts down or lost its lease also stops the run; the plan continues elsewhere.
            self._heed_cancel(held, job)
            raise
        except (NeedsHuman, BudgetExhausted) as needed:
            held.wait(wait_reason(needed, held.plan.root))
        except UsageLimited as limited:
            self._park(held, limited)
        except _PASSING as error:
            if job.attempt < ATTEMPTS:
                raise  # the job is retried and continues from here
            held.end(PlanState.ERRORED, str(error))
        except PlanFailed as error:
            held.end(PlanState.ERRORED, error.problem)
        except CleverAgentsError as error:
            held.end(PlanState.ERRORED, str(error))
        except Exception as error:
            details = self.record_error(error, f"plan: {held.plan.id}")
            problem = f"internal error ({type(error).__name__}: {error}); the details are in {details}"
            held.end(PlanState.ERRORED, problem)
            raise

    def _park(self, held: OwnedPlan, limited: UsageLimited) -> None:
        """Let the plan wait for the reset of the usage limit; fail the plan if the reset is too far away."""
        plan, most = held.plan, self.usage_limit_seconds
        wait = wait_seconds(limited.retry_after_seconds, held.waits, most)
        if wait is None:
            why = f"; a plan waits at most {most / 3600:g} hours (models.usage_limit_hours)" if most else ""
            held.end(PlanState.ERRORED, f"{limited}{why}")
            return
        until = self.clock.now() + timedelta(seconds=wait)
        when = f"{until.astimezone():%Y-%m-%d %H:%M %Z}"
        self._say(plan, f"usage limit of {limited.model} reached ({limited.problem}): waiting until {when}")
        self.faults.reach("plan.park.before")
        # Only this process continues a plan without a queue, so its death must be noticed.
        process = None if queue_of(plan.request) else self.jobs.get(held.fence.job_id).owner
        held.wait(usage_limit_request(plan.id, limited, until, held.waits.and_another(wait), process))
        self.faults.reach("plan.park.after")

    def _wake(self, held: OwnedPlan) -> None:
        """Queue a plan that waited for the reset of a usage limit, as a resume does. If both happen at once,
        only one moves the plan, and the other is refused.
        """
        plan = held.plan
        if not is_parked(plan):
            return
        held.waits = UsageWaits.of(plan)
        try:
            if plan.phase is Phase.EXECUTE:
                with suppress(SandboxMissing):
                    self.sandbox_edits.take_back_failure(plan)
            else:
                self.sandbox_edits.ensure_taken_in(plan)
        except NeedsHuman as edited:  # a run would reset the sandbox to the records
            raise PlanFailed(plan.id, f"{edited.what}; record or revert them, then resume") from edited
        self.faults.reach("plan.wake.before")
        held.move(plan.phase, PlanState.QUEUED)
        self.faults.reach("plan.wake.after")

    def _heed_cancel(self, held: OwnedPlan, job: AsyncJob) -> None:
        """Cancel the plan if a cancel was requested. A cancel first marks the job and then reads the plan;
        this run first moved the plan and then reads the job. So at least one of the two notices the other.
        """
        reason = self.jobs.get(job.id).cancel_reason
        if reason is None:
            return
        plan = held.plan
        state, error = ended_by(reason)
        if state is PlanState.ERRORED and is_at_rest(plan):
            return  # it completed or failed before the stop reached it
        # A stopped plan makes its call again, as after any other interruption.
        if plan.strategy is not None and state is PlanState.CANCELLED:
            with suppress(SandboxMissing):
                strategy = Strategy.from_json(plan.strategy)
                sandbox = self.sandboxes.open(plan.id, fence=held.fence)
                self.open_execution(plan, strategy, sandbox, job).abandon(reason)
        held.end(state, error)
        self.lifecycle.cancel_children(held.plan, reason)
        heard = self.jobs.get(job.id).cancel_reason
        if heard is not None and heard != reason:  # guard: a later cancel found the plan running
            self.lifecycle.cancel(held.plan, heard)

    def _go_on(self, held: OwnedPlan, job: AsyncJob) -> None:
        """Run both phases, repeatedly while the plan goes back to Strategize; with `one_phase`, only one."""
        thinks = True
        while thinks:
            if self._strategize(held, job) and self.one_phase:
                return
            thinks = self._execute(held, job) and not self.one_phase

    def _strategize(self, held: OwnedPlan, job: AsyncJob) -> bool:
        """Run Strategize unless it is complete; return whether this call ran it."""
        if held.plan.phase is not Phase.STRATEGIZE:
            return False
        thinks = held.plan.state is not PlanState.COMPLETE
        if thinks:
            isolation = self._isolation(held.plan)
            plan = held.begin(isolation)
            strategy = self._terms(plan)
            if strategy.checks:  # refused before any money is spent
                strategy.policy.ensure_denies_network(f"check {strategy.checks[0].name!r}", isolation)
            for text in strategy.invariants:
                self._say(plan, f"invariant, {Invariant.parse(text).enforcement} ({text})")
            if strategy.casting is not None:
                sandbox = self._sandbox(plan, strategy, held.fence)
                with sandbox.occupied():
                    strategy = self.strategize_phase(self.watch(plan))(
                        self._ground(_Work(plan, strategy, sandbox, job))
                    )
            held.move(Phase.STRATEGIZE, PlanState.COMPLETE, PlanFacts(strategy=strategy.to_json()))
        held.move(Phase.EXECUTE, PlanState.QUEUED)
        return thinks

    def _terms(self, plan: Plan) -> Strategy:
        """Return the strategy that Strategize completes: the stored strategy, if the plan has one."""
        if plan.strategy is not None:
            return Strategy.from_json(plan.strategy)
        made = self.make_strategy(plan)
        # A sub-plan may inherit what its action also says.
        return structs.replace(
            made,
            invariants=tuple(dict.fromkeys(made.invariants)),
            include=tuple(dict.fromkeys(made.include)),
        )

    def _isolation(self, plan: Plan) -> Isolation:
        return Isolation.of(self.checks(Path(plan.resource)).commands.isolates)

    def _ensure_wanted(self, held: OwnedPlan) -> None:
        """Raise `Cancelled` if the parent plan was cancelled, because the cancel may have
        missed this plan.
        """
        parent_id = held.plan.parent_id
        if parent_id is not None and self.plans.get(parent_id).state is PlanState.CANCELLED:
            held.end(PlanState.CANCELLED, f"cancelled: the parent plan {parent_id} was cancelled")
            raise Cancelled("the parent plan was cancelled")

    def _execute(self, held: OwnedPlan, job: AsyncJob) -> bool:
        """Carry out the strategy; return True if the plan goes back to Strategize."""
        plan = held.begin(self._isolation(held.plan))
        strategy = Strategy.from_json(plan.strategy)
        if len(strategy.steps) > strategy.limit_steps:
            raise PlanFailed(plan.id, f"the plan exceeded its limit of {strategy.limit_steps} steps")
        work = _Work(plan, strategy, self._sandbox(plan, strategy, held.fence), job)
        with work.sandbox.occupied():
            execution = self._prepared(work)
            try:
                waiting = self._done(held, work, execution)
            except RethinkNeeded as needed:
                moved = self.think_again(plan, needed.findings, execution, held.fence)
                if moved is not None:
                    held.plan = moved
                    return True
                waiting = self._done(held, work, execution, rethinks=False)  # fix as far as possible
        # The files contain both sides of a conflict until it is resolved, whatever the tasks are now.
        waiting = waiting or self.sub_plans.has_open_conflict(plan)
        if waiting is not None:
            held.plan = self.lifecycle.queueing.put_down(plan, waiting, held.fence)
            return False
        broken = broken_by(strategy.invariants, execution.history.own_states(plan.id, work.sandbox))
        if broken is not None:  # guard: whatever the cause
            raise PlanFailed(plan.id, broken)
        facts = PlanFacts(answer=_answer_in(held.left), strategy=self._revised(work, execution))
        held.move(Phase.EXECUTE, PlanState.COMPLETE, facts)
        return False

    def _revised(self, work: _Work, execution: ToolExecution) -> JsonValue:
        """Return the strategy without the result from before a revision, if the required checks have passed
        on the revised result. None if the stored strategy stays.
        """
        plan, strategy = work.plan, work.strategy
        if strategy.restored is not None and _has_worked(execution.history.calls(plan.id), strategy.restored):
            strategy = structs.replace(strategy, restored=None)
        if strategy.ready is None:
            return None if strategy is work.strategy else strategy.to_json()
        tree = work.sandbox.tree(execution.history.states(plan.id))
        required = [check for check in strategy.checks if check.required]
        passed = self.checks(self.directory_of(plan)).have_passed(required, plan.id, tree)
        return structs.replace(strategy, ready=None).to_json() if passed else None

    def _done(
        self, held: OwnedPlan, work: _Work, execution: ToolExecution, *, rethinks: bool = True
    ) -> JsonValue | None:
        """Do the remaining work. Return None if all is done and checked, else the plan's pending request.

        Raises `RethinkNeeded`.
        """
        plan, ground = work.plan, self._ground(work, execution)
        if work.strategy.casting is not None:
            held.left, waiting = self.execute_phase(self.watch(plan))(ground, rethinks=rethinks)
            return waiting
        self._do_steps(work, execution)
        waiting = self.sub_plans.advance(ground, None, lambda what: self._say(plan, what))
        if waiting is None:
            self._run_checks(work, execution)
        return waiting

    def _prepared(self, work: _Work) -> ToolExecution:
        """Return the tool execution of this run, after the sandbox is restored to the records and set up."""
        plan, sandbox, setup = work.plan, work.sandbox, work.strategy.setup
        execution = self.open_execution(plan, work.strategy, sandbox, work.job)
        with sandbox.writing(timeout_seconds=execution.busy_seconds):
            self.sandbox_edits.settle(plan.id, sandbox)
        execution.settle()
        self.setup.prepare(setup, sandbox, execution, project=plan.project)
        if setup is not None:  # guard: its files would count as output of a step, and no check would see them
            sandbox.count_as_set_up()
        return execution

    def _do_steps(self, work: _Work, execution: ToolExecution) -> None:
        plan, steps = work.plan, work.strategy.steps
        left = self._time_left(work)
        made = {call.step for call in execution.history.calls(plan.id) if call.is_over}
        for number, step in enumerate(steps, start=1):
            if left() <= 0 and str(number) not in made:
                raise PlanFailed(plan.id, f"stopped at the time limit of {work.strategy.limit_seconds:g} s")
            if str(number) not in made:
                self._say(plan, f"step {number} of {len(steps)}: {step.name}")
            request = CallRequest(
                str(number), step.tool, step.arguments, granted=step.granted, timeout_seconds=left()
            )
            call = execution.call(request)
            skipped = None if str(number) in made else skipped_text(call)
            if skipped is not None:
                self._say(plan, redact_text(skipped))
            problem = step.problem_with(call)
            if problem is not None:
                raise PlanFailed(plan.id, problem)

    def _run_checks(self, work: _Work, execution: ToolExecution) -> Sequence[CheckRun]:
        plan = work.plan
        states = execution.history.states(plan.id)
        ground = CheckEnvironment(
            plan_id=plan.id,
            resource=self.directory_of(plan),
            sandbox=work.sandbox,
            states=states,
            recorded=states,
            stop=work.job.token,
            network=execution.network,
            network_denied=execution.network_denied,
            markers=execution.markers,
            on_output=execution.on_output,
        )
        checks = self.checks(ground.resource)
        return checks.run(work.strategy.checks, ground, progress=self.watch(plan).progress)

    def _ground(self, work: _Work, execution: ToolExecution | None = None) -> ActorPhase:
        """Return the data that actors need in the current phase. Without an `execution`, the actors can only
        read.
        """
        from cleveragents.plans.actors.actor_stage import ActorPhase

        def run_checks() -> Sequence[CheckRun]:
            return [] if execution is None else self._run_checks(work, execution)

        return ActorPhase(
            work.plan, work.strategy, work.sandbox, work.job, self._time_left(work), run_checks, execution
        )

    def _time_left(self, work: _Work) -> Callable[[], float]:
        """Return a function that returns the seconds left for the plan, after the time of earlier runs."""
        limit = self.time_left(work.plan, work.strategy)
        started = self.clock.monotonic()
        return lambda: limit - (self.clock.monotonic() - started)

    def _sandbox(self, plan: Plan, strategy: Strategy, fence: Fence) -> Sandbox:
        try:
            return self.sandboxes.open(plan.id, fence=fence)
        except SandboxMissing:
            remote = remote_of(plan.resource)
            request = SandboxRequest(
                plan.id,
                self.directory_of(plan),
                from_head=remote is not None or bool(plan.request.get("from_head")),
                include=strategy.include,
                start=start_of(plan),
                remote=None if remote is None else plan.resource,
                fence=None if remote is None else fence,
            )
            return self.sandboxes.create(request, progress=self.watch(plan).progress)

    def _say(self, plan: Plan, what: str) -> None:
        progress = self.watch(plan).progress
        if progress is not None:
            progress(what)


class _Work(Struct, frozen=True):
    """A running plan with its strategy, its sandbox and its job."""

    plan: Plan
    strategy: Strategy
    sandbox: Sandbox
    job: AsyncJob


def start_of(plan: Plan) -> StartTree | None:
    """Return the parent's tree that a sub-plan starts from."""
    start = plan.request.get("start")
    return StartTree(str(start["plan"]), str(start["tree"])) if isinstance(start, Mapping) else None


def _told(plan: Plan, left: Mapping[str, JsonValue] | None = None) -> JsonValue:
    """Return id, phase and state of the plan; `values` is the masked state of its executor, if any."""
    fields = {"plan": plan.id, "phase": plan.phase.value, "state": plan.state.value}
    return freeze(fields if not left else {**fields, "values": redact(left)})


def _answer_in(values: Mapping[str, JsonValue]) -> str | None:
    """Return the answer of a plan, from the final state of its executor."""
    report = report_in(values)
    return None if report is None else _cut(report)


def _cut(text: str) -> str:
    """Mask the text, then cut it to the maximum length. (A secret that is cut first would not be
    recognised.)
    """
    masked = redact_text(text)
    if len(masked) <= _LONGEST_ANSWER:
        return masked
    return f"{masked[:_LONGEST_ANSWER]}\n\n… {len(masked) - _LONGEST_ANSWER:,} more characters were cut"


@dataclass(slots=True)
class OwnedPlan:
    """The plan as this run last moved it. Once another process moves the plan or takes its job, every move of
    this run is refused. Not thread-safe: used by its run only.
    """

    plans: SqlPlanStore
    clock: Clock
    plan: Plan
    fence: Fence
    left: Mapping[str, JsonValue] = field(default_factory=dict)
    waits: UsageWaits = field(default_factory=UsageWaits)

    def begin(self, isolation: Isolation) -> Plan:
        """Start the phase, or take it over from a worker that died; the version of the plan that the dead
        worker held becomes stale. `isolation` is the isolation of this run's commands.
        """
        self.move(self.plan.phase, PlanState.PROCESSING, PlanFacts(isolation=isolation, answer=""))
        return self.plan

    def wait(self, waiting_for: JsonValue) -> None:
        self.move(self.plan.phase, PlanState.WAITING, PlanFacts(waiting_for=waiting_for))

    def end(self, state: PlanState, error: str) -> None:
        self.move(self.plan.phase, state, PlanFacts(error=error))

    def move(self, phase: Phase, state: PlanState, facts: PlanFacts | None = None) -> None:
        now = self.clock.now()
        self.plan = self.plans.move(self.plan, (phase, state), facts, now=now, fence=self.fence)


def wait_reason(needed: NeedsHuman | BudgetExhausted, root_id: str) -> JsonValue:
    """Return the pending request of a plan that needs an answer, or a larger budget for its tree."""
    if isinstance(needed, BudgetExhausted):
        raised = [replace(remedy, plan=root_id) for remedy in needed.remedies]
        return {"for": "budget", "what": needed.what, **remedies_record(raised)}
    told: dict[str, JsonValue] = {"for": "leave", "what": needed.what, **remedies_record(needed.remedies)}
    if not isinstance(needed, ActorAsks):
        return told
    return {**told, "for": "question", "question": needed.question_id, "choices": needed.choices}


def _has_worked(calls: Sequence[ToolCall], restored: int) -> bool:
    """Return whether the plan has made a call since the result after the call `restored` was restored."""
    later = [call for call in calls if call.number > restored and call.state is not CallState.REVERTED]
    return any(call.tool not in _BY_A_PERSON for call in later)
