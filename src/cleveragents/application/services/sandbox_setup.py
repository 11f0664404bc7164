"""Prepares a sandbox before work: the setup command's result, from the cache or made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cleveragents.application.ports.sandboxes import Sandbox
from cleveragents.application.ports.setup import SetupStore
from cleveragents.application.services.tool_execution import CallRequest, ToolExecution
from cleveragents.domain.action import Setup
from cleveragents.domain.policy import Capability
from cleveragents.domain.tool import CallState
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
        key = self.cache.key(setup.command, sandbox.root, setup.key)
        if self.cache.take(key, sandbox.root, setup.paths):
            return
        arguments = {"argv": ["/bin/sh", "-c", setup.command]}
        call = execution.call(CallRequest("setup", "command", arguments, capability=Capability.INSTALL))
        code = call.result.get("exit_code") if isinstance(call.result, Mapping) else None
        if call.state is CallState.FAILED or code != 0:
            raise PlanFailed(sandbox.plan_id, f"setting up the sandbox failed: {call.error or call.result}")
        self.cache.keep(key, sandbox.root, setup.paths)
