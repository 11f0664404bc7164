"""Where a request comes from: only requests that name this server, of its own pages or of programs, pass.

**Host.** A page on the internet can have its own name lead to 127.0.0.1 (DNS rebinding); the browser then
takes this server for that page's own. The name in `Host` gives it away. An address cannot be rebound.
Starlette's `TrustedHostMiddleware` believes the first of several `Host` headers, cannot allow every address,
and answers 400 in plain text; so the check is ours.

**Origin.** The cookie is `SameSite=Strict`, but to browsers every port of a machine is the same site, and so
is every host beside ours in a domain: whatever else runs there could ask with it. So the API answers pages of
this very origin only, and what changes something needs a word, too, that such a page alone can read.

**Media type.** A body says that it is JSON. Forms, and whatever a page of others can send unasked, are none.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from cleveragents.access.model.user import TokenKind
from cleveragents.server.middleware.wire import SAFE_METHODS, header, is_api, state_of
from cleveragents.server.problems import Refused

__all__ = [
    "HostCheck",
    "MediaCheck",
    "OriginCheck",
    "allowed_names",
    "csrf_word",
    "is_loopback",
    "name_in",
]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")
_PORTS = {"http": 80, "https": 443}
_OURS = ("same-origin", "none")


class HostCheck:
    """Refuses requests to other names than these. Where the server listens beyond this machine, every
    address is one of its own."""

    def __init__(self, app: ASGIApp, names: Iterable[str], *, any_address: bool) -> None:
        self._app = app
        self._names = frozenset(names)
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] != "http" or self._is_ours(header(scope, b"host") or "")
        if not ours:  # guard: no name that somebody else had lead here
            raise Refused(
                421,
                "unknown-host",
                "this server is not known by that name; an admin can add it to the setting server.names",
            )
        await self._app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = name_in(host)
        if name in self._names:
            return True
        return self._any_address and _is_address(name)


def allowed_names(host: str, more: str) -> set[str]:
    """Those of this machine, where the server listens, and those that the settings name."""
    named = [name.strip() for name in more.split(",")]
    return {*_LOOPBACK, *filter(None, (name_in(_bracketed(name)) for name in (host, *named)))}


def name_in(host: str) -> str:
    """The name or address in a `Host`, without its port, as it is compared; nothing if that is none."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2].rstrip(".")).lower() if found else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False  # a name, which may lead anywhere


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") and _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class OriginCheck:
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


class MediaCheck:
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
