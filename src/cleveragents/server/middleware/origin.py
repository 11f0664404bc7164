"""Nobody else's page asks in the name of somebody who is logged in here.

The cookie is `SameSite=Strict`, but to browsers every port of a machine is the same site, and so is every
host beside ours in a domain: whatever else runs there could ask with it. So the API answers pages of this
very origin only, and what changes something needs a word, too, that such a page alone can read.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from cleveragents.access.model.user import TokenKind
from cleveragents.server.middleware.wire import SAFE_METHODS, header, is_api, state_of
from cleveragents.server.problems import Refused

__all__ = ["OriginGate", "csrf_word"]

_PORTS = {"http": 80, "https": 443}
_OURS = ("same-origin", "none")


class OriginGate:
    """Refuses requests that come from pages of others, but for links to ours, or with a cookie alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if _is_foreign(scope):  # guard: no page of others reads or changes anything
                raise Refused(403, "foreign-origin", "the server answers no pages but its own")
            _ensure_meant(scope)
        await self._app(scope, receive, send)


def csrf_word(secret: str) -> str:
    """What a browser with that cookie sends along as `X-CSRF-Token`. The cookie cannot be told from it."""
    return hmac.new(secret.encode(), b"cleveragents csrf", sha256).hexdigest()


def _ensure_meant(scope: Scope) -> None:
    state = state_of(scope)
    token = state.get("token")
    if token is None or token.kind is not TokenKind.BROWSER or scope["method"] in SAFE_METHODS:
        return
    said = header(scope, b"x-csrf-token") or ""
    if not hmac.compare_digest(said.encode(), csrf_word(state["secret"]).encode()):  # guard: our page asks
        raise Refused(403, "csrf", "send what GET /api/session gives as `csrf` in the header X-CSRF-Token")


def _is_foreign(scope: Scope) -> bool:
    site = header(scope, b"sec-fetch-site")
    linked = scope["method"] in SAFE_METHODS and not is_api(scope)
    if site is not None and site not in _OURS and not linked:
        return True
    if not any(name == b"origin" for name, _ in scope["headers"]):
        return False  # no page of a browser: those send it, or the header above, with everything but links
    # A proxy may speak https where we speak http, so the scheme is not compared.
    scheme, _, place = (header(scope, b"origin") or "").partition("://")
    if scheme not in _PORTS:
        return True
    here = _place(header(scope, b"host") or "", scheme)
    return here is None or _place(place, scheme) != here


def _place(netloc: str, scheme: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(f"//{netloc}")
        return (parts.hostname, parts.port or _PORTS[scheme]) if parts.hostname else None
    except ValueError:
        return None
