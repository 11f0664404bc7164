"""Prepares a sandbox before work: runs the setup command, or takes its result from the cache."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.actions.model import Setup
from cleveragents.core.errors import PlanFailed
from cleveragents.core.policy import Capability, Verdict
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.tool_execution import DONE, CallRequest, ToolExecution
from cleveragents.plans.model.strategy import SETUP, StrategyStep
from cleveragents.sandboxes.ports import Sandbox
from cleveragents.sandboxes.setup_ports import SetupInputs, SetupStore

__all__ = ["SandboxSetup"]


@dataclass(frozen=True, slots=True)
class SandboxSetup:
    """Runs a strategy's setup, once per sandbox. Stateless but for its cache."""

    cache: SetupStore

    def prepare(
        self, setup: Setup | None, sandbox: Sandbox, execution: ToolExecution, *, project: str
    ) -> None:
        """When it returns, the sandbox is set up. `PlanFailed`, `NeedsHuman`, `PolicyDenied`."""
        if setup is None:
            return
        call = execution.earlier(SETUP)
        if call is None or call.state not in DONE:
            call = self._made(setup, sandbox, execution, project, call)
        problem = StrategyStep(SETUP, call.tool, call.arguments).problem_with(call)
        if problem is not None:
            raise PlanFailed(sandbox.plan_id, problem)

    def _made(
        self,
        setup: Setup,
        sandbox: Sandbox,
        execution: ToolExecution,
        project: str,
        earlier: ToolCall | None,
    ) -> ToolCall:
        argv = ("/bin/sh", "-c", setup.command)
        key = None
        # An interrupted setup has left files behind: what it makes now is not cached.
        if earlier is None or earlier.state is CallState.ASKED:
            # Only here, before the first step: later steps change the files that the key is made of.
            inputs = SetupInputs(project, setup.paths, execution.command_inputs(argv))
            key = self.cache.key(inputs, sandbox.root)
        usable = key if earlier is None else None
        if execution.verdict(Capability.INSTALL) is Verdict.DENY:  # guard: also where nothing has to run
            usable = None
        if usable is not None and self.cache.take(usable, sandbox.root, setup.paths):
            return execution.note(SETUP, "setup", {"command": setup.command, "kept_as": usable})
        arguments = {"argv": list(argv)}
        call = execution.call(CallRequest(SETUP, "command", arguments, capability=Capability.INSTALL))
        if key is not None and StrategyStep(SETUP, call.tool, arguments).problem_with(call) is None:
            self.cache.keep(key, sandbox.root, setup.paths)
        return call
