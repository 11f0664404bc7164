"""Control a plan's access to MCP servers: its policy decides, or a person if the policy asks.

Starting a server needs `command`, connecting to a URL needs `network`, and a server whose network access
cannot be denied needs both.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.core.errors import CallDenied, PolicyDenied
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import READ_ONLY, Capability, Verdict
from cleveragents.core.tool import MCP, CallState
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.processes.stdio_process import bubblewrap_for
from cleveragents.tools.mcp.gate import ServerPermit, StartGate
from cleveragents.tools.mcp.server_entry import McpServer, variables_of

if TYPE_CHECKING:
    from cleveragents.plans.model.plan import Plan
    from cleveragents.tools.mcp.launch import ServerPlace

__all__ = ["PlanGate"]


class PlanGate:
    """Permits servers according to a plan's policy. A person approves a server once per plan: the approval
    also holds in the plan's later phases, after a resume, and in its sub-plans, as long as the definition,
    the passed variables and the isolation stay the same.

    Thread safety:
        Owner: the stage of the plan that made it. Any thread may ask.
        Lock: `_lock` guards `_approved`, and is held while an approval is read and recorded, which takes a
            few database calls.
        Guarantee: a plan has at most one open request per server.
    Cancel safety: a cancelled plan asks nothing; a request that was recorded stays open.
    """

    def __init__(self, plan: Plan, execution: ToolExecution, place: ServerPlace) -> None:
        self._execution = execution
        self._place = place
        self._above = tuple(filter(None, (plan.parent_id, plan.root_id)))
        self._lock = threading.Lock()
        self._approved: set[str] = set()

    def permit(self, server: McpServer) -> ServerPermit:
        capability = self._needed(server)
        verdict = self._execution.policy.verdict(capability)
        if verdict is Verdict.ALLOW:
            return ServerPermit(server)
        with self._lock:
            if verdict is Verdict.DENY:
                self._deny(server, capability)
            else:
                self._ask(server, capability)
        return ServerPermit(server)

    def read_only(self) -> StartGate:
        """Return the gate of a read-only run: it refuses servers of the repository, whose tools such a run
        cannot use.
        """
        return _ReadOnlyGate(self)

    def _needed(self, server: McpServer) -> Capability:
        """The capability with the strictest verdict among those that the server needs."""
        needed = [_kind(server)]
        if not server.url and not self._can_deny_network(server):
            needed.append(Capability.NETWORK)
        return max(needed, key=lambda one: self._execution.policy.verdict(one).strictness)

    def _can_deny_network(self, server: McpServer) -> bool:
        return server.isolated and bubblewrap_for(self._place, f"MCP server {server.name}") is not None

    def _deny(self, server: McpServer, capability: Capability) -> None:
        execution = self._execution
        denied = PolicyDenied(f"MCP server {server.name}", execution.policy.name, capability.value)
        request = CallRequest(self._step(server), MCP, self._shown(server), capability=capability)
        execution.refuse(request, str(denied))
        raise denied

    def _ask(self, server: McpServer, capability: Capability) -> None:
        """Return if a person has approved the server; otherwise request the approval and raise."""
        execution, step = self._execution, self._step(server)
        if step in self._approved or self._is_inherited(step):
            return
        denied = CallDenied(execution.sandbox.plan_id, f"a person denied MCP server {server.name}")
        try:
            call = execution.begin(CallRequest(step, MCP, self._shown(server), capability=capability))
        except CallDenied:
            raise denied from None
        if call.state is CallState.FAILED:  # guard: denied stays denied
            raise denied
        if call.state is not CallState.ENDED:
            execution.calls.move(call, CallState.ENDED, now=execution.clock.now(), result="approved")
        self._approved.add(step)

    def _step(self, server: McpServer) -> str:
        """Return the name of the approval, which depends on the exact definition, the variables that every
        command gets, and the isolation in effect. If any of these changes, a person is asked again. The path
        of the definition's file does not count: another worker may have the repository elsewhere.
        """
        facts = [server.name, server.own, server.command, dict(server.environment), server.directory]
        facts += [server.url, dict(server.headers), server.isolated]
        if not server.url:
            names = sorted({*self._place.allowed_names})
            if names:  # guard: an approval covers the names that it listed
                facts.append(names)
            if server.isolated and not self._can_deny_network(server):  # guard: it was to run isolated
                facts.append("not isolated")
        text = json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass")
        return f"{MCP}.{server.name}-{hashlib.sha256(text).hexdigest()[:32]}"

    def _shown(self, server: McpServer) -> dict[str, JsonValue]:
        """Return the facts that a person needs for an approval: the command or URL, and the names of all
        variables and headers that the server receives.
        """
        variables = [f"{name} ({place})" for name, place in variables_of(server)]
        if not server.url:
            variables += [f"{name} (plan.pass_environment)" for name in self._place.allowed_names]
        facts: dict[str, JsonValue] = {
            "server": server.name,
            "from": server.source,
            "command": shlex.join(server.command),
            "cwd": server.directory,
            "url": server.url,
            "variables": tuple(variables),
            "env": tuple(server.environment),
            "headers": tuple(server.headers),
            "isolated": None if server.url else self._can_deny_network(server),
        }
        return {name: value for name, value in facts.items() if value not in ("", (), None)}

    def _is_inherited(self, step: str) -> bool:
        for plan_id in self._above:
            call = self._execution.history.latest(plan_id, step)
            if call is not None and call.state is CallState.ENDED and call.approval == "granted":
                return True
        return False


@dataclass(frozen=True, slots=True)
class _ReadOnlyGate:
    gate: StartGate

    def permit(self, server: McpServer) -> ServerPermit:
        if not server.own:  # guard: a repository starts nothing while a plan only reads
            raise PolicyDenied(f"MCP server {server.name}", READ_ONLY.name, _kind(server).value)
        return self.gate.permit(server)


def _kind(server: McpServer) -> Capability:
    return Capability.NETWORK if server.url else Capability.COMMAND
