"""Routes of the audit log: reading, verification and the live stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool

from cleveragents.access.model.user import User
from cleveragents.access.store.sql_project_store import project_of_output
from cleveragents.api.events import EventPage, VerificationView
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.server.access import AdminClient, AnyClient, AnyUser, access_now
from cleveragents.server.parameters import Limit, OfPlan
from cleveragents.server.service import Here, Service
from cleveragents.server.streams.hub import EventHub
from cleveragents.server.streams.log_follower import LogSource
from cleveragents.server.streams.stream import EventStream, WatchedPlans

__all__ = ["hub_of", "router"]

router = APIRouter(prefix="/api", tags=["events"])

_FURTHEST = 2**63 - 1
Position = Annotated[int | None, Query(ge=0, le=_FURTHEST, description="only events after this position")]
Outputs = Annotated[
    list[Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z]{1,64}(:[0-9]{1,9})?$")]] | None,
    Query(
        max_length=20,
        description="ID:N: also stream the output of this plan or conversation after number N; repeatable",
    ),
]
LastSeen = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID", ge=0, le=_FURTHEST, description="the last position seen; overrides `after`"
    ),
]
_STREAMED: dict[str, Any] = {
    "description": "server-sent events",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


@router.get("/events", operation_id="listEvents")
def list_events(
    client: AnyClient,
    limit: Limit = 100,
    after: Position = None,
    type_name: Annotated[
        str | None, Query(alias="type", max_length=100, description="such as job.succeeded")
    ] = None,
    subject: Annotated[str | None, Query(max_length=100)] = None,
    plan: OfPlan = None,
) -> EventPage:
    """List the events of your projects after a position, or the latest events, in order.

    Events of users, tokens, workers and trust are for server admins. With `plan`, list the events of the plan
    and of the jobs that ran, applied or undid it.
    """
    return client.events.list(after=after, limit=limit, event_type=type_name, subject=subject, plan=plan)


@router.get("/events/verification", operation_id="verifyEvents")
def verify_events(client: AdminClient, here: Here) -> VerificationView:
    """Verify the whole log and name every event that was changed, removed, moved or cut off.

    With the setting `audit.anchor`, the log is also compared with the anchor outside the machine. At most two
    verifications run in parallel (429).
    """
    with here.verifications.one("verifications"):
        return client.events.verify()


@router.get(
    "/events/stream",
    operation_id="streamEvents",
    status_code=200,
    response_class=EventStream,
    responses={200: _STREAMED},
)
async def stream_events(
    request: Request,
    access: AnyUser,
    here: Here,
    after: Position = None,
    output: Outputs = None,
    last_event_id: LastSeen = None,
) -> EventStream:
    """Stream the events of your projects after a position, or from now on, and the output of plans and
    conversations.

    `id` is the position, `event` the type, `data` the event as JSON. A client that reconnects with the last
    position it has seen misses no event and sees none twice, even after a restart of the server.

    - `event: output` is output of a plan, or of a conversation, whose answers arrive in it; `plan_id` is the
      id of the plan or conversation. Output has no position; a client continues after the last number it has
      seen.
    - `event: reset` comes first if the position is not in this log: the client should read its data again.
    - `event: problem` comes last if the token is no longer valid. `data` is the problem that another request
      would get.

    Roles and memberships are checked every 30 seconds: within a minute, a user who was removed from a project
    sees none of its events.
    """
    hub = hub_of(request, here)
    outputs = {
        plan_id: int(number or 0) for plan_id, _, number in (one.partition(":") for one in output or ())
    }
    start = after if last_event_id is None else last_event_id
    watched = WatchedPlans(await run_in_threadpool(_projects_of, here, outputs), outputs)
    return EventStream(hub, start, watched, lambda: _rights(request, here), access.user)


def hub_of(request: Request, service: Service) -> EventHub:
    """Return the hub of this application, created on the first call. Call it in the server's event loop."""
    state = request.app.state
    hub: EventHub | None = getattr(state, "hub", None)
    if hub is None or hub.loop is not asyncio.get_running_loop():
        container = service.container
        source = LogSource(container.audit, SqlPlanOutput(container.database))
        listen = container.database.add_commit_listener
        hub = EventHub(source, on_commit=lambda wake: listen(lambda events: wake()))
        service.stopping.on_begin(hub.close)
        state.hub = hub
    return hub


def _projects_of(service: Service, owner_ids: Iterable[str]) -> dict[str, str | None]:
    database = service.container.database
    return {one: project_of_output(database, one) for one in owner_ids}


async def _rights(request: Request, service: Service) -> User | None:
    """Return the user with current rights, or None if the token is no longer valid."""
    access = await run_in_threadpool(access_now, request, service.container)
    return None if access is None else access.user
