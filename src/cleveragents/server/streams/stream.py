"""A stream of server-sent events as an answer: what the hub has for its client, until one of them goes.

sse-starlette has five tasks for each client where this has two, took about three times the CPU for a chunk in
a comparison without the hub, and polls for the end of the server itself, so that two would decide when
streams end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cleveragents.access.model.user import User
from cleveragents.core.errors import CleverAgentsError, NotAuthenticated
from cleveragents.server.problems import problem_of
from cleveragents.server.streams.frames import opening_frame, problem_frame
from cleveragents.server.streams.hub import EventHub, StreamClient

__all__ = ["EventStream", "WatchedPlans"]

_CHECK_SECONDS = 30.0
_REMEDY = "yours has expired or was revoked; log in again, or use another"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx would otherwise keep events back until a buffer is full.
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class WatchedPlans:
    """The plans whose output is wanted: the project of each, and the number after which it begins."""

    projects: Mapping[str, str | None]
    after: Mapping[str, int]

    def seen_by(self, user: User) -> dict[str, int]:
        """Those that the user may see; a plan of another project is passed over, as one that does not
        exist."""
        return {
            plan_id: number
            for plan_id, number in self.after.items()
            if (project := self.projects[plan_id]) is not None and user.role_in(project) is not None
        }


class EventStream(Response):
    """Answers with the user's events after a position, those to come included, and the output of some plans.

    `rights` is asked now and then. A token that has expired or was revoked ends the stream, and the last
    frame says so; a role that was taken away ends what the stream shows of that project.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        hub: EventHub,
        after: int | None,
        watched: WatchedPlans,
        rights: Callable[[], Awaitable[User | None]],
        user: User,
        *,
        check_seconds: float | None = None,
    ) -> None:
        self.hub = hub
        self.after = after
        self.watched = watched
        self.rights = rights
        self.user = user
        self.check_seconds = _CHECK_SECONDS if check_seconds is None else check_seconds
        self.background = None
        self.status_code = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, astray = await self.hub.join(
            self.after, self.watched.seen_by(self.user), self.user.id, self.user.scope
        )
        listening = asyncio.create_task(_listen(receive, client))
        # A body that is refused ends the stream; there is no one left to raise its error to.
        listening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await _say(send, opening_frame(client.cursor, reset=astray))
            await self._tell(client, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.hub.part(client)  # guard: nobody is told for ever who has gone
            listening.cancel()

    async def _tell(self, client: StreamClient, send: Send) -> None:
        checked_at = self.hub.now()
        try:
            while (chunk := await client.next_chunk()) is not None:
                await _say(send, chunk)
                if self.hub.now() - checked_at >= self.check_seconds:
                    checked_at = self.hub.now()
                    user = await self.rights()
                    if user is None:
                        await _say(send, problem_frame(bytes(problem_of(NotAuthenticated(_REMEDY)).body)))
                        return
                    # guard: who was removed from a project sees no more of it
                    client.narrow(user.scope, self.watched.seen_by(user))
        except CleverAgentsError:
            # The database does not answer now. The client comes back in a second, to where it is.
            return


async def _say(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _listen(receive: Receive, client: StreamClient) -> None:
    """End the stream when the client has gone, or sends a body that is refused."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        client.leave()
