"""A person says what is to become of conflicts, between runs of the plan.

What they do is one more recorded call, in the states of every call, so that one that was cut off is finished
or was never made. What they edited by hand in the sandbox is taken in with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cleveragents.changes.model.merge_conflict import RESOLVE, Take, is_by_hand, resolved_result
from cleveragents.core.errors import PlanError, StalePlan
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.conflicts.resolution import resolution_of
from cleveragents.plans.history import PlanHistory, bring_to
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanStore
from cleveragents.sandboxes.ports import Sandbox, Sandboxes

__all__ = ["ConflictsByHand"]


@dataclass(frozen=True, slots=True)
class ConflictsByHand:
    """Stateless but for its parts; holds the sandbox's `writing()` while it works."""

    plans: PlanStore
    sandboxes: Sandboxes
    history: PlanHistory
    execution: Callable[[Plan, Sandbox], ToolExecution]

    def resolve(self, plan: Plan, path: str, take: Take) -> ToolCall:
        """The call that ended all open conflicts at the path, as it is or is shown. `PlanError` while the
        plan runs or when it has ended, `ToolRefused` with the reason why it cannot be resolved so; then
        nothing changed."""
        sandbox = self.sandboxes.open(plan.id)
        execution = self.execution(plan, sandbox)
        with sandbox.writing(timeout_seconds=execution.busy_seconds):
            self._ensure_idle(plan)
            self._settle(execution)
            found = resolution_of(self.history, plan.id, sandbox, path, take)
            path = found.ended[0].shown_path
            now, calls = execution.clock.now, execution.calls
            arguments = FrozenObject({"path": path, "take": take.value})
            call = calls.add(plan.id, RESOLVE, arguments, step=None, state=CallState.STARTED, now=now())
            changeset = execution.context.start_changeset()
            call = calls.move(call, CallState.STARTED, now=now(), changeset_id=changeset)
            execution.faults.reach("resolve.started.after")
            sandbox.restore(found.states)
            execution.faults.reach("resolve.files.after")
            result = resolved_result(path, take, found.ended, found.tree, found.states)
            call = calls.move(call, CallState.ENDING, now=now(), result=result)
            execution.faults.reach("resolve.ending.after")
            return execution.finish(call)

    def _ensure_idle(self, plan: Plan) -> None:
        now = self.plans.get(plan.id)
        if now.state.running:  # guard: a run must not find files changed under it
            raise PlanError(plan.id, "it is running; wait until it is at rest, or cancel it")
        if now.state.ended:
            raise PlanError(plan.id, f"it is {now.state.value}; its result can no longer be changed")
        if now.version != plan.version:  # guard: the decision was about what the plan was then
            raise StalePlan(plan.id, plan.version)

    def _settle(self, execution: ToolExecution) -> None:
        """Finishes, or takes back, what a process that died left half done; else edits by hand stay."""
        plan_id, sandbox = execution.sandbox.plan_id, execution.sandbox
        left = self.history.open_calls(plan_id)
        for call in left:
            if call.state is CallState.ENDING:
                execution.finish(call)
            elif is_by_hand(call):
                error = "interrupted; nothing was changed"
                execution.calls.move(call, CallState.FAILED, now=execution.clock.now(), error=error)
        if left:
            bring_to(sandbox, self.history.states(plan_id))
