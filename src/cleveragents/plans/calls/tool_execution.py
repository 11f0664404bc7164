"""The tool calls of one run of a plan: approved, checkpointed, executed and recorded, one at a time.

A call goes through durable states, so that a run that is killed anywhere continues without repeating or
losing anything:

    started ─▶ (the tool works) ─▶ ending, with its result ─▶ (its changes are recorded) ─▶ ended | failed

The next run reads the state of the call. If the call is *started*, it was interrupted: the sandbox is
restored to its recorded state, and the call is made again. If the call is *ending*, its tool has finished,
and the sandbox has not changed since: only the recording is completed. If the call is ended or failed, its
stored result is returned.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.actors.model.actor import at_stake, server_request
from cleveragents.changes.execution_context import ChangeFold, PlanExecutionContext
from cleveragents.changes.model.merge_conflict import EDITED_STEP, is_by_hand
from cleveragents.core.actions.model import broken_by
from cleveragents.core.change import Difference, FileState
from cleveragents.core.clock import Clock
from cleveragents.core.command_rule import argv_of
from cleveragents.core.errors import (
    CallDenied,
    Cancelled,
    CleverAgentsError,
    GitFailed,
    NeedsHuman,
    NetworkNotDenied,
    PolicyDenied,
    Remedy,
    ToolRefused,
)
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.policy import Capability, Policy, Verdict
from cleveragents.core.text.redaction import redact, redact_content, redact_known
from cleveragents.core.tool import MCP, CallState, ToolCall, approval_digest
from cleveragents.plans.calls.call_log import CallCommands, CallLog
from cleveragents.plans.history import PlanHistory, restore_states
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.processes.ports import CommandRunner, StopSignal
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.tools.ports import SandboxFiles, Tool, ToolSource, Workplace
from cleveragents.tools.timed_tool import TimedTool

__all__ = ["CallRequest", "FilesIn", "ToolExecution"]

FilesIn = Callable[[Path, Callable[[str], None]], SandboxFiles]
"""Opens the files below a directory; the callable gets each path before its first change."""

_UNISOLATED = "; without isolation it can read and change all your files, and use the network"
_COMMAND = "command"
_UNDO = "undo"
_SHELL = ("/bin/sh", "-c")
_SUBJECTS = ("path", "source", "glob", "title", "asks")
_REQUEST = 300
_OF_FILES = (Capability.READ, Capability.EDIT, Capability.CREATE, Capability.DELETE)


class CallRequest(Struct, frozen=True):
    """A requested call. `step` is its permanent name: a finished step is not repeated. Several calls of one
    step are named `step.id`, as in `ToolCall`.

    `granted`: a person has already approved exactly this request, so its command needs no further approval.
    `ended` stops the commands of the call without cancelling it. `on_output` receives their output.
    """

    step: str
    tool: str
    arguments: Mapping[str, JsonValue]
    capability: Capability | None = None
    granted: bool = False
    timeout_seconds: float | None = None
    ended: StopSignal | None = None
    on_output: Callable[[bytes], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """Makes calls in one sandbox. Not thread-safe: its run makes one call after the other.

    Calls of several processes exclude each other, too: a call holds the sandbox's `writing()` from its first
    change until its changes are recorded. The cost of a call does not depend on the number of earlier calls.
    `by_agent`: an agent chooses the calls, not the user or an action.
    `project_rules`: approval rules of the project count.
    """

    sandbox: Sandbox
    policy: Policy
    stop: StopSignal
    calls: SqlCallStore
    context: PlanExecutionContext
    history: PlanHistory
    tools: ToolSource
    commands: CommandRunner
    files_in: FilesIn
    clock: Clock
    directory: str = ""
    markers: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    on_output: Callable[[bytes], None] | None = None
    faults: FaultPoints = field(default_factory=NoFaults)
    busy_seconds: float = 30.0
    invariants: tuple[str, ...] = ()
    by_agent: bool = False
    project_rules: bool = True
    _fold: ChangeFold = field(default_factory=ChangeFold, init=False, repr=False, compare=False)

    def settle(self) -> None:
        """Recover from an interruption: finish recording finished calls, and revert unfinished calls."""
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            for call in self.history.calls(self._plan_id):
                if call.state is CallState.ENDING:
                    self.finish(call)
                elif call.state is CallState.STARTED:
                    if call.changeset_id is not None:
                        # The call is made again under a new changeset; this one takes no more entries.
                        self.context.close_changeset(call.changeset_id)
                    # guard: no run continues it, and an open call hides edits
                    if is_by_hand(call) or EDITED_STEP in (call.step or ""):
                        self.calls.move(call, CallState.FAILED, now=self.clock.now(), error="interrupted")
            restore_states(self.sandbox, self.history.states(self._plan_id, self._fold))

    def abandon(self, reason: str) -> None:
        """Recover from a cancel: record the changes of unfinished calls and mark these calls as cancelled."""
        if self.history.open_calls(self._plan_id):
            with self.sandbox.writing(timeout_seconds=self.busy_seconds):
                self._filing.abandon(reason, self.sandbox, fold=self._fold)

    def finish(self, call: ToolCall) -> ToolCall:
        """Record the changes of a call that is *ending*, and end it. The caller holds `sandbox.writing()`."""
        return self._filing.finish(call, self.sandbox, self._fold)

    def call(self, request: CallRequest) -> ToolCall:
        """Make the call, record it and return it. If the tool refused or failed, the `error` of the call has
        the reason.

        Raises `NeedsHuman` if the policy requires approval; `PolicyDenied`; `Cancelled`.
        """
        earlier = self.earlier(request.step)
        if earlier is not None and earlier.is_over:  # guard: a finished call is not repeated
            return earlier
        self.stop.raise_if_cancelled()
        try:
            tool = self.tools.get(request.tool)
            capability = request.capability or self._needed(tool, request)
        except NeedsHuman:  # a request for approval is no failure of the call
            raise
        except CleverAgentsError as refusal:
            return self._refused(request, earlier, str(refusal))
        call = self._allowed(tool, request, capability, earlier)
        if not tool.spec.writes:
            if call is earlier:  # it was interrupted and begins now
                call = self.calls.move(call, CallState.STARTED, now=self.clock.now())
            return self._read(tool, call, request)
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            return self._write(tool, call, request)

    def begin(self, request: CallRequest) -> ToolCall:
        """Start a call that runs beside other calls and needs no tool of ours, and return it. The caller ends
        it, and records its changes with `take_in`. A call that has already finished is returned unchanged.

        Raises `NeedsHuman`, `PolicyDenied`, `CallDenied`; `Cancelled`.
        """
        earlier = self.earlier(request.step)
        if earlier is not None and earlier.is_over:
            return earlier
        self.stop.raise_if_cancelled()
        assert request.capability is not None
        return self._allowed(None, request, request.capability, earlier)

    def refuse(self, request: CallRequest, reason: str) -> ToolCall:
        """Record a refused call as failed, with the reason. Repeating this records nothing new."""
        earlier = self.earlier(request.step)
        if earlier is not None and earlier.is_over:
            return earlier
        return self._refused(request, earlier, reason)

    def earlier(self, step: str) -> ToolCall | None:
        """Return the call of the step, in any state; None if there is none or it was rolled back."""
        return self.history.latest(self._plan_id, step)

    def note(self, step: str, tool: str, arguments: Mapping[str, JsonValue]) -> ToolCall:
        """Record unrecorded changes of the sandbox under a call that needed no tool."""
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            call = self._added(step, tool, arguments, CallState.STARTED)
            changeset = self.context.start_changeset()
            call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), changeset_id=changeset)
            return self._filing.file(call, self._unrecorded())

    def undo(self, step: str, states: Mapping[str, FileState | None], reason: str) -> ToolCall:
        """Restore files of the sandbox to earlier states, as a recorded call.

        If the process dies before the call is recorded, nothing is undone: the next run restores the sandbox
        to the records.
        """
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            restore_states(self.sandbox, states)
            call = self._added(step, _UNDO, {"reason": reason}, CallState.STARTED)
            changeset = self.context.start_changeset()
            call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), changeset_id=changeset)
            return self._filing.file(call, self._unrecorded())

    def take_in(self, step: str, tool: str, arguments: Mapping[str, JsonValue]) -> ToolCall | None:
        """Record unrecorded changes like `note`; return None if there are none. If they break an invariant,
        all of them are reverted and the call fails. Works after a cancel too.
        """
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            found = self._unrecorded()
            if not found:
                return None
            call = self._added(step, tool, arguments, CallState.STARTED)
            broken = broken_by(self.invariants, found)
            if broken is not None:  # guard: invariants hold for every process that works here
                restore_states(self.sandbox, self.history.states(self._plan_id, self._fold))
                error = f"all changes of the call were reverted: {broken}"
                return self.calls.move(call, CallState.FAILED, now=self.clock.now(), error=error)
            changeset = self.context.start_changeset()
            call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), changeset_id=changeset)
            return self._filing.file(call, found)

    @property
    def network(self) -> bool:
        """Whether commands may use the network without approval. A running command cannot
        request approval.
        """
        return self.policy.verdict(Capability.NETWORK) is Verdict.ALLOW

    @property
    def network_denied(self) -> bool:
        """Whether the policy denies the network. If so, commands that cannot be isolated are refused."""
        return self.policy.verdict(Capability.NETWORK) is Verdict.DENY

    def verdict(self, capability: Capability) -> Verdict:
        """Return the verdict of the policy, which depends on whether commands are isolated on
        this machine.
        """
        if capability is not Capability.COMMAND:
            return self.policy.verdict(capability)
        return self.policy.command_verdict(isolated=self.commands.isolates, by_agent=self.by_agent)

    def command_inputs(self, argv: tuple[str, ...]) -> Mapping[str, JsonValue]:
        """Return the inputs that decide the outcome of a command, besides the files of the sandbox."""
        return self._commands_of(_COMMAND).inputs_of(argv)

    def _commands_of(self, tool: str) -> CallCommands:
        return CallCommands(
            tool=tool,
            runner=self.commands,
            sandbox=self.sandbox,
            directory=self.directory,
            environment=self.environment,
            markers=self.markers,
            network=self.network,
            network_denied=self.network_denied,
            is_approved=lambda: False,
            limit_seconds=float("inf"),
            stop=self.stop,
        )

    @property
    def _filing(self) -> CallLog:
        return CallLog(self.context, self.calls, self.history, self.clock, self.faults)

    @property
    def _plan_id(self) -> str:
        return self.sandbox.plan_id

    def _allowed(
        self, tool: Tool | None, request: CallRequest, capability: Capability, earlier: ToolCall | None
    ) -> ToolCall:
        """Start the call and return it. Raises an error if the call may not run."""
        earlier = self._still_meant(request, earlier)
        verdict = self._verdict(tool, capability)
        if request.granted and verdict is Verdict.ASK:  # guard: denied stays denied
            verdict = Verdict.ALLOW
        if verdict is Verdict.DENY:
            raise self._denied(f"{request.tool} ({request.step})", tool, capability)
        if earlier is not None and earlier.state is CallState.ASKED:
            return self._answered(earlier, capability)
        if earlier is not None:
            return earlier
        if verdict is Verdict.ASK:
            started = self._started_by_rule(tool, request, capability)
            if started is None:
                raise self._asking(self._requested(request), capability)
            return started
        return self._added(request.step, request.tool, _kept(request, tool), CallState.STARTED)

    def _answered(self, call: ToolCall, capability: Capability) -> ToolCall:
        """Start the call that a person approved. Raises `NeedsHuman` without an answer, `CallDenied`."""
        now = self.clock.now()
        if call.approval is None:
            raise self._asking(call, capability)
        if call.approval != "granted":
            why = "denied by a person" if call.reason is None else f"denied by a person: {call.reason}"
            self.calls.move(call, CallState.FAILED, now=now, error=why)
            raise CallDenied(self._plan_id, f"call {call.number} ({call.tool}) was {why}")
        return self.calls.move(call, CallState.STARTED, now=now)

    def _started_by_rule(
        self, tool: Tool | None, request: CallRequest, capability: Capability
    ) -> ToolCall | None:
        """Return the call of a command, started by an approval rule; None if a person has to be asked."""
        if tool is None or request.tool != _COMMAND or capability is not Capability.COMMAND:
            return None
        argv = argv_of(request.arguments)
        if argv is None or not self.commands.isolates:  # guard: a rule covers nothing outside the sandbox
            return None
        kept, now = _kept(request, tool), self.clock.now()
        return self.calls.start_by_rule(
            self._plan_id,
            request.tool,
            kept,
            argv,
            step=request.step,
            now=now,
            project_rules=self.project_rules,
        )

    def digest_of(self, tool: str, arguments: Mapping[str, JsonValue]) -> str:
        """Return the digest that an approval of this call in this plan is bound to. See `approval_digest`."""
        return approval_digest(self._plan_id, tool, arguments)

    def _still_meant(self, request: CallRequest, earlier: ToolCall | None) -> ToolCall | None:
        """Return the earlier call of the step; None if a rule approved it, or if a person was asked about
        other arguments.
        """
        if earlier is not None and earlier.rule is not None:
            # The rule may be revoked by now, or not cover these arguments
            error = "interrupted; the new call needs approval again"
            self.calls.move(earlier, CallState.FAILED, now=self.clock.now(), error=error)
            return None
        if earlier is None or (earlier.state is not CallState.ASKED and earlier.approval is None):
            return earlier
        # guard: an approval holds for the exact arguments that were shown
        if earlier.digest == self.digest_of(request.tool, request.arguments):
            return earlier
        if earlier.state is not CallState.ASKED:
            error = "interrupted, then requested with other arguments"
            self.calls.move(earlier, CallState.FAILED, now=self.clock.now(), error=error)
        return None

    def _requested(self, request: CallRequest) -> ToolCall:
        """Record the request for approval. In its arguments, which a person reads, only known secrets are
        masked: masking by name or shape could hide code.
        """
        shown = freeze(redact_known(request.arguments))
        assert isinstance(shown, FrozenObject)
        digest = self.digest_of(request.tool, request.arguments)
        return self._added(request.step, request.tool, shown, CallState.ASKED, digest)

    def _verdict(self, tool: Tool | None, capability: Capability) -> Verdict:
        verdict = self.verdict(capability)
        if tool is not None and tool.spec.runs_commands:  # guard: network approval covers no command
            verdict = max(verdict, self.verdict(tool.spec.capability), key=lambda one: one.strictness)
        return verdict

    def _denied(self, what: str, tool: Tool | None, capability: Capability) -> PolicyDenied:
        needed = {capability} if tool is None else {capability, tool.spec.capability}
        by_policy = any(self.policy.verdict(one) is Verdict.DENY for one in needed)
        denied = PolicyDenied if by_policy else NetworkNotDenied
        return denied(what, self.policy.name, capability.value)

    def _needed(self, tool: Tool, request: CallRequest) -> Capability:
        files = self.files_in(self.sandbox.root, _nothing)
        return self.tools.capability_of(tool, request.arguments, files)

    def _refused(self, request: CallRequest, earlier: ToolCall | None, reason: str) -> ToolCall:
        """Record a call that cannot be made as failed, with the reason; no approval is requested."""
        call = earlier or self._added(request.step, request.tool, _kept(request), CallState.STARTED)
        return self.calls.move(call, CallState.FAILED, now=self.clock.now(), error=reason)

    def _added(
        self,
        step: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        state: CallState,
        digest: str | None = None,
    ) -> ToolCall:
        now = self.clock.now()
        return self.calls.add(self._plan_id, tool, arguments, step=step, state=state, now=now, digest=digest)

    def _asking(self, call: ToolCall, capability: Capability) -> NeedsHuman:
        what = f"call {call.number} needs approval for {capability.value}: {_request_of(call)}"
        if call.tool != MCP and capability is Capability.COMMAND and not self.commands.isolates:
            what += _UNISOLATED
        number = {"call": call.number}
        approve = Remedy("plan.approve", self._plan_id, number, "Approve")
        return NeedsHuman(self._plan_id, what, (approve, Remedy("plan.deny", self._plan_id, number, "Deny")))

    def _read(self, tool: Tool, call: ToolCall, request: CallRequest) -> ToolCall:
        def refuse(path: str) -> None:
            raise ToolRefused(tool.spec.name, f"declared read-only, so it cannot change {path!r}")

        files = self.files_in(self.sandbox.root, refuse)  # guard: a read-only tool changes no file
        result, error = self._work(tool, request, files)
        state = CallState.ENDED if error is None else CallState.FAILED
        return self.calls.move(call, state, now=self.clock.now(), result=result, error=_text(error))

    def _write(self, tool: Tool, call: ToolCall, request: CallRequest) -> ToolCall:
        changeset = self.context.start_changeset()
        call = self.calls.move(call, CallState.STARTED, now=self.clock.now(), changeset_id=changeset)
        before: dict[str, FileState | None] = {}
        files = self.files_in(self.sandbox.root, lambda path: self._note(tool, before, path))
        self.faults.reach("tool.work.before")
        result, error = self._work(tool, request, files)
        self.faults.reach("tool.work.after")
        error = error or self._broken(tool, before)
        call = self.calls.move(
            call, CallState.ENDING, now=self.clock.now(), result=result, error=_text(error)
        )
        self.faults.reach("tool.ending.after")
        return (
            self.finish(call) if tool.spec.runs_commands else self._filing.file(call, self._touched(before))
        )

    def _note(self, tool: Tool, before: dict[str, FileState | None], path: str) -> None:
        broken = broken_by(self.invariants, [path])
        if broken is not None:  # guard: invariants are enforced
            raise ToolRefused(tool.spec.name, f"nothing was changed: {broken}")
        if path not in before:
            before[path] = self.sandbox.state_of(path)

    def _broken(self, tool: Tool, before: Mapping[str, FileState | None]) -> CleverAgentsError | None:
        """Revert the changes of a call that broke an invariant, and return the error."""
        if not self.invariants:
            return None
        found = self._unrecorded() if tool.spec.runs_commands else self._touched(before)
        broken = broken_by(self.invariants, found)
        if broken is None:
            return None
        restore_states(self.sandbox, self.history.states(self._plan_id, self._fold))
        return ToolRefused(tool.spec.name, f"all changes of the call were reverted: {broken}")

    def _unrecorded(self) -> Mapping[str, Difference]:
        return self.history.unrecorded(self._plan_id, self.sandbox, self._fold)

    def _touched(self, before: Mapping[str, FileState | None]) -> dict[str, Difference]:
        hidden = self.sandbox.ignored(before)
        if hidden:
            # Files that no scan sees are not part of a result, unless they were before a rule hid them.
            hidden -= self.history.differences(self._plan_id, self._fold).keys()
        return {
            path: Difference(state, self.sandbox.state_of(path))
            for path, state in before.items()
            if path not in hidden
        }

    def _work(
        self, tool: Tool, request: CallRequest, files: SandboxFiles
    ) -> tuple[JsonValue, CleverAgentsError | None]:
        """Return the result of the tool, or its refusal. Other exceptions propagate."""
        limit = request.timeout_seconds if request.timeout_seconds is not None else float("inf")
        ends = self.clock.monotonic() + limit
        run = replace(
            self._commands_of(request.tool),
            is_approved=lambda: self._needed(tool, request) is Capability.NETWORK,
            limit_seconds=limit,
            ended=request.ended,
            on_output=request.on_output or self.on_output,
        )
        timed = TimedTool(tool, lambda: ends - self.clock.monotonic())
        try:
            result = timed.call(request.arguments, Workplace(files, run, self.stop, self.directory))
            self.stop.raise_if_cancelled()
        except Cancelled:
            raise  # the call stays open: another attempt repeats it, or `abandon` ends it
        except CleverAgentsError as error:
            return None, error
        return freeze(_masked(result, tool)), None


def _nothing(path: str) -> None:
    """Ignore the path."""


def _kept(request: CallRequest, tool: Tool | None = None) -> FrozenObject:
    """Return the arguments of a call, masked, as they are recorded for people. These arguments are only for
    display; a repeated call passes its own arguments.
    """
    masked = freeze(redact(request.arguments) if tool is None else _masked(request.arguments, tool))
    assert isinstance(masked, FrozenObject)
    return masked


def _masked(result: JsonValue, tool: Tool) -> object:
    """Return the result, masked for records and models. In file content, which must otherwise stay unchanged,
    only unmistakable secrets are masked; in program output, values with secret names are masked, too.
    """
    of_files = tool.spec.capability in _OF_FILES and not tool.spec.runs_commands
    return redact_content(result) if of_files else redact(result)  # guard: `env` prints its secrets by name


def _request_of(call: ToolCall) -> str:
    """Return a description of the call on one line, such as: run `pytest -q`."""
    arguments = call.arguments
    if call.tool == MCP:
        return server_request(arguments)
    agent = at_stake(arguments)
    if agent:
        return agent.removeprefix(": ")
    argv, names = arguments.get("argv"), arguments.get("sub_plans")
    if isinstance(argv, tuple | list):
        shell = len(argv) == 3 and tuple(argv[:2]) == _SHELL
        return f"run `{_cut(str(argv[2]) if shell else shlex.join(map(str, argv)))}`"
    if "script" in arguments:
        return f"run `{_cut(str(arguments['script']))}`"
    if isinstance(names, tuple | list):
        return f"start sub-plans: {_cut(', '.join(map(str, names)))}"
    subject = next((arguments[key] for key in _SUBJECTS if arguments.get(key)), "")
    return f"{call.tool} {_cut(str(subject))}".strip()


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REQUEST else f"{line[:_REQUEST]}…"


def _text(error: CleverAgentsError | None) -> str | None:
    """Return the error text for the actor and for people."""
    if isinstance(error, GitFailed):  # guard: git may quote files of the host
        import structlog

        structlog.get_logger(__name__).debug("tool.git_failed", command=error.command, problem=error.problem)
        return f"git {error.command} failed"
    return None if error is None else str(error)
