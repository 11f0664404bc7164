"""The end of a call: what it left in the sandbox is recorded under it, once, and it says how it ended.

Whoever ends a call may die at any step, and is followed by one who does the same again: a run that goes on, a
cancel, a look at the plan. So each step is decided by what is recorded by then. Changes of one call are
recorded all at once. A changeset that has some has all of its call's, and what is found besides came later,
from a person: it is taken in as a call of its own. One that is closed and has none was given up by a run that
died before it could make the call again; then what is there is recorded in a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.changes.fold import ChangeFold
from cleveragents.changes.model.merge_conflict import tree_left_by
from cleveragents.core.change import ChangeEntry, Changeset
from cleveragents.core.clock import Clock
from cleveragents.core.errors import GitFailed, SandboxMissing, SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.file_state import Difference, entries_between
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import ACP, CallState, ToolCall
from cleveragents.plans.history import REREAD, PlanHistory
from cleveragents.plans.model.undoing import ROLLBACK
from cleveragents.plans.ports.plans import CallStore
from cleveragents.sandboxes.ports import Sandbox

__all__ = ["UNREADABLE", "CallFiling"]

UNREADABLE = (SandboxMissing, SandboxRefused, GitFailed)
"""Why nobody can say what a sandbox holds. What the system refuses may pass: that is tried again."""

_WRITING = (ACP, REREAD, ROLLBACK)
"""Calls that change files, and get a changeset only when there is something to record."""


@dataclass(frozen=True, slots=True)
class CallFiling:
    """Ends calls of one plan. Not thread-safe; whoever uses it holds the `sandbox.writing()`, if there is a
    sandbox. Each method may be begun again after it was interrupted anywhere: nothing is recorded twice."""

    context: PlanExecutionContext
    calls: CallStore
    history: PlanHistory
    clock: Clock
    faults: FaultPoints = field(default_factory=NoFaults)

    def abandon(
        self, reason: str, sandbox: Sandbox | None, *, lost: str = "", fold: ChangeFold | None = None
    ) -> None:
        """Ends all calls that are open, for nobody is to go on with them. What they had done is recorded;
        where that cannot be (there is no sandbox: it is `lost`), the call says so, and why. Where the system
        refuses to look (no room, no right, too many files open), it is left to the next who comes."""
        # The latest first: what a call did that was made within another one is not that one's.
        for call in reversed(self.history.open_calls(self.context.plan_id)):
            if call.state is CallState.STARTED:
                error = f"cancelled: {reason}"
                call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), error=error)
            unknown = lost
            try:
                if sandbox is not None:
                    self.finish(call, sandbox, fold)
                    continue
            except OSError:  # what may be recorded yet is not given up
                continue
            except UNREADABLE as refusal:
                unknown = str(refusal)
            said = f"{call.error or 'interrupted'}; what it changed is not recorded: {unknown}"
            self.close(call, said)

    def finish(self, call: ToolCall, sandbox: Sandbox, fold: ChangeFold | None = None) -> ToolCall:
        """Records what a call that is *ending* left in the sandbox, and ends it. Of a merge, its result says
        what that is: a scan does not see a file that is new and that a rule hides. Once that is recorded,
        what else is there came later."""
        tree = tree_left_by(call)
        filed = self.history.changeset_of(call)
        found: Mapping[str, Difference] = {}
        if tree is not None and (filed is None or not filed.length):  # never back over edits
            found = self.history.leading_to(call.plan_id, sandbox, tree, fold)
        elif call.changeset_id is not None or call.tool in _WRITING:  # else it only read
            found = self.history.unrecorded(call.plan_id, sandbox, fold)
        return self.file(call, found)

    def file(self, call: ToolCall, found: Mapping[str, Difference]) -> ToolCall:
        """Records what was found to be its doing, unless that was done, and ends the call."""
        entries = entries_between(found, tool_call_id=call.call_id)
        changeset = self.history.changeset_of(call) if entries else None
        late = changeset is not None and changeset.length > 0
        if entries and not late:
            call = self._recorded(call, entries, changeset)
        if call.changeset_id is not None:
            self.faults.reach("tool.record.after")
        if late:  # guard: it is in no record yet, and a run that finds no open call would throw it away
            self.file(self._reread(call.plan_id), found)
        ended = self.close(call, call.error)
        self.faults.reach("tool.ended.after")
        return ended

    def recorded(self, call: ToolCall, found: Mapping[str, Difference]) -> ToolCall:
        """The call, with these changes in its changeset; it is as open as it was."""
        entries = entries_between(found, tool_call_id=call.call_id)
        return self._recorded(call, entries, self.history.changeset_of(call)) if entries else call

    def _recorded(
        self, call: ToolCall, entries: Sequence[ChangeEntry], changeset: Changeset | None
    ) -> ToolCall:
        if changeset is None or changeset.closed:  # guard: what is sealed takes nothing more
            fresh = self.context.start_changeset()
            # Before anything is in it: from whom a peer has taken the plan, this is refused.
            call = self.calls.move(call, call.state, now=self.clock.now(), changeset_id=fresh)
        self.context.record_changes(entries, call.changeset_id, key=call.call_id)
        return call

    def close(self, call: ToolCall, error: str | None) -> ToolCall:
        """The call, ended, or failed with that error; nothing more is recorded under it."""
        if call.changeset_id is not None:
            self.context.close_changeset(call.changeset_id)
        state = CallState.ENDED if error is None else CallState.FAILED
        return self.calls.move(call, state, now=self.clock.now(), error=error)

    def _reread(self, plan_id: str) -> ToolCall:
        now = self.clock.now()
        return self.calls.add(plan_id, REREAD, FrozenObject({}), step=None, state=CallState.STARTED, now=now)
