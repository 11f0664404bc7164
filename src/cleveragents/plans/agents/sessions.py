"""Sessions with external agents: approved, started once, ended, and fully recorded.

A session is a call `acp` that stays open until the session ends. If a later run finds the call open, the
session was interrupted. The agent's requests are calls whose names extend the name of the session. A session
has no changeset: these calls record the changes of the agent, in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from cleveragents.actors.ports import AgentOutcome, AgentRequest, Agents, AgentUpdate, StopReason
from cleveragents.core.errors import (
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
from cleveragents.models.calls import out_of_time
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.agents.client import ACP, RecordedAgentClient, is_approved
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.tools.timed_tool import TimedStop
from cleveragents.tools.tool_results import cut

__all__ = ["AgentSessions"]

_SESSION = re.compile(r"s\d+")
_SHOWN = 2_000
_INTERRUPTED = (
    "An earlier session with the task below was interrupted. Its changes are in the files: inspect them and "
    "continue from there.\n\n"
)
_STOPS: Mapping[StopReason, str] = {
    "max_tokens": "ran out of tokens before it finished",
    "max_turn_requests": "reached its request limit for one turn before it finished",
    "refusal": "refused to continue",
    "cancelled": "reported a cancel that was not requested",
}


@dataclass(frozen=True, slots=True)
class AgentSessions:
    """Runs sessions for one run of an actor. Stateless. If an agent makes a request while its own command
    runs, the request waits for `patience_seconds` and then fails with the advice to end the command first.
    """

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
        """Run a session, as `ActorHost.converse` specifies."""
        with self.tools.turn() as execution:
            past = _Past.of(execution, step)
            if past.result is not None:  # guard: a finished session is not repeated
                return past.result
            self.agents.ensure_there(request)
            past.close_what_was_cut_off(execution)
            network = request.network and self._network(execution, request, step)
            call = self._begun(execution, request, step, past)
            ends = execution.clock.monotonic() + request.seconds
        left = self._time(lambda: ends - execution.clock.monotonic(), seconds_left)
        agent_client = RecordedAgentClient(
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
        return self._had(replace(request, prompt=prompt, network=network), agent_client, call, left)

    def _had(
        self,
        request: AgentRequest,
        agent_client: RecordedAgentClient,
        call: ToolCall,
        left: Callable[[], float],
    ) -> str:
        """Run the session and return its answer. Even after an error, its changes are recorded and its call
        is ended.
        """
        execution = self.tools.execution
        problem: CleverAgentsError | None = None
        said = ""
        try:
            said = self._text(
                self.agents.run(request, agent_client, TimedStop(execution.stop, left)), request
            )
        except Cancelled as cancelled:
            problem = cancelled if execution.stop.is_cancelled else self._late(request)
        except CleverAgentsError as error:
            problem = error
        try:
            agent_client.close()
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
        if outcome.stop != "end_turn":  # guard: only an ended turn is a success
            said = f"; its last message: {cut(outcome.text, 500)}" if outcome.text else ""
            raise ToolRefused(request.name, redact_text(f"{_STOPS[outcome.stop]}{said}"))
        return cut(redact_text(outcome.text))

    def _late(self, request: AgentRequest) -> CleverAgentsError:
        plan_left = self.tools.seconds_left
        if plan_left is not None and plan_left() <= 0:
            return out_of_time(self.tools.execution.sandbox.plan_id)
        return ToolRefused(request.name, f"stopped at its time limit ({request.seconds:g} s)")

    def _time(self, own: Callable[[], float], of_run: Callable[[], float] | None) -> Callable[[], float]:
        every = [left for left in (own, of_run, self.tools.seconds_left) if left is not None]
        return lambda: min(left() for left in every)

    def _network(self, execution: ToolExecution, request: AgentRequest, step: str) -> bool:
        """Return True if the policy or a person allows network access, which the agent requires. Raises
        `ToolRefused` otherwise.
        """
        if execution.network:
            return True
        arguments = {**_who(request), "asks": "network", "network": True}
        wanted = CallRequest(f"{step}.network", ACP, arguments, capability=Capability.NETWORK)
        if not is_approved(execution, wanted):  # guard: denied access stays denied
            raise ToolRefused(request.name, "needs the network, and network access is not allowed")
        return True

    def _begun(self, execution: ToolExecution, request: AgentRequest, step: str, past: _Past) -> ToolCall:
        """Start the session and return its open call.

        An approval of an earlier session also holds for this session if the arguments are the same. Raises
        `ToolRefused` if the policy or a person denies the session.
        """
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
    """The calls of a node's earlier sessions, and the sessions themselves."""

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
        """Return the calls that needed approval, answered or not."""
        return [call for call in self.calls if call.state is CallState.ASKED or call.approval is not None]

    def allows(self, digest: str) -> bool:
        return any(session.approval == "granted" and session.digest == digest for session in self.begun)

    def close_what_was_cut_off(self, execution: ToolExecution) -> None:
        """End interrupted calls as failed: the next session makes new calls."""
        for call in self.calls:
            if call.state in (CallState.STARTED, CallState.ENDING):
                execution.calls.move(
                    call, CallState.FAILED, now=execution.clock.now(), error="interrupted with its session"
                )

    def drop_questions(self, execution: ToolExecution) -> None:
        """End pending requests as failed, because the agent continued without an answer."""
        for call in self.calls:
            if call.state is CallState.ASKED:
                error = "the agent continued without it"
                execution.calls.move(call, CallState.FAILED, now=execution.clock.now(), error=error)


def _who(request: AgentRequest) -> dict[str, JsonValue]:
    """Return the facts that a person needs for an approval: the program, and the variables and home files
    that it gets.
    """
    named: dict[str, JsonValue] = {"agent": request.name, "argv": request.argv}
    return {**named, "environment": request.environment, "home": request.home}


def _reason(problem: CleverAgentsError) -> str:
    if isinstance(problem, NeedsHuman):
        return "stopped to wait for a person"
    if isinstance(problem, Cancelled):
        return f"cancelled: {problem.reason}"
    return redact_text(str(problem))
