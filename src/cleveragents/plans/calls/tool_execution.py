"""The tool calls of one run of one plan: allowed, checkpointed, done, recorded, in that order, one at a time.

A call goes through durable states, so that a run that is killed anywhere goes on without repeating or losing
anything:

    started ─▶ (the tool works) ─▶ ending, with its result ─▶ (its changes are recorded) ─▶ ended | failed

Found *started*, the call was interrupted: the sandbox is brought back to what is recorded and the call is
made again. Found *ending*, the tool was done and nothing has touched the sandbox since: only the recording is
finished. Found ended or failed, its result is returned and nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cleveragents.actors.model.actor import at_stake, server_request
from cleveragents.changes.execution_context import ChangeFold, PlanExecutionContext
from cleveragents.changes.model.merge_conflict import is_by_hand
from cleveragents.core.actions.model import broken_by
from cleveragents.core.change import Difference, FileState
from cleveragents.core.clock import Clock
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
from cleveragents.plans.history import PlanHistory, bring_to
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.processes.ports import CommandRunner, StopSignal
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.tools.ports import SandboxFiles, Tool, ToolSource, Workplace
from cleveragents.tools.timed_tool import TimedTool

__all__ = ["DONE", "CallRequest", "FilesIn", "ToolExecution"]

FilesIn = Callable[[Path, Callable[[str], None]], SandboxFiles]
"""Opens the files below a directory; the callable hears of a path before its first change."""

DONE = (CallState.ENDED, CallState.FAILED)
"""Where a call is over, however it ended."""

_UNISOLATED = "; it is not isolated, so it can read and change whatever you can, and use the network"
_OF_FILES = (Capability.READ, Capability.EDIT, Capability.CREATE, Capability.DELETE)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """What is to be done. The `step` names it for good: a step that is done is not done again. The parts of
    a step are named `step.something`, as `ToolCall` says.

    `granted`: the user asked for exactly this, so it needs no further leave to run a command. `ended` ends
    the commands that it runs, and is no cancel: the call goes on to its end. `on_output` hears them instead.
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
    """Makes calls in one sandbox. Not thread-safe: the run that made it uses it, one call after the other.

    That is held across processes, too: a call holds the sandbox's `writing()` from its first change until
    what it changed is recorded. What a call costs does not depend on how many the plan made before.
    `by_agent`: an agent chooses the calls, not the user or an action.
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
    _fold: ChangeFold = field(default_factory=ChangeFold, init=False, repr=False, compare=False)

    def settle(self) -> None:
        """After an interruption: finishes recording what was done, and takes back what was half done."""
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            for call in self.history.calls(self._plan_id):
                if call.state is CallState.ENDING:
                    self.finish(call)
                elif call.state is CallState.STARTED and call.changeset_id is not None:
                    # The call is made again under a changeset of its own; nothing more belongs in this one.
                    self.context.close_changeset(call.changeset_id)
                    if is_by_hand(call):  # guard: no run makes it again, and an open call hides edits by hand
                        self.calls.move(call, CallState.FAILED, now=self.clock.now(), error="interrupted")
            bring_to(self.sandbox, self.history.states(self._plan_id, self._fold))

    def abandon(self, reason: str) -> None:
        """After a cancel: what was half done is recorded, too, and its call says that it was cancelled."""
        if self.history.open_calls(self._plan_id):
            with self.sandbox.writing(timeout_seconds=self.busy_seconds):
                self._filing.abandon(reason, self.sandbox, fold=self._fold)

    def finish(self, call: ToolCall) -> ToolCall:
        """Records what a call that is *ending* left in the sandbox, and ends it. The caller holds
        `sandbox.writing()`."""
        return self._filing.finish(call, self.sandbox, self._fold)

    def call(self, request: CallRequest) -> ToolCall:
        """The call, done and recorded; its `error` says what the tool refused or could not do.

        `NeedsHuman` when the policy wants a person's leave first; `PolicyDenied`; `Cancelled`.
        """
        earlier = self.earlier(request.step)
        if earlier is not None and earlier.state in DONE:  # guard: a finished call is not repeated
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
            if call is earlier:  # it was cut off: it begins now, not when whoever died began it
                call = self.calls.move(call, CallState.STARTED, now=self.clock.now())
            return self._read(tool, call, request)
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            return self._write(tool, call, request)

    def begin(self, request: CallRequest) -> ToolCall:
        """Leave for what goes on beside other calls, and needs no tool of ours: the call is started, and
        whoever began it moves it to its end. What it changes is filed by `take_in`. One that is done is
        returned as it is.

        `NeedsHuman`, `PolicyDenied`, `CallDenied`; `Cancelled`.
        """
        earlier = self.earlier(request.step)
        if earlier is not None and earlier.state in DONE:
            return earlier
        self.stop.raise_if_cancelled()
        assert request.capability is not None
        return self._allowed(None, request, request.capability, earlier)

    def refuse(self, request: CallRequest, reason: str) -> ToolCall:
        """A call that is not made, kept as one that failed, once: whoever looks for it finds out why."""
        earlier = self.earlier(request.step)
        if earlier is not None and earlier.state in DONE:
            return earlier
        return self._refused(request, earlier, reason)

    def earlier(self, step: str) -> ToolCall | None:
        """The call that was made for the step, however far it got; None if none was, or it was taken back."""
        return self.history.latest(self._plan_id, step)

    def note(self, step: str, tool: str, arguments: Mapping[str, JsonValue]) -> ToolCall:
        """What the sandbox holds and nobody recorded, filed as the doing of a call that needed no tool."""
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            call = self._added(step, tool, arguments, CallState.STARTED)
            changeset = self.context.start_changeset()
            call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), changeset_id=changeset)
            return self._filing.file(call, self._unrecorded())

    def take_in(self, step: str, tool: str, arguments: Mapping[str, JsonValue]) -> ToolCall | None:
        """As `note`, if there is anything. What no plan may do here is taken back, with all that came with
        it, and the call says so. Also after a cancel: what is there is recorded."""
        with self.sandbox.writing(timeout_seconds=self.busy_seconds):
            found = self._unrecorded()
            if not found:
                return None
            call = self._added(step, tool, arguments, CallState.STARTED)
            broken = broken_by(self.invariants, found)
            if broken is not None:  # guard: an invariant is enforced on whoever works here
                bring_to(self.sandbox, self.history.states(self._plan_id, self._fold))
                error = f"all that it did was taken back: {broken}"
                return self.calls.move(call, CallState.FAILED, now=self.clock.now(), error=error)
            changeset = self.context.start_changeset()
            call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), changeset_id=changeset)
            return self._filing.file(call, found)

    @property
    def network(self) -> bool:
        """Whether commands may use it; what would have to be asked for, a running command cannot."""
        return self.policy.verdict(Capability.NETWORK) is Verdict.ALLOW

    @property
    def network_denied(self) -> bool:
        """Whether no command may use it; one that cannot be isolated is refused then."""
        return self.policy.verdict(Capability.NETWORK) is Verdict.DENY

    def verdict(self, capability: Capability) -> Verdict:
        """The policy's answer, given whether commands are isolated here."""
        if capability is not Capability.COMMAND:
            return self.policy.verdict(capability)
        return self.policy.command_verdict(isolated=self.commands.isolates, by_agent=self.by_agent)

    def command_inputs(self, argv: tuple[str, ...]) -> Mapping[str, JsonValue]:
        """What decides the outcome of a command of this run, besides the files of the sandbox."""
        return self._commands_of("command").inputs_of(argv)

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
        """The call, started, or the reason why it may not be."""
        earlier = self._still_meant(request, earlier)
        verdict, now = self._verdict(tool, capability), self.clock.now()
        if request.granted and verdict is Verdict.ASK:  # guard: what is denied stays denied
            verdict = Verdict.ALLOW
        if verdict is Verdict.DENY:
            raise self._denied(f"{request.tool} ({request.step})", tool, capability)
        if earlier is not None and earlier.state is CallState.ASKED:
            if earlier.approval is None:
                raise self._asking(earlier, capability)
            if earlier.approval != "granted":
                self.calls.move(earlier, CallState.FAILED, now=now, error="a person denied it")
                raise CallDenied(
                    self._plan_id, f"call {earlier.number} ({request.tool}) was denied by a person"
                )
            return self.calls.move(earlier, CallState.STARTED, now=now)
        if earlier is not None:
            return earlier
        if verdict is Verdict.ASK:
            raise self._asking(self._requested(request), capability)
        return self._added(request.step, request.tool, _kept(request, tool), CallState.STARTED)

    def digest_of(self, tool: str, arguments: Mapping[str, JsonValue]) -> str:
        """Return what an approval of that call is bound to in this plan."""
        return approval_digest(self._plan_id, tool, arguments)

    def _still_meant(self, request: CallRequest, earlier: ToolCall | None) -> ToolCall | None:
        """Return the earlier call of the step, or None if a person was asked about other arguments."""
        if earlier is None or (earlier.state is not CallState.ASKED and earlier.approval is None):
            return earlier
        # guard: an approval holds for the exact arguments that were shown
        if earlier.digest == self.digest_of(request.tool, request.arguments):
            return earlier
        if earlier.state is not CallState.ASKED:
            error = "interrupted, and then requested with other arguments"
            self.calls.move(earlier, CallState.FAILED, now=self.clock.now(), error=error)
        return None

    def _requested(self, request: CallRequest) -> ToolCall:
        """Record the request for approval. A person decides by its arguments, so only known secrets are
        masked in them: a name or a shape would hide code."""
        shown = freeze(redact_known(request.arguments))
        assert isinstance(shown, FrozenObject)
        digest = self.digest_of(request.tool, request.arguments)
        return self._added(request.step, request.tool, shown, CallState.ASKED, digest)

    def _verdict(self, tool: Tool | None, capability: Capability) -> Verdict:
        verdict = self.verdict(capability)
        if tool is not None and tool.spec.runs_commands:  # guard: leave for the network is none for commands
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
        """A call that cannot be made is a call that failed: nobody is asked for leave, and all can see it."""
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
        what = f"call {call.number} ({call.tool}) needs leave for {capability.value}"
        what += at_stake(call.arguments)
        if call.tool == MCP:
            stake = server_request(call.arguments)
            what = f"call {call.number} needs approval for {capability.value}: {stake}"
        elif capability is Capability.COMMAND and not self.commands.isolates:
            what += _UNISOLATED
        number = {"call": call.number}
        approve = Remedy("plan.approve", self._plan_id, number, "Approve")
        return NeedsHuman(self._plan_id, what, (approve, Remedy("plan.deny", self._plan_id, number, "Deny")))

    def _read(self, tool: Tool, call: ToolCall, request: CallRequest) -> ToolCall:
        def refuse(path: str) -> None:
            raise ToolRefused(tool.spec.name, f"it says that it only reads, so it may not change {path!r}")

        files = self.files_in(self.sandbox.root, refuse)  # guard: what only reads leaves no trace
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
        if broken is not None:  # guard: an invariant is enforced, not just said
            raise ToolRefused(tool.spec.name, f"nothing was changed: {broken}")
        if path not in before:
            before[path] = self.sandbox.state_of(path)

    def _broken(self, tool: Tool, before: Mapping[str, FileState | None]) -> CleverAgentsError | None:
        """What a call did that no plan may do here; then all that it did is taken back."""
        if not self.invariants:
            return None
        found = self._unrecorded() if tool.spec.runs_commands else self._touched(before)
        broken = broken_by(self.invariants, found)
        if broken is None:
            return None
        bring_to(self.sandbox, self.history.states(self._plan_id, self._fold))
        return ToolRefused(tool.spec.name, f"all that it did was taken back: {broken}")

    def _unrecorded(self) -> Mapping[str, Difference]:
        return self.history.unrecorded(self._plan_id, self.sandbox, self._fold)

    def _touched(self, before: Mapping[str, FileState | None]) -> dict[str, Difference]:
        hidden = self.sandbox.ignored(before)
        if hidden:
            # What no scan sees is no part of a result, unless it was before a rule came that hides it.
            hidden -= self.history.differences(self._plan_id, self._fold).keys()
        return {
            path: Difference(state, self.sandbox.state_of(path))
            for path, state in before.items()
            if path not in hidden
        }

    def _work(
        self, tool: Tool, request: CallRequest, files: SandboxFiles
    ) -> tuple[JsonValue, CleverAgentsError | None]:
        """The tool's result, or what it refused; whatever else it raises is no answer and goes up."""
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
            raise  # the call stays open: another attempt makes it again, or `abandon` ends it
        except CleverAgentsError as error:
            return None, error
        return freeze(_masked(result, tool)), None


def _nothing(path: str) -> None:
    """Nobody needs to hear of it."""


def _kept(request: CallRequest, tool: Tool | None = None) -> FrozenObject:
    """The arguments of a call that needs no approval, as they are recorded for people to read: whoever makes
    the call again brings its own."""
    masked = freeze(redact(request.arguments) if tool is None else _masked(request.arguments, tool))
    assert isinstance(masked, FrozenObject)
    return masked


def _masked(result: JsonValue, tool: Tool) -> object:
    """What may be kept of it and told to a model: files must not come back other than they are, so there the
    names of secrets say nothing; in what a program prints they do."""
    of_files = tool.spec.capability in _OF_FILES and not tool.spec.runs_commands
    return redact_content(result) if of_files else redact(result)  # guard: `env` prints its secrets by name


def _text(error: CleverAgentsError | None) -> str | None:
    """What the actor, and whoever looks, is shown of an error."""
    if isinstance(error, GitFailed):  # guard: git's words may quote files of the host
        import structlog

        structlog.get_logger(__name__).debug("tool.git_failed", command=error.command, problem=error.problem)
        return f"git {error.command} failed"
    return None if error is None else str(error)
