"""Making sub-plans: leave for them is asked once, then each is made and queued, and never twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
"""The tool whose call asks for leave to make sub-plans."""

_GOAL_ACTION = "builtin/goal"
_WHOLE = 1_000
# Of the whole tree: what its user chose once.
_INHERITED = ("model", "limits", "max_parallel", "fail_fast", "from_head", "sent_actor")
_OWN = ("action", "arguments", "actor", "model", "checks")


@dataclass(frozen=True, slots=True)
class SubPlanSpawn:
    """Stateless but for its stores: only whoever has the parent's job can make sub-plans of it."""

    plans: SqlPlanStore
    lifecycle: PlanLifecycle
    limits: TreeLimits
    clock: Clock
    faults: FaultPoints

    def start(self, ground: ActorPhase, execution: ToolExecution, view: TreeView, number: int) -> Plan:
        """The sub-plan of that task, queued. `NeedsHuman`, `PolicyDenied`, `TreeTooLarge`; `StalePlan` and
        `StaleFence` when the parent is no longer ours."""
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
        """Before the first is made: half of a strategy is of no use."""
        if parent.depth >= self.limits.depth:
            lies = f"it lies {parent.depth} deep" if parent.depth else "it is the first"
            raise TreeTooLarge(
                parent.id, f"{lies}, and sub-plans may lie {self.limits.depth} deep (plan.max_depth)"
            )
        tasks = enumerate(view.strategy.tasks, start=1)
        wanted = {task.part(number) for number, task in tasks if task.sub_plan}
        known = {child.key for child in self.plans.children(parent.id)}
        if len(wanted | known) > self.limits.fan_out:
            raise TreeTooLarge(
                parent.id,
                f"it wants {len(wanted | known)} sub-plans, and may have {self.limits.fan_out} "
                "(plan.max_fan_out)",
            )

    def _ask(self, parent: Plan, execution: ToolExecution, view: TreeView) -> None:
        """Leave for all that the strategy has, once for each time that it was thought of."""
        names = [task.name for task in view.strategy.tasks if task.sub_plan]
        step = f"{SPAWN}~{view.strategy.round}" if view.strategy.round else SPAWN
        request = CallRequest(
            step,
            SPAWN,
            FrozenObject({"sub_plans": tuple(redact_text(name) for name in names)}),
            capability=Capability.SPAWN,
            # What the user listed needs no further leave: it is what was asked for.
            granted=parent.action == GOALS_ACTION,
        )
        replace(execution, tools=SpawnTools()).call(request)


def _new(ground: ActorPhase, task: Task, tree: str) -> PlanDraft:
    """What the sub-plan is asked for: what its parent was, but for what is the task's own."""
    parent, strategy = ground.plan, ground.strategy
    goal = _goal(ground, task)
    listed = parent.action == GOALS_ACTION
    request = {key: parent.request[key] for key in _INHERITED if parent.request.get(key) is not None}
    if listed:  # guard: what a model thought of chooses no action, actor or argument
        request |= {key: task.request[key] for key in _OWN if task.request.get(key) is not None}
    action = str(request.pop("action", None) or (_GOAL_ACTION if listed else parent.action))
    if "arguments" not in request:
        given = {} if listed else _mapping(parent.request.get("arguments"))
        request["arguments"] = {**given, "goal": goal} if listed or "goal" in given else given
    whole: Mapping[str, JsonValue] = {
        **request,
        "name": redact_text(task.name),
        # A sub-plan may do no more than its parent, whatever its action says.
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
    """The task in words; to one that a strategist thought of, a word on what it is a part of."""
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
    """Makes nothing itself: that its call was allowed is what matters."""

    spec = ToolSpec(
        name=SPAWN,
        description="Has parts of the plan done by plans of their own.",
        capability=Capability.SPAWN,
        input_schema=FrozenObject({"type": "object"}),
        output_schema=FrozenObject({"type": "object"}),
    )

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return Capability.SPAWN

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        return {"allowed": True}


class SpawnTools(FixedTools):
    """`ToolSource` of that one tool, which no actor is offered."""

    def __init__(self) -> None:
        super().__init__(_SpawnTool())
