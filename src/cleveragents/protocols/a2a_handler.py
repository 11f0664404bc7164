"""What agents ask by the Agent2Agent protocol, answered with plans.

There is no store of tasks beside that of plans: so a task survives whatever a plan survives, any server of
the same database answers for it, and what is said of it is what the page says.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import structlog
from a2a.helpers import get_message_text
from a2a.server.request_handlers import RequestHandler
from a2a.types import (
    ListTasksResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from anyio import to_thread

from cleveragents.access.model.user import Role, User
from cleveragents.api.access import Access
from cleveragents.api.handover import Handover
from cleveragents.api.plans.listing import latest
from cleveragents.api.server_requests import made_before
from cleveragents.core.errors import (
    AmbiguousPlan,
    CleverAgentsError,
    Conflict,
    Fault,
    NotAllowed,
    PlanError,
    RemoteUnreachable,
    SandboxMissing,
    SandboxRefused,
    Unavailable,
    UnknownPlan,
)
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Plan
from cleveragents.protocols.a2a_answers import answered
from cleveragents.protocols.a2a_goals import goal_of
from cleveragents.protocols.a2a_tasks import count_of, is_over, is_resting, state_of, task_of
from cleveragents.server.problems import said_of

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.types import (
        CancelTaskRequest,
        GetTaskRequest,
        ListTasksRequest,
        SendMessageRequest,
        SubscribeToTaskRequest,
    )

    from cleveragents.app.container import Container
    from cleveragents.storage.answers import Claim

__all__ = ["ACCESS", "ACCESS_NOW", "CLAIM", "PlanTasks"]

T = TypeVar("T")

ACCESS = "cleveragents_access"
"""Under which the state of a call has the caller's rights, as they were when it came."""

ACCESS_NOW = "cleveragents_access_now"
"""Under which it has a function that tells them as they are now; None if the token no longer holds."""

CLAIM = "cleveragents_claim"
"""Under which it has the claim to the request, if that came with an idempotency key."""

_FAILED = "something went wrong that should not have; the server's log has the details"
_NOT_KNOWN = "not authenticated: the token has expired or was revoked; ask again with another"
_LOOK_SECONDS = 0.3
_LONGEST_WAIT = 25.0
_PAGE = 50
_MOST = 100


