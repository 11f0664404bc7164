"""Tasks of the Agent2Agent protocol, which are plans: the id of a task is the id of its plan.

Tasks are not stored separately. So a task is as durable as its plan, every server of the same database knows
it, and the task and the page show the same status.

A new message contains a goal; its metadata contains the options. A message to an existing task answers its
question. The metadata of the answer may name the question; its name is in the status of the task. An answer
without this name, from an agent that sends only text, counts only if the plan never waited before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import NAMESPACE_OID, uuid5

import anyio
import structlog
from a2a.helpers import get_message_text, new_text_artifact, new_text_message
from a2a.server.request_handlers import RequestHandler
from a2a.types import (
    ListTasksResponse,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
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
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import ValidationError

from cleveragents.api.plans.summary import Phase, PlanState, PlanSummary
from cleveragents.core.errors import (
    AmbiguousPlan,
    CleverAgentsError,
    Conflict,
    Fault,
    NeedsHuman,
    NotAllowed,
    PlanError,
    RemoteUnreachable,
    SandboxMissing,
    SandboxRefused,
    Unavailable,
    UnknownPlan,
)
from cleveragents.core.text.redaction import redact_known_text, redact_text
from cleveragents.protocols.agent_requests import GoalOptions, only_resource, patch_text
from cleveragents.server.problems import public_message

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.types import (
        CancelTaskRequest,
        GetTaskRequest,
        ListTasksRequest,
        SendMessageRequest,
        SubscribeToTaskRequest,
    )

    from cleveragents.api.client import Client, LocalClient
    from cleveragents.server.middleware.idempotency import Claimed

__all__ = ["CALLER", "Caller", "PlanTasks", "plan_terms", "task_of"]

T = TypeVar("T")

CALLER = "cleveragents_caller"
"""The key of the `Caller` in the state of a call."""

QUESTION = "question"
"""The metadata key of a question, in the status that asks and in the message that answers."""

_FAILED = "internal error; the server's log has the details"
_NOT_KNOWN = "not authenticated: the token has expired or was revoked; use another"
_LOOK_SECONDS = 0.3
_REST_SECONDS = 2.0
_LONGEST_WAIT = 25.0
_PAGE = 50
_MOST = 100
_ENDED = {
    PlanState.ERRORED: TaskState.TASK_STATE_FAILED,
    PlanState.CONSTRAINED: TaskState.TASK_STATE_FAILED,
    PlanState.CANCELLED: TaskState.TASK_STATE_CANCELED,
    PlanState.REJECTED: TaskState.TASK_STATE_REJECTED,
    PlanState.APPLIED: TaskState.TASK_STATE_COMPLETED,
    PlanState.UNDONE: TaskState.TASK_STATE_COMPLETED,
}
_OVER = frozenset(_ENDED.values())


@dataclass(frozen=True, slots=True)
class Caller:
    """The calling agent. `client` has the rights of its user at the start of the call; `client_now` returns a
    client with the current rights, or None if the token is no longer valid. `claim` is the idempotency claim
    of a request with an idempotency key.
    """

    client: LocalClient
    client_now: Callable[[], LocalClient | None]
    claim: Claimed


class PlanTasks(RequestHandler):
    """A `RequestHandler` over plans. Stateless: any number of requests may run in parallel."""

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Create a task for a goal, or answer the question of a task. Return when the task has ended or needs
        an answer, or after a time limit: a plan may take hours, and `GetTask` returns its later status.
        """
        plan_id = await _asked(lambda: _said(params, _caller(context)))
        task = await _task(plan_id, _caller(context).client)
        if params.configuration.return_immediately:
            return task
        with anyio.move_on_after(_LONGEST_WAIT):
            while not _is_resting(task):
                await anyio.sleep(_LOOK_SECONDS)
                task = await _task_now(plan_id, _caller(context))
        return task

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
        """Yield the task, and every change of it until it has ended or needs an answer."""
        plan_id = await _asked(lambda: _said(params, _caller(context)))
        async for event in _followed(plan_id, _caller(context), _is_resting):
            yield event

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
        """Yield an existing task, and every change of it until it has ended; a request for input does not end
        the stream.
        """
        if _is_over(await _task(params.id, _caller(context).client)):
            raise UnsupportedOperationError(message="the task has ended; GetTask returns the outcome")
        async for event in _followed(params.id, _caller(context), _is_over):
            yield event

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        return await _task(params.id, _caller(context).client)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """List the tasks, newest first."""
        size = params.page_size or _PAGE
        if not 1 <= size <= _MOST:  # guard: bounded pages
            raise InvalidParamsError(message=f"a page has 1 to {_MOST} tasks")
        client = _caller(context).client

        def look() -> ListTasksResponse:
            found = [*islice(_listed(client, params), size + 1)]
            return ListTasksResponse(
                tasks=[task_of(plan) for plan in found[:size]],
                next_page_token=found[size - 1].id if len(found) > size else "",
                page_size=size,
                total_size=len(found) if params.context_id else _count(client, params.status),
            )

        return await _asked(look)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        client = _caller(context).client

        def cancel() -> None:
            try:
                client.plans.cancel(params.id, reason="cancelled by another agent")
            except (PlanError, Conflict) as error:
                raise TaskNotCancelableError(message=redact_text(str(error))) from None

        await _asked(cancel)
        return await _task(params.id, client)

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


