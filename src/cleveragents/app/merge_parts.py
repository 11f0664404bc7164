"""Joins what a person needs to resolve conflicts of merged sub-plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.calls.tool_execution import ToolExecution
    from cleveragents.plans.conflicts.resolution import ConflictsByHand
    from cleveragents.plans.model.plan import Plan
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["conflicts_by_hand"]


def conflicts_by_hand(container: Container) -> ConflictsByHand:
    """Resolves conflicts of plans that nobody runs."""
    from cleveragents.changes.execution_context import PlanExecutionContext
    from cleveragents.core.policy import READ_ONLY
    from cleveragents.jobs.worker.async_worker import CancellationToken
    from cleveragents.plans.calls.tool_execution import ToolExecution
    from cleveragents.plans.conflicts.resolution import ConflictsByHand
    from cleveragents.tools.files.confined_files import ConfinedFiles

    parts = container.plan_parts

    def execution(plan: Plan, sandbox: Sandbox) -> ToolExecution:
        return ToolExecution(
            sandbox=sandbox,
            policy=READ_ONLY,  # no tool is called: a person does it
            stop=CancellationToken(),
            calls=parts.calls,
            context=PlanExecutionContext(plan.id, parts.kept_changesets(plan, sandbox)),
            history=parts.history,
            tools=parts.tools,
            commands=parts.commands(parts.directory_of(plan)),
            files_in=lambda root, before: ConfinedFiles(root, before_change=before),
            clock=container.clock,
            faults=container.faults,
        )

    return ConflictsByHand(parts.plans, parts.sandboxes, parts.history, execution)
