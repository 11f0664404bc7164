"""A stream of server-sent events as an answer: what the hub has for its client, until one of them goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cleveragents.errors import CleverAgentsError, NotAuthenticated
from cleveragents.interfaces.server.frames import opening_frame, problem_frame
from cleveragents.interfaces.server.hub import EventHub, StreamClient
from cleveragents.interfaces.server.problems import problem_of

__all__ = ["EventStream"]

_CHECK_SECONDS = 30.0
_REMEDY = "yours has expired or was revoked; log in again, or use another"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx would otherwise keep events back until a buffer is full.
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """Answers with events after a position, those to come included, and the output of some plans.

    `still_allowed` is asked now and then: a token that has expired, or was taken from somebody, ends their
    streams, too, and the last frame says so.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        hub: EventHub,
        after: int | None,
        outputs: Mapping[str, int],
        still_allowed: Callable[[], Awaitable[bool]],
        *,
        user: str = "",
        check_seconds: float | None = None,
    ) -> None:
        self.hub = hub
        self.after = after
        self.outputs = outputs
        self.still_allowed = still_allowed
        self.user = user
        self.check_seconds = _CHECK_SECONDS if check_seconds is None else check_seconds
        self.background = None
        self.status_code = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client, astray = await self.hub.join(self.after, self.outputs, self.user)
        listening = asyncio.create_task(_listen(receive, client))
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
                    if not await self.still_allowed():
                        await _say(send, problem_frame(bytes(problem_of(NotAuthenticated(_REMEDY)).body)))
                        return
        except CleverAgentsError:
            # The database does not answer now. The client comes back in a second, to where it is.
            return


async def _say(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _listen(receive: Receive, client: StreamClient) -> None:
    """Until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    client.leave()