def task_of(plan: PlanSummary, patch: str | None = None) -> Task:
    """Return the plan as a task; `patch` is its artifact."""
    moment = Timestamp()
    moment.FromDatetime(plan.updated)
    said = _in_words(plan)
    message = new_text_message(said, context_id=plan.root, task_id=plan.id, role=Role.ROLE_AGENT)
    # An equal status is an equal message: streams send only changes.
    message.message_id = str(uuid5(NAMESPACE_OID, f"{plan.id} {plan.updated} {said}"))
    pending = _pending(plan)
    if plan.state is PlanState.WAITING and pending.get("for") == "question" and pending.get(QUESTION):
        message.metadata.update({QUESTION: str(pending[QUESTION])})
    state = _task_state(plan.phase, plan.state)
    if plan.parked_until is not None:  # it continues by itself
        state = TaskState.TASK_STATE_WORKING
    task = Task(
        id=plan.id,
        context_id=plan.root,
        status=TaskStatus(state=state, message=message, timestamp=moment),
    )
    task.metadata.update({"goal": plan.goal, "phase": plan.phase.value, "state": plan.state.value})
    if patch:
        task.artifacts.append(new_text_artifact("changes.patch", patch, media_type="text/x-diff"))
    return task


def plan_terms(params: SendMessageRequest) -> GoalOptions:
    """Return the options in the metadata of a message; other metadata is ignored. Raises
    `InvalidParamsError`.
    """
    try:
        said = MessageToDict(params.metadata) | MessageToDict(params.message.metadata)
    except ValueError as error:  # an infinite number
        raise InvalidParamsError(message=f"metadata: {error}") from None
    try:
        return GoalOptions.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidParamsError(message=f"metadata.{place}: {first['msg']}") from None


def _said(params: SendMessageRequest, caller: Caller) -> str:
    """Return the id of the plan that the message creates or answers."""
    plans, message = caller.client.plans, params.message
    if any(part.WhichOneof("content") != "text" for part in message.parts):  # guard: no part is ignored
        raise ContentTypeNotSupportedError(message="unsupported part: send text")
    text = get_message_text(message).strip()
    if not text:
        raise InvalidParamsError(message="missing goal: send text")
    if message.task_id:
        return plans.answer(message.task_id, text, question=_question_in(params), first=True).id
    terms = plan_terms(params)
    if terms.resource is None:
        terms.resource = _default_resource(caller)
    return plans.create(terms.request(text), claim=caller.claim).id


def _question_in(params: SendMessageRequest) -> str | None:
    for metadata in (params.message.metadata, params.metadata):
        if QUESTION in metadata.fields:
            name = metadata.fields[QUESTION].string_value  # empty if it is not a text
            if not name:
                raise InvalidParamsError(message=f"metadata.{QUESTION}: Input should be a valid string")
            return name
    return None


def _default_resource(caller: Caller) -> str:
    """Return the only resource. Raises `RequestRefused` if it is not unique."""
    if caller.claim is not None and caller.claim.made:  # guard: by now there may be several
        return ""
    return only_resource(caller.client, "metadata.resource")


def _listed(client: Client, params: ListTasksRequest) -> Iterator[PlanSummary]:
    """Yield the plans of a list request, newest first."""
    found = _plans_after(client, params) if not params.context_id else _plan_of_context(client, params)
    for plan in found:
        if plan.parent is None and params.status in (0, _task_state(plan.phase, plan.state)):
            yield plan


def _plan_of_context(client: Client, params: ListTasksRequest) -> Iterator[PlanSummary]:
    """Yield the plan of a context. The id of a context is the id of a root plan; only the root plan is
    yielded.
    """
    try:
        plan = client.plans.summary(params.context_id)
    except (UnknownPlan, AmbiguousPlan):
        return
    if plan.id == params.context_id and not params.page_token:
        yield plan


