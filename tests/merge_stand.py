"""A stand for merges: a parent plan and sub-plans with real sandboxes and records, without a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from cleveragents.app.container import Container
from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.changes.model.merge_conflict import MergeOutcome
from cleveragents.core.event import EventType
from cleveragents.core.faults import FaultPoints
from cleveragents.core.policy import profile
from cleveragents.core.tool import ToolCall
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.history import restore_states
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.sub_plans.loop import SubPlanMerge
from cleveragents.plans.tools.conflict_tools import ConflictEnvironment, ConflictTools
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest, StartTree
from cleveragents.storage.tables import outbox
from cleveragents.tools.files.confined_files import ConfinedFiles
from tests.ready_database import ready_database

__all__ = ["MergeStand", "Worker"]


@dataclass(frozen=True)
class Worker:
    """A plan, its sandbox, and its tool calls."""

    plan: Plan
    sandbox: Sandbox
    execution: ToolExecution

    @property
    def tree(self) -> str:
        """Return the tree according to its records."""
        return self.sandbox.tree(self.execution.history.states(self.plan.id))

    def does(self, change: Callable[[Path], None], step: str = "1") -> ToolCall:
        """Change files as a command would, and record the detected changes."""
        change(self.sandbox.root)
        return self.execution.note(step, "command", {})

    def becomes(self, tree: str, step: str = "1") -> ToolCall:
        """Replace the files by those of a tree in its repository."""
        wanted = {path: step.after for path, step in self.sandbox.changes_of(tree).items()}
        return self.does(lambda root: restore_states(self.sandbox, wanted), step)

    def writes(self, files: Mapping[str, str | bytes | None], step: str = "1") -> ToolCall:
        """Write these files; None deletes one."""

        def change(root: Path) -> None:
            for name, content in files.items():
                path = root / name
                if content is None:
                    path.unlink()
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())

        return self.does(change, step)

    def text(self, path: str) -> str:
        return (self.sandbox.root / path).read_text()


class MergeStand:
    """The parts of one process, for plans on one resource."""

    def __init__(self, home: Path, resource: Path, faults: FaultPoints | None = None) -> None:
        state = home / "state"
        ready_database(state / "state.db")
        self.resource = resource
        self.container = Container(demo_settings(state), faults=faults)
        self.parts = self.container.plan_parts

    @property
    def sub_plan_merge(self) -> SubPlanMerge:
        parts = self.parts
        return SubPlanMerge(parts.sandboxes, parts.history, parts.result, self.container.faults)

    def parent(self, goal: str = "the whole") -> Worker:
        return self._made(goal, None)

    def child(self, parent: Worker, goal: str = "a part", *, tree: str | None = None) -> Worker:
        """Return a sub-plan that starts with the current state of its parent."""
        return self._made(goal, StartTree(parent.plan.id, tree or parent.tree))

    def found(self, plan_id: str) -> Worker:
        """Return the plan as another process finds it; incomplete operations are settled."""
        worker = self._worker(self.parts.plans.get(plan_id), self.parts.sandboxes.open(plan_id))
        worker.execution.settle()
        return worker

    def merge(self, parent: Worker, child: Worker, part: str) -> MergeOutcome:
        return self.sub_plan_merge.merge(parent.plan, child.plan, part, parent.execution)

    def resolve(self, parent: Worker, path: str, take: str, step: str) -> ToolCall:
        """Resolve a conflict as an actor does."""
        tools = ConflictTools(ConflictEnvironment(self.parts.history, parent.sandbox))
        request = CallRequest(step, "resolve", {"path": path, "take": take})
        return replace(parent.execution, tools=tools).call(request)

    def told(self, *kinds: EventType) -> list[Mapping[str, object]]:
        """Return the messages of these kinds, in order."""
        query = select(outbox.c.payload).where(outbox.c.event_type.in_([kind.value for kind in kinds]))
        with self.container.database.read() as connection:
            found = connection.execute(query.order_by(outbox.c.number)).scalars().all()
        return [json.loads(payload) for payload in found]

    def _made(self, goal: str, start: StartTree | None) -> Worker:
        new = PlanDraft(goal, "tests/steps", str(self.resource))
        plan = self.parts.plans.create(new, now=self.container.clock.now())
        request = SandboxRequest(plan.id, self.resource, start=start)
        return self._worker(plan, self.parts.sandboxes.create(request))

    def _worker(self, plan: Plan, sandbox: Sandbox) -> Worker:
        parts = self.parts
        execution = ToolExecution(
            sandbox=sandbox,
            policy=profile("full-auto"),
            stop=CancellationToken(),
            calls=parts.calls,
            context=PlanExecutionContext(plan.id, parts.changesets),
            history=parts.history,
            tools=parts.tools,
            commands=parts.commands(self.resource),
            files_in=lambda root, before: ConfinedFiles(root, before_change=before),
            clock=self.container.clock,
            faults=self.container.faults,
        )
        return Worker(plan, sandbox, execution)
