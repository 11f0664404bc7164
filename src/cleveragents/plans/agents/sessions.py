"""Sessions with agents of other makers: allowed, begun once, ended, and all that came of them recorded.

A session is a call `acp` that is open from its beginning to its end, so that whoever finds it open knows that
it was cut off. Its parts are calls of their own, named below it. It has no changeset: what the agent changed
is filed by its parts, in the order in which it happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cleveragents.actors.ports import AgentOutcome, AgentRequest, Agents, AgentUpdate, StopReason
from cleveragents.core.errors import (
    BudgetExhausted,
    CallDenied,
    Cancelled,
    CleverAgentsError,
    NeedsHuman,
    PolicyDenied,
    ToolRefused,
)
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.agents.client import ACP, RecordedAgentClient, is_approved
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.tools.timed_tool import TimedStop
from cleveragents.tools.tool_results import cut

__all__ = ["AgentSessions"]

_SESSION = re.compile(r"s\d+")
_SHOWN = 2_000
_INTERRUPTED = (
    "An earlier session with the task below was interrupted. What it had done is in the files: look at them, "
    "and go on from there.\n\n"
)
_STOPS: Mapping[StopReason, str] = {
    "max_tokens": "it has used up its tokens before it was done",
    "max_turn_requests": "it has made as many requests as it may make in one turn, and was not done",
    "refusal": "it refuses to go on",
    "cancelled": "it says that it was cancelled, and nobody did that",
}


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """Has sessions for one run of an actor. Stateless but for its parts. An agent that asks for something
    while a command of its own runs waits for `patience_seconds`, and is told then to end that first."""

    agents: Agents
    tools: ActorTools
    patience_seconds: float = 10.0

    def converse(
        self,
        request: AgentRequest,
        *,
        step: str,
        told: Callable[[AgentUpdate], None],
        seconds_left: Callable[[], float] | None = None,
    ) -> str:
        """As `ActorHost.converse` says."""
        with self.tools.turn() as execution:
            past = _Past.of(execution, step)
            if past.result is not None:  # guard: a session that was finished is not had again
                return past.result
            self.agents.ensure_there(request)
            past.close_what_was_cut_off(execution)
            network = request.network and self._network(execution, request, step)
            call = self._begun(execution, request, step, past)
            ends = execution.clock.monotonic() + request.seconds
        left = self._time(lambda: ends - execution.clock.monotonic(), seconds_left)
        desk = RecordedAgentClient(
            self.tools,
            agent=request.name,
            step=step,
            session=past.number,
            answered=past.answered,
            seconds_left=left,
            told=told,
            patience_seconds=self.patience_seconds,
        )
        prompt = f"{_INTERRUPTED}{request.prompt}" if past.begun else request.prompt
        return self._had(replace(request, prompt=prompt, network=network), desk, call, left)

    def _had(
        self, request: AgentRequest, desk: RecordedAgentClient, call: ToolCall, left: Callable[[], float]
    ) -> str:
        """What it said; whatever happens, what it did is filed and its call is over."""
        execution = self.tools.execution
        problem: CleverAgentsError | None = None
        said = ""
        try:
            said = self._text(self.agents.run(request, desk, TimedStop(execution.stop, left)), request)
        except Cancelled as cancelled:
            problem = cancelled if execution.stop.is_cancelled else self._late(request)
        except CleverAgentsError as error:
            problem = error
        try:
            desk.close()
        except CleverAgentsError as error:
            problem = problem or error
        with self.tools.turn():
            now = execution.clock.now()
            if problem is None:
                _Past.of(execution, str(call.step).rpartition(".")[0]).drop_questions(execution)
                execution.calls.move(call, CallState.ENDED, now=now, result={"text": said})
            else:
                execution.calls.move(call, CallState.FAILED, now=now, error=_reason(problem))
        if problem is not None:
            raise problem
        return said

    def _text(self, outcome: AgentOutcome, request: AgentRequest) -> str:
        if outcome.stop != "end_turn":  # guard: only a turn that was ended is a success
            said = f"; it said: {cut(outcome.text, 500)}" if outcome.text else ""
            raise ToolRefused(request.name, redact_text(f"{_STOPS[outcome.stop]}{said}"))
        return cut(redact_text(outcome.text))

    def _late(self, request: AgentRequest) -> CleverAgentsError:
        plan_left = self.tools.seconds_left
        if plan_left is not None and plan_left() <= 0:
            plan_id = self.tools.execution.sandbox.plan_id
            return BudgetExhausted(plan_id, "the time limit is reached")
        return ToolRefused(request.name, f"it took longer than it may ({request.seconds:g} s), and was ended")

    def _time(self, own: Callable[[], float], of_run: Callable[[], float] | None) -> Callable[[], float]:
        every = [left for left in (own, of_run, self.tools.seconds_left) if left is not None]
        return lambda: min(left() for left in every)

    def _network(self, execution: ToolExecution, request: AgentRequest, step: str) -> bool:
        """`ToolRefused` without leave: it says that it cannot work without."""
        if execution.network:
            return True
        arguments = {**_who(request), "asks": "network", "network": True}
        wanted = CallRequest(f"{step}.network", ACP, arguments, capability=Capability.NETWORK)
        if not is_approved(execution, wanted):  # guard: what was denied it does not get
            raise ToolRefused(request.name, "it needs the network, which it is not allowed to use")
        return True

    def _begun(self, execution: ToolExecution, request: AgentRequest, step: str, past: _Past) -> ToolCall:
        """Its call, open. What a person allowed once is allowed to the sessions that go on with it."""
        arguments = _who(request)
        arguments |= {"prompt": cut(request.prompt, _SHOWN), "network": request.network}
        wanted = CallRequest(f"{step}.s{past.number}", ACP, arguments, capability=Capability.COMMAND)
        wanted = replace(wanted, granted=past.allows(execution.digest_of(ACP, arguments)))
        try:
            return execution.begin(wanted)
        except PolicyDenied as denied:
            execution.refuse(wanted, str(denied))
            raise ToolRefused(request.name, str(denied)) from denied
        except CallDenied as denied:
            raise ToolRefused(request.name, str(denied)) from denied


@dataclass(frozen=True, slots=True)
class _Past:
    """The calls that a node's earlier sessions made, and they themselves."""

    calls: Sequence[ToolCall]
    sessions: Sequence[ToolCall]

    @staticmethod
    def of(execution: ToolExecution, step: str) -> _Past:
        below = f"{step}."
        calls = [
            call
            for call in execution.history.calls(execution.sandbox.plan_id)
            if call.step is not None and call.step.startswith(below) and call.state is not CallState.REVERTED
        ]
        sessions = [call for call in calls if _SESSION.fullmatch(str(call.step)[len(below) :])]
        return _Past(calls, sessions)

    @property
    def result(self) -> str | None:
        for session in self.sessions:
            if session.state is CallState.ENDED and isinstance(session.result, Mapping):
                return str(session.result["text"])
        return None

    @property
    def begun(self) -> Sequence[ToolCall]:
        return [session for session in self.sessions if session.state is not CallState.ASKED]

    @property
    def number(self) -> int:
        return len(self.begun) + 1

    @property
    def answered(self) -> Sequence[ToolCall]:
        """Those of its calls that a person was asked about, answered or not."""
        return [call for call in self.calls if call.state is CallState.ASKED or call.approval is not None]

    def allows(self, digest: str) -> bool:
        return any(session.approval == "granted" and session.digest == digest for session in self.begun)

    def close_what_was_cut_off(self, execution: ToolExecution) -> None:
        """Nobody takes those up: the next session makes calls of its own."""
        for call in self.calls:
            if call.state in (CallState.STARTED, CallState.ENDING):
                execution.calls.move(
                    call, CallState.FAILED, now=execution.clock.now(), error="it was cut off with its session"
                )

    def drop_questions(self, execution: ToolExecution) -> None:
        """What a person was asked on the way, and the agent then did without."""
        for call in self.calls:
            if call.state is CallState.ASKED:
                error = "the agent did without it"
                execution.calls.move(call, CallState.FAILED, now=execution.clock.now(), error=error)


def _who(request: AgentRequest) -> dict[str, JsonValue]:
    """Whoever is asked for leave wants to know what of theirs it gets."""
    named: dict[str, JsonValue] = {"agent": request.name, "argv": request.argv}
    return {**named, "environment": request.environment, "home": request.home}


def _reason(problem: CleverAgentsError) -> str:
    if isinstance(problem, NeedsHuman):
        return "it was ended to wait for a person"
    if isinstance(problem, Cancelled):
        return f"cancelled: {problem.reason}"
    return redact_text(str(problem))
