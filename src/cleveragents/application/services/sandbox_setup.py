"""Prepares a sandbox before work: the setup command's result, from the cache or made anew."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.application.ports.setup import SetupStore
from cleveragents.application.services.tool_execution import DONE, CallRequest, ToolExecution
from cleveragents.domain.action import Setup
from cleveragents.domain.policy import Capability
from cleveragents.domain.strategy import SETUP, StrategyStep
from cleveragents.domain.tool import ToolCall
from cleveragents.errors import PlanFailed

__all__ = ["SandboxSetup"]


@dataclass(frozen=True, slots=True)
class SandboxSetup:
    """Runs a strategy's setup, once per sandbox. Stateless but for its cache."""

    cache: SetupStore

    def prepare(self, setup: Setup | None, sandbox: Sandbox, execution: ToolExecution) -> None:
        """When it returns, the sandbox is set up. `PlanFailed`, `NeedsHuman`, `PolicyDenied`."""
        if setup is None:
            return
        call = execution.earlier(SETUP)
        if call is None or call.state not in DONE:
            call = self._made(setup, sandbox, execution, asked=call is not None)
        problem = StrategyStep(SETUP, call.tool, call.arguments).problem_with(call)
        if problem is not None:
            raise PlanFailed(sandbox.plan_id, problem)

    def _made(self, setup: Setup, sandbox: Sandbox, execution: ToolExecution, *, asked: bool) -> ToolCall:
        # Only here, before the first step: later steps may change the files that the key is made of.
        key = self.cache.key(setup.command, sandbox.root, setup.key)
        if not asked and self.cache.take(key, sandbox.root, setup.paths):
            return execution.note(SETUP, "setup", {"command": setup.command, "kept_as": key})
        arguments = {"argv": ["/bin/sh", "-c", setup.command]}
        call = execution.call(CallRequest(SETUP, "command", arguments, capability=Capability.INSTALL))
        if StrategyStep(SETUP, call.tool, arguments).problem_with(call) is None:
            self.cache.keep(key, sandbox.root, setup.paths)
        return call
