"""A bench for ACP agents: scripted agent programs, and a plan whose sandbox they work in."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cleveragents.actors.external.acp.agents import AcpAgents
from cleveragents.actors.external.acp.updates import SessionBounds
from cleveragents.actors.model.actor import ProgressKind
from cleveragents.actors.ports import AgentRequest, AgentUpdate
from cleveragents.core.policy import profile
from cleveragents.core.tool import ToolCall
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.actors.actor_tools import ActorTools
from cleveragents.plans.agents.sessions import AgentSessions
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy
from cleveragents.processes.guarded_runner import Isolation
from cleveragents.processes.stdio_process import ProgramEnvironment
from tests.plan_bench import PlanBench, command

__all__ = ["PROGRAMS", "STEP", "SessionBench", "library_steps", "misbehaving", "steps"]

PROGRAMS = Path(__file__).parent / "acp_agents"
STEP = "1.work.1"


def steps(*steps: tuple[Any, ...], program: str = "plain.py") -> dict[str, Any]:
    """Return a request to a well-behaved agent."""
    return {"argv": (sys.executable, str(PROGRAMS / program)), "prompt": json.dumps(steps)}


def library_steps(*given: tuple[Any, ...]) -> dict[str, Any]:
    """Return a request to the agent that uses the protocol's library; it is slow to start."""
    return steps(*given, program="well_behaved.py")


def misbehaving(way: str) -> dict[str, Any]:
    return {"argv": (sys.executable, str(PROGRAMS / "misbehaving.py"), way), "prompt": "go"}


@dataclass
class SessionBench:
    """Sessions in one plan's sandbox. Earlier actions of the plan are left out of the results."""

    plans: PlanBench
    isolation: Isolation = "off"
    token: CancellationToken = field(default_factory=CancellationToken)
    told: list[AgentUpdate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan: Plan = self.plans.done(command("true"))
        self.sandbox = self.plans.parts.sandboxes.open(self.plan.id)
        self._before = len(self.plans.calls(self.plan))

    def sessions(
        self, policy: str = "full-auto", bounds: SessionBounds | None = None, **facts: Any
    ) -> AgentSessions:
        """Return the sessions for the next attempt at the plan."""
        job = self.plans.owned_job(self.plan, self.token)
        execution = self.plans.parts._execution(self.plan, Strategy(()), self.sandbox, job, None)
        seconds_left = facts.pop("seconds_left", None)
        tools = ActorTools(replace(execution, policy=profile(policy), **facts), seconds_left)
        place = ProgramEnvironment(
            root=self.sandbox.root,
            directory=self.sandbox.root / execution.directory,
            readable=(*self.sandbox.readable, PROGRAMS),
            isolation=self.isolation,
            hidden=(self.plans.repository,),
            markers=facts.get("markers", {}),
        )
        return AgentSessions(AcpAgents(place, bounds), tools)

    def talk(self, request: dict[str, Any], *, sessions: AgentSessions | None = None, **facts: Any) -> str:
        """Return the output of the agent in a session of the plan's next attempt."""
        policy, bounds = facts.pop("policy", "full-auto"), facts.pop("bounds", None)
        step = facts.pop("step", STEP)
        more = {name: facts.pop(name) for name in ("invariants", "seconds_left") if name in facts}
        had = sessions or self.sessions(policy, bounds, **more)
        asked = AgentRequest(name="the-agent", **{**request, **facts})
        return had.converse(asked, step=step, told=self.told.append).strip()

    def calls(self) -> list[ToolCall]:
        return list(self.plans.calls(self.plan))[self._before :]

    def made(self) -> list[str]:
        """Return its calls as text: tool, state and changes."""
        history = self.plans.parts.history
        changed: dict[str | None, list[str]] = {}
        for change in history.changes(self.plan.id):
            changed.setdefault(change.changeset_id, []).append(change.entry.path)
        return [
            " ".join([call.tool, call.state.value, *sorted(changed.get(call.changeset_id, []))])
            for call in self.calls()
        ]

    def seen(self, kind: ProgressKind) -> list[str]:
        return [update.text for update in self.told if update.kind is kind]

    def text(self, path: str) -> str:
        return (self.sandbox.root / path).read_text()

    def answer(self, granted: bool) -> None:
        """Answer the open question as a person."""
        asked = [call for call in self.calls() if call.state.value == "asked"]
        verdict = "granted" if granted else "denied"
        now = self.plans.container.clock.now()
        self.plans.parts.calls.answer(self.plan.id, asked[-1].number, verdict, now=now)
