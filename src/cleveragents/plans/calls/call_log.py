"""The end of a call: what it left in the sandbox is recorded under it, once, and it says how it ended.

Whoever ends a call may die at any step, and is followed by one who does the same again: a run that goes on, a
cancel, a look at the plan. So each step is decided by what is recorded by then. Changes of one call are
recorded all at once. A changeset that has some has all of its call's, and what is found besides came later,
from a person: it is taken in as a call of its own. One that is closed and has none was given up by a run that
died before it could make the call again; then what is there is recorded in a fresh one.

The commands of one tool call: in its sandbox, with what it has leave for, no longer than it may take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleveragents.changes.execution_context import ChangeFold, PlanExecutionContext
from cleveragents.changes.model.merge_conflict import tree_left_by
from cleveragents.core.change import ChangeEntry, Changeset, Difference, entries_between
from cleveragents.core.clock import Clock
from cleveragents.core.errors import GitFailed, SandboxMissing, SandboxRefused, ToolRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.tool import ACP, CallState, ToolCall
from cleveragents.plans.history import REREAD, PlanHistory
from cleveragents.plans.model.correction import ROLLBACK
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.processes.ports import (
    Command,
    CommandOptions,
    CommandResult,
    CommandRunner,
    StopSignal,
)
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.resources import working_directory
from cleveragents.tools.timed_tool import EitherStop

__all__ = ["UNREADABLE", "CallCommands", "CallLog"]


UNREADABLE = (SandboxMissing, SandboxRefused, GitFailed)
"""Why nobody can say what a sandbox holds. What the system refuses may pass: that is tried again."""

_WRITING = (ACP, REREAD, ROLLBACK)
"""Calls that change files, and get a changeset only when there is something to record."""


@dataclass(frozen=True, slots=True)
class CallLog:
    """Ends calls of one plan. Not thread-safe; whoever uses it holds the `sandbox.writing()`, if there is a
    sandbox. Each method may be begun again after it was interrupted anywhere: nothing is recorded twice."""

    context: PlanExecutionContext
    calls: SqlCallStore
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCommands:
    """`CommandsHere` of one call. `is_approved` tells whether the call was allowed to use the network, where
    that is not allowed to all. `network_denied`: the policy denies it. `ended` ends a command, and is no
    cancel."""

    tool: str
    runner: CommandRunner
    sandbox: Sandbox
    directory: str
    environment: Mapping[str, str]
    markers: Mapping[str, str]
    network: bool
    network_denied: bool
    is_approved: Callable[[], bool]
    limit_seconds: float
    stop: StopSignal
    ended: StopSignal | None = None
    on_output: Callable[[bytes], None] | None = None

    def __call__(
        self,
        argv: tuple[str, ...],
        *,
        directory: str,
        timeout_seconds: float,
        terms: CommandOptions | None = None,
    ) -> CommandResult:
        terms = terms or CommandOptions()
        if (
            terms.network and not self.network and not self.is_approved()
        ):  # guard: no other leave is one for it
            raise ToolRefused(self.tool, "it wants the network, which it was not allowed to use")
        command = self._command(argv, directory, timeout_seconds, terms)
        stop = self.stop if self.ended is None else EitherStop(self.stop, self.ended)
        done = self.runner.run(command, stop, on_output=self.on_output)
        if done.cancelled and not self.stop.is_cancelled:  # guard: a command that was ended is no cancel
            return replace(done, cancelled=False)
        return done

    def inputs_of(self, argv: tuple[str, ...]) -> Mapping[str, JsonValue]:
        """What decides the outcome of this command, besides the files of the sandbox."""
        return self.runner.inputs_of(self._command(argv, "", self.limit_seconds, CommandOptions()))

    def _command(
        self, argv: tuple[str, ...], directory: str, timeout_seconds: float, terms: CommandOptions
    ) -> Command:
        return Command(
            argv=argv,
            root=self.sandbox.root,
            directory=working_directory(self.sandbox.root, self.directory) / directory,
            timeout_seconds=min(timeout_seconds, self.limit_seconds),
            network=self.network or terms.network,
            readable=(*self.sandbox.readable, *terms.readable),
            environment={**self.environment, **terms.environment},
            markers=self.markers,
            input=terms.input,
            output_limit_bytes=terms.output_limit_bytes,
            passed=terms.passed,
            home=terms.home,
            processes=terms.processes,
            network_denied=self.network_denied,
        )