def _plans_after(client: Client, params: ListTasksRequest) -> Iterator[PlanSummary]:
    states = {
        state for phase in Phase for state in PlanState if params.status in (0, _task_state(phase, state))
    }
    if not states:  # no plan has such a state; an empty filter would mean all
        return
    after: str | None = params.page_token or None
    while True:
        page = client.plans.list(states=states, limit=_MOST + 1, after=after)
        yield from page.items
        if (after := page.next) is None:
            return


def _count(client: Client, status: TaskState | int) -> int:
    counts = client.plans.counts()
    return sum(one.count for one in counts if status in (0, _task_state(one.phase, one.state)))


async def _task(plan_id: str, client: Client) -> Task:
    def look() -> Task:
        plan = client.plans.summary(plan_id)
        over = _task_state(plan.phase, plan.state) in _OVER
        return task_of(plan, _patch(client, plan.id) if over else None)

    return await _asked(look)


def _patch(client: Client, plan_id: str) -> str | None:
    try:
        return patch_text(client, plan_id)
    except (SandboxMissing, PlanError, NeedsHuman, RemoteUnreachable, SandboxRefused):
        return None  # no result, or its sandbox was removed or is unreachable


async def _task_now(plan_id: str, caller: Caller) -> Task:
    """Return the task for a caller who has waited and may have lost the token or the role meanwhile."""
    client = await _asked(caller.client_now)
    if client is None:  # guard: an invalid token shows nothing more
        raise InvalidRequestError(message=_NOT_KNOWN)
    return await _task(plan_id, client)


async def _followed(
    plan_id: str, caller: Caller, ends: Callable[[Task], bool]
) -> AsyncGenerator[Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent, None]:
    task = await _task(plan_id, caller.client)
    yield task
    while not ends(task):
        # A person may take hours to answer.
        await anyio.sleep(_LOOK_SECONDS if not _is_resting(task) else _REST_SECONDS)
        before, task = task, await _task_now(plan_id, caller)
        if task.status == before.status:
            continue
        for artifact in task.artifacts:
            yield TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=artifact)
        yield TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)


def _is_over(task: Task) -> bool:
    """Return whether the task does not continue by itself."""
    return task.status.state in _OVER


def _is_resting(task: Task) -> bool:
    """Return whether the task is over or waits for an answer."""
    return _is_over(task) or task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED


def _task_state(phase: Phase, state: PlanState) -> TaskState:
    if state in _ENDED:
        return _ENDED[state]
    if (phase, state) == (Phase.EXECUTE, PlanState.COMPLETE):
        return TaskState.TASK_STATE_COMPLETED  # a person or the profile decides about the apply
    if state is PlanState.WAITING:
        return TaskState.TASK_STATE_INPUT_REQUIRED
    queued = state is PlanState.QUEUED and phase in (Phase.ACTION, Phase.STRATEGIZE)
    return TaskState.TASK_STATE_SUBMITTED if queued else TaskState.TASK_STATE_WORKING


def _pending(plan: PlanSummary) -> Mapping[str, object]:
    return plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}


def _in_words(plan: PlanSummary) -> str:
    said = redact_text(plan.meaning)
    if plan.needs is not None:
        said = f"{said} (needs {plan.needs})"
    asks = plan.parked_until is None and not plan.waits_for_sub_plans
    if plan.state is PlanState.WAITING and asks:
        said = f"{said}: {redact_known_text(str(_pending(plan).get('what')))}"  # in full, to be answered
    return f"{said}: {plan.error}" if plan.error else said


def _caller(context: ServerCallContext) -> Caller:
    """Return the caller. The route admits only users with a token."""
    caller: Caller = context.state[CALLER]
    return caller


async def _asked(ask: Callable[[], T]) -> T:
    """Run a call in a thread; convert its errors to errors of the protocol."""
    try:
        return await to_thread.run_sync(ask)
    except (UnknownPlan, AmbiguousPlan):
        raise TaskNotFoundError from None
    except NotAllowed as error:
        raise UnsupportedOperationError(message=redact_text(str(error))) from None
    except Fault:  # guard: internals stay hidden
        structlog.get_logger().exception("a2a.failed")
        raise InternalError(message=_FAILED) from None
    except Unavailable as error:  # the unchanged request may succeed later
        raise InternalError(message=redact_text(public_message(error))) from None
    except CleverAgentsError as error:
        raise InvalidParamsError(message=redact_text(str(error))) from None
