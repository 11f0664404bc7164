"""What has a body says that it is JSON: forms, and whatever a page of somebody else can send, are none."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from cleveragents.server.middleware.wire import SAFE_METHODS, header, is_api
from cleveragents.server.problems import Refused

__all__ = ["MediaGate"]


class MediaGate:
    """Refuses a body of the API that does not say it is JSON. Stateless."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _has_body(scope) and not _is_json(scope):  # guard: nothing is guessed
            raise Refused(
                415,
                "unsupported-media-type",
                "the body has to be JSON, and say so: send the header Content-Type: application/json",
            )
        await self._app(scope, receive, send)


def _has_body(scope: Scope) -> bool:
    if scope["method"] in SAFE_METHODS or not is_api(scope):
        return False
    pieces = header(scope, b"transfer-encoding") is not None
    return pieces or (header(scope, b"content-length") or "0") != "0"


def _is_json(scope: Scope) -> bool:
    said = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
    return said == "application/json" or (said.startswith("application/") and said.endswith("+json"))
