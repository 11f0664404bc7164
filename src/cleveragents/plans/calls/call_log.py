"""The end of a tool call: its changes are recorded under it, once, and its outcome is stored.

A process may die at any step. The next process that resumes, cancels or views the plan repeats the same
steps, so each step depends only on earlier records. All changes of a call are recorded at once. A changeset
with entries is therefore complete; further changes come from a person and are recorded as a separate call. A
closed changeset without entries belongs to a run that died before it could repeat the call; the changes of
the call go into a new changeset.

`CallCommands` runs the commands of one call in its sandbox, within its permissions and its time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

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
"""Errors after which the content of a sandbox stays unknown. An `OSError` may pass and is retried."""

_WRITING = (ACP, REREAD, ROLLBACK)
"""Calls that change files but get a changeset only if there is something to record."""


class CallLog(Struct, frozen=True):
    """Ends the calls of one plan. Not thread-safe; the caller holds `sandbox.writing()` if there is a
    sandbox. Every method may be repeated after an interruption: nothing is recorded twice.
    """

    context: PlanExecutionContext
    calls: SqlCallStore
    history: PlanHistory
    clock: Clock
    faults: FaultPoints = field(default_factory=NoFaults)

    def abandon(
        self, reason: str, sandbox: Sandbox | None, *, lost: str = "", fold: ChangeFold | None = None
    ) -> None:
        """End all open calls, because they are not resumed, and record their changes.

        If the changes of a call cannot be recorded, its error has the reason; `lost` is the reason if there
        is no sandbox. If the system refuses access (disk full, permissions, too many open files), the call
        stays open for the next process.
        """
        # Latest first: the changes of a nested call do not belong to the outer one.
        for call in reversed(self.history.open_calls(self.context.plan_id)):
            if call.state is CallState.STARTED:
                error = f"cancelled: {reason}"
                call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), error=error)
            unknown = lost
            try:
                if sandbox is not None:
                    self.finish(call, sandbox, fold)
                    continue
            except OSError:  # it may be recorded later, so it stays open
                continue
            except UNREADABLE as refusal:
                unknown = str(refusal)
            said = f"{call.error or 'interrupted'}; the changes of the call were not recorded: {unknown}"
            self.close(call, said)

    def finish(self, call: ToolCall, sandbox: Sandbox, fold: ChangeFold | None = None) -> ToolCall:
        """Record the changes of a call that is *ending*, and end it.

        The changes of a merge are computed from the tree in its result, because a scan of the sandbox misses
        new files that an ignore rule hides. Other changes in the sandbox are later edits.
        """
        tree = tree_left_by(call)
        filed = self.history.changeset_of(call)
        found: Mapping[str, Difference] = {}
        if tree is not None and (filed is None or not filed.length):  # never over later edits
            found = self.history.leading_to(call.plan_id, sandbox, tree, fold)
        elif call.changeset_id is not None or call.tool in _WRITING:  # otherwise it only read
            found = self.history.unrecorded(call.plan_id, sandbox, fold)
        return self.file(call, found)

    def file(self, call: ToolCall, found: Mapping[str, Difference]) -> ToolCall:
        """Record the changes of the call, unless they are already recorded, and end it."""
        entries = entries_between(found, tool_call_id=call.call_id)
        changeset = self.history.changeset_of(call) if entries else None
        late = changeset is not None and changeset.length > 0
        if entries and not late:
            call = self._recorded(call, entries, changeset)
        if call.changeset_id is not None:
            self.faults.reach("tool.record.after")
        if late:  # guard: unrecorded edits would be lost in a run that finds no open call
            self.file(self._reread(call.plan_id), found)
        ended = self.close(call, call.error)
        self.faults.reach("tool.ended.after")
        return ended

    def recorded(self, call: ToolCall, found: Mapping[str, Difference]) -> ToolCall:
        """Record these changes in the changeset of the call, and leave the call open."""
        entries = entries_between(found, tool_call_id=call.call_id)
        return self._recorded(call, entries, self.history.changeset_of(call)) if entries else call

    def _recorded(
        self, call: ToolCall, entries: Sequence[ChangeEntry], changeset: Changeset | None
    ) -> ToolCall:
        if changeset is None or changeset.closed:  # guard: a closed changeset takes no entries
            fresh = self.context.start_changeset()
            # Before the first entry: this is refused if another worker has taken the plan.
            call = self.calls.move(call, call.state, now=self.clock.now(), changeset_id=fresh)
        self.context.record_changes(entries, call.changeset_id, key=call.call_id)
        return call

    def close(self, call: ToolCall, error: str | None) -> ToolCall:
        """End the call, or fail it with the error; its changeset is closed."""
        if call.changeset_id is not None:
            self.context.close_changeset(call.changeset_id)
        state = CallState.ENDED if error is None else CallState.FAILED
        return self.calls.move(call, state, now=self.clock.now(), error=error)

    def _reread(self, plan_id: str) -> ToolCall:
        now = self.clock.now()
        return self.calls.add(plan_id, REREAD, FrozenObject({}), step=None, state=CallState.STARTED, now=now)


class CallCommands(Struct, frozen=True, kw_only=True):
    """The commands of one call. `network`: all calls may use the network; if false, `is_approved` decides for
    this call. `network_denied`: the policy denies the network. Setting `ended` stops a command without
    cancelling the call.
    """

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
        ):  # guard: other approvals do not cover the network
            raise ToolRefused(self.tool, "network access is not allowed for this call")
        command = self._command(argv, directory, timeout_seconds, terms)
        stop = self.stop if self.ended is None else EitherStop(self.stop, self.ended)
        done = self.runner.run(command, stop, on_output=self.on_output)
        if done.cancelled and not self.stop.is_cancelled:  # guard: a stopped command is no cancel
            return replace(done, cancelled=False)
        return done

    def inputs_of(self, argv: tuple[str, ...]) -> Mapping[str, JsonValue]:
        """Return the inputs that decide the outcome of the command, besides the files of the sandbox."""
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
