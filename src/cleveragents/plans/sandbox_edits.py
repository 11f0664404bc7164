"""Rollbacks of a sandbox to a checkpoint, and recording of a person's edits in it.

Both are *rewrites*: each is recorded as a tool call with its own changeset, so nothing is erased, and the
sandbox always matches the records. The next process finishes an interrupted rewrite, and ends the calls of a
run that died and is not resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.access.model.project import remote_of
from cleveragents.changes.execution_context import ChangesetStore, PlanExecutionContext
from cleveragents.changes.model.merge_conflict import REBASE
from cleveragents.core.errors import (
    NeedsHuman,
    PlanError,
    Remedy,
    SandboxBusy,
    SandboxMissing,
    StalePlan,
)
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.call_log import UNREADABLE, CallLog
from cleveragents.plans.history import REREAD, PlanHistory, named, restore_states
from cleveragents.plans.model.correction import RETRY, ROLLBACK, checkpoint_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.model.sub_plan import is_merged
from cleveragents.plans.sub_plans.messages import already_merged_message

if TYPE_CHECKING:
    from cleveragents.core.change import FileState
    from cleveragents.core.clock import Clock
    from cleveragents.plans.model.strategy import ReadyResult
    from cleveragents.plans.ports.plans import PlanFacts
    from cleveragents.plans.store.sql_plan_records import SqlCallStore
    from cleveragents.plans.store.sql_plan_store import InTransaction, SqlPlanStore
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["SandboxEdits"]

_BUSY_SECONDS = 30.0
_READY = (Phase.EXECUTE, PlanState.COMPLETE)


class SandboxEdits(Struct, frozen=True):
    """Rewrites sandboxes. Stateless; holds the sandbox's `writing()` while it works."""

    plans: SqlPlanStore
    calls: SqlCallStore
    changesets: ChangesetStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock
    is_elsewhere: Callable[[str], bool] = lambda plan_id: False

    def rollback(self, plan: Plan, checkpoint: int, *, discard: bool = False) -> ToolCall:
        """Restore the sandbox to its state before the call with the number `checkpoint`. That call and all
        later ones count as not made, so a resumed plan makes them again.

        Raises `UnknownCheckpoint`; `PlanError` if the plan runs or is merged; `NeedsHuman` if there are
        unrecorded edits and `discard` is not set.
        """
        self.history.leading_back(plan.id, checkpoint)
        with self.unmerged(plan), self.idle(plan) as sandbox:
            if not discard:
                self.history.ensure_taken_in(plan.id, sandbox)  # guard: unrecorded edits exist nowhere else
            call = self._added(
                plan.id, ROLLBACK, CallState.STARTED, version=plan.version, checkpoint=checkpoint
            )
            return self._finish(call, sandbox)

    def restore(
        self,
        plan: Plan,
        ready: ReadyResult,
        facts: PlanFacts,
        *,
        discard: bool = False,
        also: InTransaction | None = None,
    ) -> Plan:
        """Restore the files of the earlier result, and move the plan to the state of that result with these
        facts. Return the moved plan. `also` is done in the transaction of the move.

        The plan moves while the sandbox is locked, so its result is the restored one. After a crash in
        between, the plan is as it was, and a repeated call completes both. Raises the same errors as
        `rollback`, and `NeedsHuman` for recorded edits of a person since that call, too; `StalePlan` if the
        plan moved meanwhile.
        """
        with self.unmerged(plan), self.idle(plan) as sandbox:
            if not discard:
                self._ensure_no_edits(plan.id, ready.call, sandbox)
            later = [call.number for call in self.history.calls(plan.id) if call.number > ready.call]
            if later:
                version, checkpoint = plan.version, min(later)
                call = self._added(
                    plan.id, ROLLBACK, CallState.STARTED, version=version, checkpoint=checkpoint
                )
                self._finish(call, sandbox)
            return self.plans.move(plan, ready.phase_state, facts, now=self.clock.now(), also=also)

    def _ensure_no_edits(self, plan_id: str, last: int, sandbox: Sandbox) -> None:
        """Raise `NeedsHuman` if a person edited files after the call with the number `last`."""
        edited = self.history.edited_since(plan_id, last) | {*self.history.unrecorded(plan_id, sandbox)}
        if edited:
            # The files of an interrupted call look the same as edits by hand.
            interrupted = bool(self.history.open_calls(plan_id))
            kind = "edits by hand, or files of the interrupted call," if interrupted else "edits by hand"
            what = f"{kind} since the earlier result: {named(sorted(edited))}"
            discard = Remedy("plan.rollback", plan_id, {"discard": True}, "Discard the edits")
            raise NeedsHuman(plan_id, what, (discard,))

    def take_back(self, plan_id: str, checkpoint: int, sandbox: Sandbox) -> ToolCall:
        """Like `rollback`, for the run that owns the plan; `self.calls` has the fence of the run."""
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            self.settle(plan_id, sandbox)
            return self._finish(
                self._added(plan_id, ROLLBACK, CallState.STARTED, checkpoint=checkpoint), sandbox
            )

    def reread(self, plan: Plan) -> ToolCall | None:
        """Record the edits of a person in the sandbox; return None if there are none. Raises `PlanError` if
        the plan runs or is merged.
        """
        with self.unmerged(plan), self.idle(plan) as sandbox:
            if not self.history.unrecorded(plan.id, sandbox):
                return None
            call = self._added(plan.id, REREAD, CallState.STARTED, version=plan.version)
            return self._finish(call, sandbox)

    def bring_over(self, plan: Plan, edits: Mapping[str, FileState | None]) -> ToolCall | None:
        """Write these files, edited by a person, into the sandbox and record that as a call; return None if
        nothing differs. A crash before the recording leaves unrecorded edits. Raises the same errors as
        `reread`.
        """
        if not edits:
            return None
        with self.idle(plan) as sandbox:
            return self._brought_over(plan.id, edits, sandbox)

    def put_back(
        self, plan_id: str, edits: Mapping[str, FileState | None], sandbox: Sandbox
    ) -> ToolCall | None:
        """Restore a person's edits after `take_back`, for the run that owns the plan."""
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            return self._brought_over(plan_id, edits, sandbox)

    def ensure_taken_in(self, plan: Plan) -> None:
        """Raise `NeedsHuman` if the sandbox has unrecorded edits, which a run would discard.

        The sandbox is locked during the check, so changes of another run or rollback do not count as edits.
        Raises `PlanError`, `StalePlan` if the plan continued meanwhile.
        """
        with suppress(SandboxMissing), self.idle(plan) as sandbox:
            self.history.ensure_taken_in(plan.id, sandbox)

    def take_back_failure(self, plan: Plan) -> ToolCall | None:
        """Mark the call at which the plan failed, so that a resume makes it again. The sandbox is rolled back
        to the checkpoint of the call, unless edits were recorded since; in that case the current files are
        used.

        Return None if the plan did not fail at a call. Raises `NeedsHuman` if there are unrecorded edits.
        """
        self.ensure_taken_in(plan)
        made = [call for call in self.history.calls(plan.id) if call.state is not CallState.REVERTED]
        last = next((call for call in reversed(made) if call.step is not None), None)
        if last is None or not _stopped_at(last, plan):
            return None
        if last is made[-1]:
            return self.rollback(plan, last.number)
        with self.idle(plan):
            return self._added(plan.id, RETRY, CallState.ENDED, version=plan.version, checkpoint=last.number)

    @contextmanager
    def unmerged(self, plan: Plan) -> Iterator[None]:
        """Prevent the merge of a sub-plan during the block, in which a person acts on it.

        Raises `PlanError` if it is already merged, because the action would have no effect; `SandboxBusy`.
        """
        if plan.parent_id is None:
            yield
            return
        with self._parent_held(plan):
            self.ensure_unmerged(plan)
            yield

    def ensure_unmerged(self, plan: Plan) -> None:
        """Raise `PlanError`, with remedies, if the result is merged into the parent."""
        if plan.parent_id is not None and is_merged(self.history.calls(plan.parent_id), plan.key):
            raise already_merged_message(plan)

    @contextmanager
    def _parent_held(self, plan: Plan) -> Iterator[None]:
        """Lock the parent's sandbox, as every merge does. Only complete sub-plans are merged, so other
        sub-plans need no lock.
        """
        with ExitStack() as held:
            with suppress(SandboxMissing):  # then nothing can be merged either
                if plan.phase_state == _READY:
                    parent = self.sandboxes.open(str(plan.parent_id))
                    held.enter_context(parent.writing(timeout_seconds=_BUSY_SECONDS))
            yield

    def settle(self, plan_id: str, sandbox: Sandbox) -> None:
        """Finish interrupted rewrites. An interrupted rebase whose result was not stored yet is undone. The
        caller holds `sandbox.writing()`.
        """
        for call in self.history.calls(plan_id):
            if call.tool in (ROLLBACK, REREAD) and call.state is CallState.STARTED:
                self._finish(call, sandbox)
            elif call.tool == REBASE and call.is_open:
                self._settle_rebase(call, sandbox)

    def _settle_rebase(self, call: ToolCall, sandbox: Sandbox) -> None:
        if call.state is CallState.ENDING:
            self._filing(call.plan_id).finish(call, sandbox)
        else:
            # Before the call ends: an open call tells that the files are not the person's edits.
            restore_states(sandbox, self.history.states(call.plan_id))
            self._filing(call.plan_id).close(call, "interrupted; nothing was changed")

    def end_calls(self, plan: Plan, reason: str) -> None:
        """End the calls that were open when the worker of the plan died and that are not resumed. Their
        changes are recorded, as the run itself would do after a cancel.

        Safe to repeat after a crash. A call stays open while the sandbox is in use, if the plan continued, if
        the system refuses access, or if only another machine has the sandbox.
        """
        if not self.history.open_calls(plan.id):
            return
        elsewhere = self.is_elsewhere(plan.id)
        if elsewhere and remote_of(plan.resource) is None:
            return
        with suppress(SandboxBusy, OSError), ExitStack() as held:
            sandbox, lost = None, "the sandbox is on another machine"
            if not elsewhere:
                sandbox, lost = self._looked_into(plan.id, held)
            if self.plans.get(plan.id).version != plan.version:  # guard: the plan continued
                return
            if sandbox is not None:
                with suppress(*UNREADABLE):  # guard: an unfinished rewrite ends like the other calls
                    self.settle(plan.id, sandbox)
            self._filing(plan.id).abandon(reason, sandbox, lost=lost)

    def _looked_into(self, plan_id: str, held: ExitStack) -> tuple[Sandbox | None, str]:
        """Return the sandbox, locked, or the reason why there is none. Raises `SandboxBusy`."""
        try:
            sandbox = self.sandboxes.open(plan_id)
            held.enter_context(sandbox.writing())
        except SandboxMissing:
            return None, "the sandbox was removed"
        except UNREADABLE as refusal:
            return None, str(refusal)
        return sandbox, ""

    def _filing(self, plan_id: str) -> CallLog:
        context = PlanExecutionContext(plan_id, self.changesets)
        return CallLog(context, self.calls, self.history, self.clock)

    @contextmanager
    def idle(self, plan: Plan) -> Iterator[Sandbox]:
        """Yield the locked sandbox of a plan that does not run. A run cannot start meanwhile, because it
        waits for the lock. Interrupted rewrites are finished.

        Raises `PlanError` if the plan runs or has ended, `StalePlan` if it moved, `SandboxBusy`.
        """
        sandbox = self.sandboxes.open(plan.id)
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            now = self.plans.get(plan.id)
            if now.state.running:  # guard: a running plan keeps its files
                raise PlanError(plan.id, "still running; wait until the plan stops, or cancel it")
            if now.state.ended:
                raise PlanError(
                    plan.id,
                    f"already {status_word(now)}; the result can no longer change",
                )
            if now.version != plan.version:  # guard: the decision was about an earlier version
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

    def _added(
        self, plan_id: str, tool: str, state: CallState, *, version: int | None = None, **arguments: JsonValue
    ) -> ToolCall:
        facts, now = FrozenObject(arguments), self.clock.now()
        return self.calls.add(plan_id, tool, facts, step=None, state=state, now=now, version=version)

    def _finish(self, call: ToolCall, sandbox: Sandbox) -> ToolCall:
        """Complete the call. Each step is safe to repeat, so it may restart anywhere."""
        plan_id, filing = call.plan_id, self._filing(call.plan_id)
        if call.tool != ROLLBACK:
            return filing.file(call, self.history.unrecorded(plan_id, sandbox))
        found = self.history.leading_back(plan_id, checkpoint_of(call))
        call = filing.recorded(call, found)
        restore_states(
            sandbox, {path: step.after for path, step in found.items()} | self.history.states(plan_id)
        )
        return filing.close(call, None)


def _stopped_at(call: ToolCall, plan: Plan) -> bool:
    """Return whether this call is the reason why the plan stopped."""
    step = Strategy.from_json(plan.strategy).step_of(call)
    return call.stopped_its_run if step is None else step.problem_with(call) is not None
