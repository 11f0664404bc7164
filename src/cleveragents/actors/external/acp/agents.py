"""`Agents` that speak the Agent Client Protocol over their standard streams, in a plan's sandbox."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from cleveragents.actors.external.acp.updates import SessionBounds
from cleveragents.actors.ports import AgentClient, AgentOutcome, AgentRequest
from cleveragents.core.errors import ToolRefused
from cleveragents.processes.event_loop_thread import EventLoopThread
from cleveragents.processes.ports import StopSignal
from cleveragents.processes.program_lookup import absence_of, absence_of_acp
from cleveragents.processes.stdio_process import ProgramEnvironment

__all__ = ["AcpAgents"]

_GRACE_SECONDS = 1.0


class AcpAgents:
    """Runs agents in one sandbox.

    Any thread may share it. Each session has its own loop, on a thread that ends with the session.
    """

    def __init__(self, place: ProgramEnvironment, bounds: SessionBounds | None = None) -> None:
        # A cancellation allows five seconds in total, and part of that passes before the agent is killed.
        self._place = replace(place, grace_seconds=min(place.grace_seconds, _GRACE_SECONDS))
        self._bounds = bounds or SessionBounds()

    def ensure_there(self, request: AgentRequest) -> None:
        """Check that the agent is installed, as the port describes."""
        absence = absence_of_acp() or absence_of(request.argv[0], request.install)
        if absence is not None:
            raise ToolRefused(request.name, absence)

    def run(self, request: AgentRequest, client: AgentClient, stop: StopSignal) -> AgentOutcome:
        """Run a session, as the port describes."""
        self.ensure_there(request)
        import_module("acp")  # imported here, because it is slow and would block the loop
        from cleveragents.actors.external.acp.session import AcpSession

        session = AcpSession(request, client, self._place, self._bounds)
        loop = EventLoopThread("acp")
        try:
            return loop.run(lambda: session.run(stop))
        finally:
            loop.close(_nothing)


async def _nothing() -> None:
    """Do nothing. When the loop closes, no task is left to cancel."""
