"""No request is larger than allowed, whether it says its size or not."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.interfaces.server.gates.wire import header
from cleveragents.interfaces.server.problems import Refused

__all__ = ["BodyGate"]

_BEARABLE = 8


class BodyGate:
    """Refuses a body of more than so many bytes: at once if its size is known, else when they have come."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = header(scope, b"content-length") or "0"
        if not said.isdecimal() or int(said) > self._limit:  # guard: nothing of it is read
            raise self._refusal()
        counting = _Counted(receive, send, self._limit)
        try:
            await self._app(scope, counting.receive, counting.send)
        except Exception:
            if not counting.over:
                raise
        if counting.over and not counting.started:
            raise self._refusal()

    def _refusal(self) -> Refused:
        return Refused(
            413,
            "body-too-large",
            f"the request has more than {self._limit:,} bytes, which the setting server.body_bytes allows",
            {"Connection": "close"},
        )


class _TooMuch(Exception):
    """Ends whoever reads the body."""


class _Counted:
    """What is read and sent. Once too much was read, whoever read it can answer nothing any more: a framework
    takes the error for its own affair, and would say something else."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._left = limit
        self._bearable = _BEARABLE * limit
        self.over = False
        self.started = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:  # guard: a body that comes in pieces says no size
                self.over = True
                await self._discard(message)
                raise _TooMuch
        return message

    async def _discard(self, message: Message) -> None:
        """Reads on for a while: a connection that is cut while somebody sends takes the answer with it."""
        passed = 0
        while message.get("more_body", False) and passed < self._bearable:
            message = await self._receive()
            passed += len(message.get("body", b""))

    async def send(self, message: Message) -> None:
        if self.over and not self.started:
            return
        self.started = True
        await self._send(message)