@dataclass
class PlanTasks(RequestHandler):
    """`RequestHandler` over plans. Stateless: any number of requests may run at once."""

    container: Container

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """A new task for a goal, or an answer to one that asks. It returns when the task rests, or after a
        while: a plan may take hours, and `GetTask` tells the rest."""
        plan = await _asked(lambda: self._said(params, context))
        task = await self._task(plan.id, context)
        if params.configuration.return_immediately:
            return task
        with anyio.move_on_after(_LONGEST_WAIT):
            while not is_resting(task):
                await anyio.sleep(_LOOK_SECONDS)
                task = await self._task_for(plan.id, context)
        return task

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
        """The task, and every change of it until it rests."""
        plan = await _asked(lambda: self._said(params, context))
        async for event in self._followed(plan.id, context):
            yield event

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
        """As above, for one that was begun before."""
        if is_over(await self._task(params.id, context)):
            raise UnsupportedOperationError(message="the task is over: GetTask tells what came of it")
        async for event in self._followed(params.id, context):
            yield event

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        return await self._task(params.id, context)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """The newest first."""
        access = _access(context)
        size = params.page_size or _PAGE
        if not 1 <= size <= _MOST:  # guard: a page is one
            raise InvalidParamsError(message=f"a page has 1 to {_MOST} tasks")

        def look() -> ListTasksResponse:
            parts = self.container.plan_parts

            def wanted(plan: Plan) -> bool:
                return (
                    plan.parent_id is None
                    and params.context_id in ("", plan.root)
                    and params.status in (0, state_of(plan))
                )

            found, more = latest(
                parts, wanted, states=(), limit=size, after=params.page_token or None, scope=access.scope
            )
            return ListTasksResponse(
                tasks=[task_of(parts, plan) for plan in found],
                next_page_token=found[-1].id if more else "",
                page_size=size,
                total_size=count_of(self.container, params.context_id, params.status, access.scope),
            )

        return await _asked(look)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        access = _access(context)

        def cancel() -> None:
            plan = access.plan(params.id, Role.OPERATOR)
            try:
                self._handover(access.user).cancel(plan.id, "cancelled by another agent")
            except (PlanError, Conflict) as error:
                raise TaskNotCancelableError(message=redact_text(str(error))) from None

        await _asked(cancel)
        return await self._task(params.id, context)

    async def on_create_task_push_notification_config(self, params: Any, context: ServerCallContext) -> Any:
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(self, params: Any, context: ServerCallContext) -> Any:
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(self, params: Any, context: ServerCallContext) -> Any:
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(self, params: Any, context: ServerCallContext) -> None:
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> Any:
        raise ExtendedAgentCardNotConfiguredError

    def _said(self, params: SendMessageRequest, context: ServerCallContext) -> Plan:
        access = _access(context)
        access.ensure_anywhere(Role.OPERATOR)
        message = params.message
        text = get_message_text(message).strip()
        if not text:
            raise InvalidParamsError(message="say what is wanted, in text")
        if message.task_id:
            return answered(self.container, access.plan(message.task_id, Role.OPERATOR), params, text)
        claim: Claim | None = context.state[CLAIM]
        again = made_before(self.container, claim)
        if again is not None:  # guard: what it named without a word may be one of several by now
            return access.made(again, Role.OPERATOR)
        goal = goal_of(text, params, [resource.name for resource in access.resources()])
        access.resource(goal.resource or "", Role.OPERATOR)
        return self._handover(access.user).created(goal, claim)

    def _handover(self, user: User) -> Handover:
        return Handover(self.container, user.name)

    async def _task(self, plan_id: str, context: ServerCallContext) -> Task:
        return await self._task_with(plan_id, _access(context))

    async def _task_with(self, plan_id: str, access: Access) -> Task:
        def look() -> Task:
            parts = self.container.plan_parts
            plan = access.plan(plan_id, Role.VIEWER)
            task = task_of(parts, plan)
            return task_of(parts, plan, self._diff(plan, access.user)) if is_over(task) else task

        return await _asked(look)

    def _diff(self, plan: Plan, user: User) -> str | None:
        # guard: who may not apply it needs no secret of it
        masked = not user.may(Role.OPERATOR, plan.project)
        try:
            return self._handover(user).diff(plan.id, masked=masked)
        except (SandboxMissing, PlanError, RemoteUnreachable, SandboxRefused):
            return None  # it was applied and cleaned up, never came so far, or is not to be had now

    async def _task_for(self, plan_id: str, context: ServerCallContext) -> Task:
        """For one who has waited for it, and may have lost the token or the role meanwhile."""
        look_up: Callable[[], Access | None] = context.state[ACCESS_NOW]
        access = await _asked(look_up)
        if access is None:  # guard: who is let in no more is told nothing more
            raise InvalidRequestError(message=_NOT_KNOWN)
        return await self._task_with(plan_id, access)

    async def _followed(
        self, plan_id: str, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
        task = await self._task(plan_id, context)
        yield task
        while not is_resting(task):
            await anyio.sleep(_LOOK_SECONDS)
            before, task = task, await self._task_for(plan_id, context)
            if task.status == before.status:
                continue
            for artifact in task.artifacts:
                yield TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=artifact)
            yield TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)


def _access(context: ServerCallContext) -> Access:
    """The caller's rights. The route lets nobody in without a token."""
    access: Access = context.state[ACCESS]
    return access


async def _asked(ask: Callable[[], T]) -> T:
    """On a thread; what is wrong is said in the protocol's words."""
    try:
        return await to_thread.run_sync(ask)
    except (UnknownPlan, AmbiguousPlan):
        raise TaskNotFoundError from None
    except NotAllowed as error:
        raise UnsupportedOperationError(message=redact_text(str(error))) from None
    except Fault:  # guard: how we are made is nobody's business
        structlog.get_logger().exception("a2a.failed")
        raise InternalError(message=_FAILED) from None
    except Unavailable as error:  # the same may go well later: nobody is to change what they ask for
        raise InternalError(message=redact_text(said_of(error))) from None
    except CleverAgentsError as error:
        raise InvalidParamsError(message=redact_text(str(error))) from None
