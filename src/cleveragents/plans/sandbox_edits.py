"""What a person does to a plan's sandbox between runs: back to a checkpoint, or their own edits taken in.

Both are recorded like a tool call, with a changeset of their own: nothing is erased, and what the sandbox
holds is always what the records add up to. One that was interrupted is finished by whoever comes next. So are
the calls of a run that died and that nobody is to go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from cleveragents.access.model.project import remote_of
from cleveragents.changes.execution_context import ChangesetStore, PlanExecutionContext
from cleveragents.core.change import FileState
from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    PlanError,
    SandboxBusy,
    SandboxMissing,
    StalePlan,
)
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.call_log import UNREADABLE, CallLog
from cleveragents.plans.history import REREAD, PlanHistory, bring_to
from cleveragents.plans.model.correction import RETRY, ROLLBACK, checkpoint_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.model.sub_plan import is_merged
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.plans.sub_plans.messages import already_merged_message
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["SandboxEdits"]

_BUSY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class SandboxEdits:
    """Stateless but for its stores; holds the sandbox's `writing()` while it works."""

    plans: SqlPlanStore
    calls: SqlCallStore
    changesets: ChangesetStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock
    is_elsewhere: Callable[[str], bool] = lambda plan_id: False

    def rollback(self, plan: Plan, checkpoint: int, *, discard: bool = False) -> ToolCall:
        """The sandbox as it was before the call of that number; that call and later ones count as not made,
        so that a resumed plan makes them again. `UnknownCheckpoint`, `PlanError` while it runs, and once it
        is merged; `NeedsHuman` when there are edits by hand that were not taken in, unless they are to be
        thrown away."""
        self.history.leading_back(plan.id, checkpoint)
        with self.unmerged(plan), self._idle(plan) as sandbox:
            if not discard:
                self.history.ensure_taken_in(plan.id, sandbox)  # guard: they are in no record
            call = self._added(plan.id, ROLLBACK, CallState.STARTED, checkpoint=checkpoint)
            return self._finish(call, sandbox)

    def take_back(self, plan_id: str, checkpoint: int, sandbox: Sandbox) -> ToolCall:
        """The same for the run that works on the plan, whose `calls` this has, and so its fence: what it has
        done is its own to take back."""
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            self.settle(plan_id, sandbox)
            return self._finish(
                self._added(plan_id, ROLLBACK, CallState.STARTED, checkpoint=checkpoint), sandbox
            )

    def reread(self, plan: Plan) -> ToolCall | None:
        """Takes in what was edited by hand in the sandbox; None if nothing was. `PlanError` while it runs,
        and once it is merged."""
        with self.unmerged(plan), self._idle(plan) as sandbox:
            if not self.history.unrecorded(plan.id, sandbox):
                return None
            return self._finish(self._added(plan.id, REREAD, CallState.STARTED), sandbox)

    def bring_over(self, plan: Plan, edits: Mapping[str, FileState | None]) -> ToolCall | None:
        """Has these files be as a person had left them, as one more call; None if they are. Killed in
        between, it leaves edits that are not taken in yet. Errors as `reread`."""
        if not edits:
            return None
        with self._idle(plan) as sandbox:
            return self._brought_over(plan.id, edits, sandbox)

    def put_back(
        self, plan_id: str, edits: Mapping[str, FileState | None], sandbox: Sandbox
    ) -> ToolCall | None:
        """The same for the run that works on the plan, as `take_back`."""
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            return self._brought_over(plan_id, edits, sandbox)

    def ensure_taken_in(self, plan: Plan) -> None:
        """`NeedsHuman` when there are edits by hand that a run would throw away.

        Looked at while nobody else can work there: what a peer's run or rollback does is no edit by hand.
        `PlanError`, `StalePlan` when somebody went on with the plan meanwhile.
        """
        with suppress(SandboxMissing), self._idle(plan) as sandbox:
            self.history.ensure_taken_in(plan.id, sandbox)

    def take_back_failure(self, plan: Plan) -> ToolCall | None:
        """Has the call at which the plan failed made again: from the checkpoint before it, or, if somebody's
        edits were taken in since, on what is there now. None if the plan did not fail at a call. `NeedsHuman`
        when there are edits by hand that were not taken in."""
        self.ensure_taken_in(plan)
        made = [call for call in self.history.calls(plan.id) if call.state is not CallState.REVERTED]
        last = next((call for call in reversed(made) if call.step is not None), None)
        if last is None or not _stopped_at(last, plan):
            return None
        if last is made[-1]:
            return self.rollback(plan, last.number)
        with self._idle(plan):
            return self._added(plan.id, RETRY, CallState.ENDED, checkpoint=last.number)

    @contextmanager
    def unmerged(self, plan: Plan) -> Iterator[None]:
        """Held while something is decided about a part of another plan: it is not merged meanwhile.
        `PlanError` if it was, for what is done to it then changes nothing; `SandboxBusy`."""
        if plan.parent_id is None:
            yield
            return
        with self._parent_held(plan):
            self.ensure_unmerged(plan)
            yield

    def ensure_unmerged(self, plan: Plan) -> None:
        """`PlanError`, with what can be done instead, for a part whose result its parent has."""
        if plan.parent_id is not None and is_merged(self.history.calls(plan.parent_id), plan.key):
            raise already_merged_message(plan)

    @contextmanager
    def _parent_held(self, plan: Plan) -> Iterator[None]:
        """Whoever merges holds the parent's sandbox. Only what is done is merged, so another is free."""
        done = plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
        with ExitStack() as held:
            with suppress(SandboxMissing):  # then nobody merges either
                if done:
                    parent = self.sandboxes.open(str(plan.parent_id))
                    held.enter_context(parent.writing(timeout_seconds=_BUSY_SECONDS))
            yield

    def settle(self, plan_id: str, sandbox: Sandbox) -> None:
        """Finishes what was interrupted. The caller holds `sandbox.writing()`."""
        for call in self.history.calls(plan_id):
            if call.tool in (ROLLBACK, REREAD) and call.state is CallState.STARTED:
                self._finish(call, sandbox)

    def end_calls(self, plan: Plan, reason: str) -> None:
        """Ends the calls that were under way when whoever ran the plan died: nobody is to go on with them.
        What they had done is recorded, as the run itself would have done after a cancel.

        Killed in between, it is to be called again; twice is harmless. A call is left open while somebody
        works in the sandbox, or went on with the plan, where the system refuses to look into it, and where
        only another machine can.
        """
        if not self.history.open_calls(plan.id):
            return
        elsewhere = self.is_elsewhere(plan.id)
        if elsewhere and remote_of(plan.resource) is None:
            return
        with suppress(SandboxBusy, OSError), ExitStack() as held:
            sandbox, lost = None, "its sandbox is another machine's"
            if not elsewhere:
                sandbox, lost = self._looked_into(plan.id, held)
            if self.plans.get(plan.id).version != plan.version:  # guard: somebody went on with it
                return
            if sandbox is not None:
                with suppress(*UNREADABLE):  # guard: what could not be finished is ended as the others are
                    self.settle(plan.id, sandbox)
            self._filing(plan.id).abandon(reason, sandbox, lost=lost)

    def _looked_into(self, plan_id: str, held: ExitStack) -> tuple[Sandbox | None, str]:
        """The sandbox, held; or else why there is none. `SandboxBusy`."""
        try:
            sandbox = self.sandboxes.open(plan_id)
            held.enter_context(sandbox.writing())
        except SandboxMissing:
            return None, "its sandbox was removed"
        except UNREADABLE as refusal:
            return None, str(refusal)
        return sandbox, ""

    def _filing(self, plan_id: str) -> CallLog:
        context = PlanExecutionContext(plan_id, self.changesets)
        return CallLog(context, self.calls, self.history, self.clock)

    @contextmanager
    def _idle(self, plan: Plan) -> Iterator[Sandbox]:
        """The sandbox, held, of a plan that nobody runs: a run waits for the sandbox before it begins."""
        sandbox = self.sandboxes.open(plan.id)
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            now = self.plans.get(plan.id)
            if now.state.running:  # guard: what a run has done is not taken away from under it
                raise PlanError(plan.id, "it is running; cancel it first, or wait until it is done")
            if now.state.ended:
                raise PlanError(plan.id, f"it is {now.state.value}; its result can no longer be changed")
            if now.version != plan.version:  # guard: the decision was about what the plan was then
                raise StalePlan(plan.id, plan.version)
            self.settle(plan.id, sandbox)
            yield sandbox

    def _brought_over(
        self, plan_id: str, edits: Mapping[str, FileState | None], sandbox: Sandbox
    ) -> ToolCall | None:
        sandbox.restore(edits)
        if not self.history.unrecorded(plan_id, sandbox):
            return None
        return self._finish(self._added(plan_id, REREAD, CallState.STARTED), sandbox)

    def _added(self, plan_id: str, tool: str, state: CallState, **arguments: JsonValue) -> ToolCall:
        facts = FrozenObject(arguments)
        return self.calls.add(plan_id, tool, facts, step=None, state=state, now=self.clock.now())

    def _finish(self, call: ToolCall, sandbox: Sandbox) -> ToolCall:
        """Each step leaves nothing for a second time to do, so it may be begun again anywhere."""
        plan_id, filing = call.plan_id, self._filing(call.plan_id)
        if call.tool != ROLLBACK:
            return filing.file(call, self.history.unrecorded(plan_id, sandbox))
        found = self.history.leading_back(plan_id, checkpoint_of(call))
        call = filing.recorded(call, found)
        bring_to(sandbox, {path: step.after for path, step in found.items()} | self.history.states(plan_id))
        return filing.close(call, None)


def _stopped_at(call: ToolCall, plan: Plan) -> bool:
    """Whether that call is why the plan did not go on."""
    step = Strategy.from_json(plan.strategy).step_of(call)
    return call.stopped_its_run if step is None else step.problem_with(call) is not None
