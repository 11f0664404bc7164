"""Creation of sub-plans: one request for approval, then each sub-plan is created and queued exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

from cleveragents.core.clock import Clock
from cleveragents.core.errors import TreeTooLarge
from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.policy import Capability
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import ToolSpec
from cleveragents.plans.actors.actor_stage import ActorPhase
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Task
from cleveragents.plans.model.sub_plan import GOALS_ACTION, TreeView
from cleveragents.plans.ports.plans import PlanDraft, TreeLimits
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.tools.ports import FixedTools, SandboxFiles, Workplace

__all__ = ["SPAWN", "SpawnTools", "SubPlanSpawn"]

SPAWN = "spawn"
"""The tool whose call requests approval for sub-plans."""

_GOAL_ACTION = "builtin/goal"
_WHOLE = 1_000
# The user chose these once for the whole tree.
_INHERITED = ("model", "limits", "max_parallel", "fail_fast", "from_head", "sent_actor")
_OWN = ("action", "arguments", "actor", "model", "checks")


class SubPlanSpawn(Struct, frozen=True):
    """Creates sub-plans. Stateless. Only the owner of the parent's job can create them."""

    plans: SqlPlanStore
    lifecycle: PlanLifecycle
    limits: TreeLimits
    clock: Clock
    faults: FaultPoints

    def start(self, ground: ActorPhase, execution: ToolExecution, view: TreeView, number: int) -> Plan:
        """Create and queue the sub-plan of the task with this number. Raises `NeedsHuman`, `PolicyDenied`,
        `TreeTooLarge`; `StalePlan` and `StaleFence` if the job lost the parent.
        """
        parent, job = ground.plan, ground.job
        self._ensure_room(parent, view)
        self._ask(parent, execution, view)
        task = view.task(number)
        tree = ground.sandbox.tree(execution.history.states(parent.id))
        child = self.plans.spawn(
            parent,
            _new(ground, task, tree),
            task.part(number),
            self.limits,
            now=self.clock.now(),
            fence=Fence(job.id, job.fence),
        )
        self.faults.reach("sub_plan.spawn.after")
        model = job.payload.get("model")
        child = self.lifecycle.queue(child, {} if model is None else {"model": model})
        self.faults.reach("sub_plan.queue.after")
        return child

    def _ensure_room(self, parent: Plan, view: TreeView) -> None:
        """Raise `TreeTooLarge` before the first sub-plan is created, unless there is room for all of them."""
        if parent.depth >= self.limits.depth:
            raise TreeTooLarge(
                parent.id, f"a sub-plan would exceed the depth limit of {self.limits.depth} (plan.max_depth)"
            )
        tasks = enumerate(view.strategy.tasks, start=1)
        wanted = {task.part(number) for number, task in tasks if task.sub_plan}
        known = {child.key for child in self.plans.children(parent.id)}
        if len(wanted | known) > self.limits.fan_out:
            raise TreeTooLarge(
                parent.id,
                f"{len(wanted | known)} sub-plans exceed the limit of {self.limits.fan_out} "
                "(plan.max_fan_out)",
            )

    def _ask(self, parent: Plan, execution: ToolExecution, view: TreeView) -> None:
        """Request approval for all sub-plans of the strategy, once per round."""
        names = [task.name for task in view.strategy.tasks if task.sub_plan]
        step = f"{SPAWN}~{view.strategy.round}" if view.strategy.round else SPAWN
        request = CallRequest(
            step,
            SPAWN,
            FrozenObject({"sub_plans": tuple(redact_text(name) for name in names)}),
            capability=Capability.SPAWN,
            # The user listed these goals, so they need no further approval.
            granted=parent.action == GOALS_ACTION,
        )
        replace(execution, tools=SpawnTools()).call(request)


def _new(ground: ActorPhase, task: Task, tree: str) -> PlanDraft:
    """Return the draft of a sub-plan: its parent's request, with the values that the task overrides."""
    parent, strategy = ground.plan, ground.strategy
    goal = _goal(ground, task)
    listed = parent.action == GOALS_ACTION
    request = {key: parent.request[key] for key in _INHERITED if parent.request.get(key) is not None}
    if listed:  # guard: a model chooses no action, actor or argument
        request |= {key: task.request[key] for key in _OWN if task.request.get(key) is not None}
    action = str(request.pop("action", None) or (_GOAL_ACTION if listed else parent.action))
    if "arguments" not in request:
        given = {} if listed else _mapping(parent.request.get("arguments"))
        request["arguments"] = {**given, "goal": goal} if listed or "goal" in given else given
    whole: Mapping[str, JsonValue] = {
        **request,
        "name": redact_text(task.name),
        # A sub-plan has no more permissions than its parent, whatever its action says.
        "profile": "+".join(filter(None, [strategy.profile, strategy.action_profile])),
        "directory": strategy.directory,
        "include": strategy.include,
        "invariants": strategy.invariants + _texts(task.request.get("invariants") if listed else None),
        "start": {"plan": parent.id, "tree": tree},
    }
    kept = freeze(whole)
    assert isinstance(kept, FrozenObject)
    return PlanDraft(redact_text(goal), action, parent.resource, kept)


def _goal(ground: ActorPhase, task: Task) -> str:
    """Return the goal of the sub-plan: the task in words and, if a strategist planned it, the larger goal."""
    said = task.name if task.instructions in ("", task.name) else f"{task.name}\n\n{task.instructions}"
    if ground.plan.action == GOALS_ACTION:
        return task.instructions or task.name
    whole = ground.plan.goal[:_WHOLE]
    return f"{said}\n\nThis is one part of a larger goal; others work at its other parts:\n{whole}"


def _mapping(kept: JsonValue) -> Mapping[str, JsonValue]:
    return kept if isinstance(kept, Mapping) else {}


def _texts(kept: JsonValue) -> tuple[str, ...]:
    return tuple(str(one) for one in kept) if isinstance(kept, tuple | list) else ()


class _SpawnTool:
    """A tool that does nothing: only the approval of its call matters."""

    spec = ToolSpec(
        name=SPAWN,
        description="Run parts of the plan as sub-plans.",
        capability=Capability.SPAWN,
        input_schema=FrozenObject({"type": "object"}),
        output_schema=FrozenObject({"type": "object"}),
    )

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return Capability.SPAWN

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        return {"allowed": True}


class SpawnTools(FixedTools):
    """`ToolSource` of the `spawn` tool, which no actor is offered."""

    def __init__(self) -> None:
        super().__init__(_SpawnTool())
