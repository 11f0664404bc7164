"""A stream of server-sent events as a response, from the hub to one client.

sse-starlette is not used: it needs five tasks per client instead of two, took about three times the CPU per
chunk in a comparison without the hub, and polls for the end of the server itself.
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
_REMEDY = "your token has expired or was revoked; log in again or use another token"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Otherwise nginx buffers events.
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class WatchedPlans:
    """The watched plans: the project of each, and the number after which its output begins."""

    projects: Mapping[str, str | None]
    after: Mapping[str, int]

    def seen_by(self, user: User) -> dict[str, int]:
        """Return the plans that the user may see; others are skipped, like plans that do not exist."""
        return {
            plan_id: number
            for plan_id, number in self.after.items()
            if (project := self.projects[plan_id]) is not None and user.role_in(project) is not None
        }


class EventStream(Response):
    """Streams the user's events after a position, and the output of some plans.

    `rights` is checked regularly. An expired or revoked token ends the stream; the last frame has this
    reason. If the user loses a role in a project, the events of that project end.
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
        # A refused body ends the stream; its error has no receiver.
        listening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            await _say(send, opening_frame(client.cursor, reset=astray))
            await self._tell(client, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.hub.part(client)  # guard: a client that has gone gets nothing more
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
                    # guard: a user removed from a project sees no more of it
                    client.narrow(user.scope, self.watched.seen_by(user))
        except CleverAgentsError:
            # The database does not respond. The client reconnects in a second, at its position.
            return


async def _say(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _listen(receive: Receive, client: StreamClient) -> None:
    """End the stream when the client disconnects or sends a refused body."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        client.leave()
