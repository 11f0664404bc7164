"""What a person does to a plan's sandbox between runs: back to a checkpoint, or their own edits taken in.

Both are recorded like a tool call, with a changeset of their own: nothing is erased, and what the sandbox
holds is always what the records add up to.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.application.ports.changesets import ChangesetStore
from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.plans import CallStore, PlanStore
from cleveragents.application.ports.sandboxes import Sandboxes
from cleveragents.application.services.plan_history import PlanHistory, bring_to
from cleveragents.domain.change import ChangeEntry
from cleveragents.domain.file_state import Difference, entries_between
from cleveragents.domain.json_value import FrozenObject
from cleveragents.domain.plan import Plan
from cleveragents.domain.tool import CallState, ToolCall
from cleveragents.errors import PlanError

__all__ = ["PlanRewriting"]


@dataclass(frozen=True, slots=True)
class PlanRewriting:
    """Stateless but for its stores; holds the sandbox's `writing()` while it works."""

    plans: PlanStore
    calls: CallStore
    changesets: ChangesetStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock

    def rollback(self, plan: Plan, checkpoint: int) -> ToolCall:
        """The sandbox as it was before the call of that number; that call and later ones count as not made,
        so that a resumed plan makes them again. `UnknownCheckpoint`, `PlanError` while it runs."""
        _ensure_idle(plan)
        taken_back = [
            call
            for call in self.history.calls_from(plan.id, checkpoint)
            if call.state is not CallState.REVERTED
        ]
        wanted = self.history.states_before(plan.id, checkpoint)
        sandbox = self.sandboxes.open(plan.id)
        with sandbox.writing(timeout_seconds=30.0):
            recorded = self.history.differences(plan.id)
            leads_back = {
                path: Difference(step.after, wanted.get(path, step.before)) for path, step in recorded.items()
            }
            done = self._record(plan, "rollback", entries_between(leads_back), str(checkpoint))
            for call in taken_back:
                self.calls.move(call, CallState.REVERTED, now=self.clock.now())
            bring_to(sandbox, wanted)
        return done

    def reread(self, plan: Plan) -> ToolCall | None:
        """Takes in what was edited by hand in the sandbox; None if nothing was. `PlanError` while it runs."""
        _ensure_idle(plan)
        sandbox = self.sandboxes.open(plan.id)
        with sandbox.writing(timeout_seconds=30.0):
            edited = self.history.unrecorded(plan.id, sandbox)
            if not edited:
                return None
            return self._record(plan, "reread", entries_between(edited), None)

    def _record(self, plan: Plan, tool: str, entries: list[ChangeEntry], checkpoint: str | None) -> ToolCall:
        now = self.clock.now()
        arguments = FrozenObject({} if checkpoint is None else {"checkpoint": checkpoint})
        call = self.calls.add(plan.id, tool, arguments, step=None, state=CallState.STARTED, now=now)
        changeset = self.changesets.start(plan.id)
        call = self.calls.move(call, CallState.ENDING, now=now, changeset_id=changeset)
        if entries:
            self.changesets.record_all(changeset, entries, key=call.call_id)
        self.changesets.close(changeset)
        return self.calls.move(call, CallState.ENDED, now=self.clock.now())


def _ensure_idle(plan: Plan) -> None:
    if plan.state.running:
        raise PlanError(plan.id, "it is running; cancel it first, or wait until it is done")
    if plan.state.ended:
        raise PlanError(plan.id, f"it is {plan.state.value}; its result can no longer be changed")
