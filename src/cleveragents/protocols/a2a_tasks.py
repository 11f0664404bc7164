"""Plans as tasks of the Agent2Agent protocol: the id of one is the id of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from a2a.helpers import new_text_artifact, new_text_message
from a2a.types import Role, Task, TaskState, TaskStatus
from google.protobuf.timestamp_pb2 import Timestamp

from cleveragents.api.plans.meanings import meaning_of, what_it_waits_for
from cleveragents.api.plans.standing import needs_of
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.protocols.a2a_answers import QUESTION, question_asked

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["count_of", "is_over", "is_resting", "state_of", "task_of"]

_ENDED = {
    PlanState.ERRORED: TaskState.TASK_STATE_FAILED,
    PlanState.CONSTRAINED: TaskState.TASK_STATE_FAILED,
    PlanState.CANCELLED: TaskState.TASK_STATE_CANCELED,
    PlanState.REJECTED: TaskState.TASK_STATE_REJECTED,
    PlanState.APPLIED: TaskState.TASK_STATE_COMPLETED,
    PlanState.UNDONE: TaskState.TASK_STATE_COMPLETED,
}
_OVER = frozenset(_ENDED.values())


def task_of(parts: PlanParts, plan: Plan, diff: str | None = None) -> Task:
    """The plan as a task; `diff` is its artifact, where there is one."""
    state = state_of(plan)
    said = redact_text(meaning_of(parts, plan))
    needs = needs_of(parts, plan)
    if needs is not None:
        said = f"{said} (needs {needs})"
    if plan.state is PlanState.WAITING and not waits_for_sub_plans(plan):
        said = f"{said}: {what_it_waits_for(plan)}"  # who is to answer has to read it
    if plan.error:
        said = f"{said}: {redact_text(plan.error)}"
    moment = Timestamp()
    moment.FromDatetime(plan.updated_at)
    message = new_text_message(said, context_id=plan.root, task_id=plan.id, role=Role.ROLE_AGENT)
    question = question_asked(plan)
    if question is not None:
        message.metadata.update({QUESTION: question})
    task = Task(
        id=plan.id,
        context_id=plan.root,
        status=TaskStatus(state=state, message=message, timestamp=moment),
    )
    standing = {"phase": plan.phase.value, "state": plan.state.value}
    task.metadata.update({"goal": redact_text(plan.goal), **standing})
    if diff:
        task.artifacts.append(new_text_artifact("changes.patch", diff, media_type="text/x-diff"))
    return task


def is_over(task: Task) -> bool:
    """Whether nothing more comes of it by itself."""
    return task.status.state in _OVER


def is_resting(task: Task) -> bool:
    """Whether it is over, or waits for an answer."""
    return is_over(task) or task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED


def state_of(plan: Plan) -> TaskState:
    """What the protocol calls the plan's standing."""
    return _called(plan.phase, plan.state)


def count_of(
    container: Container, context_id: str, state: TaskState | int, scope: ProjectScope = None
) -> int:
    """How many tasks there are in these projects, on all pages: of that context, and in that state, if they
    are named."""
    from sqlalchemy import func, select

    from cleveragents.changes.store.rows import is_storable
    from cleveragents.storage.tables import plans

    by_standing = select(plans.c.phase, plans.c.state, func.count()).where(plans.c.parent_id.is_(None))
    if context_id:
        if not is_storable(context_id):
            return 0
        by_standing = by_standing.where(plans.c.id == context_id)
    if scope is not None:
        by_standing = by_standing.where(plans.c.project.in_(scope))
    with container.database.read() as connection:
        rows = connection.execute(by_standing.group_by(plans.c.phase, plans.c.state)).all()
    return sum(
        number for phase, standing, number in rows if state in (0, _called(Phase(phase), PlanState(standing)))
    )


def _called(phase: Phase, state: PlanState) -> TaskState:
    if state in _ENDED:
        return _ENDED[state]
    if (phase, state) == (Phase.EXECUTE, PlanState.COMPLETE):
        return TaskState.TASK_STATE_COMPLETED  # whether it is applied is for a person, or the profile
    if state is PlanState.WAITING:
        return TaskState.TASK_STATE_INPUT_REQUIRED
    queued = state is PlanState.QUEUED and phase in (Phase.ACTION, Phase.STRATEGIZE)
    return TaskState.TASK_STATE_SUBMITTED if queued else TaskState.TASK_STATE_WORKING
