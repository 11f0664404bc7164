"""Checks of the host, the origin and the media type of requests.

**Host.** The owner of a page on the internet can point its host name at 127.0.0.1 (DNS rebinding); the
browser then treats this server as part of that page. The foreign name in `Host` reveals the attack. An IP
address in `Host` is safe, because it cannot be rebound. Starlette's `TrustedHostMiddleware` trusts the first
of several `Host` headers, cannot allow every address, and answers 400 in plain text; so we use our own check.

**Origin.** The cookie is `SameSite=Strict`, but browsers treat all ports of a machine, and all hosts of a
domain, as the same site: other programs there could use the cookie. So the API accepts only pages of this
exact origin, and changes also need a CSRF token that only such a page can read.

**Media type.** A body must declare the media type JSON. A foreign page cannot send this media type without
permission. It can send forms, which have other media types.
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
    """Refuses requests to other host names. If the server listens beyond this machine, every address is
    accepted.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str], *, any_address: bool) -> None:
        self._app = app
        self._names = frozenset(names)
        self._any_address = any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ours = scope["type"] != "http" or self._is_ours(header(scope, b"host") or "")
        if not ours:  # guard: no rebound name
            raise Refused(
                421,
                "unknown-host",
                "unknown host name of this server; ask an admin to add it to the setting server.names",
            )
        await self._app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = name_in(host)
        if name in self._names:
            return True
        return self._any_address and _is_address(name)


def allowed_names(host: str, more: str) -> set[str]:
    """Return the allowed host names: this machine's, the listening address, and the names in the settings."""
    named = [name.strip() for name in more.split(",")]
    return {*_LOOPBACK, *filter(None, (name_in(_bracketed(name)) for name in (host, *named)))}


def name_in(host: str) -> str:
    """Return the normalized name or address in a `Host` header, without its port; "" if invalid."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2].rstrip(".")).lower() if found else ""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False  # a name may resolve to any address


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") and _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class OriginCheck:
    """Refuses requests from foreign pages, except links, and requests with a cookie but no CSRF token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if _is_foreign(scope):  # guard: no foreign page reads or changes anything
                raise Refused(403, "foreign-origin", "requests from other sites are refused")
            _ensure_meant(scope)
        await self._app(scope, receive, send)


def csrf_word(secret: str) -> str:
    """Return the CSRF token for a cookie. The cookie cannot be derived from the token."""
    return hmac.new(secret.encode(), b"cleveragents csrf", sha256).hexdigest()


def _ensure_meant(scope: Scope) -> None:
    state = state_of(scope)
    token = state.get("token")
    if token is None or token.kind is not TokenKind.BROWSER or scope["method"] in SAFE_METHODS:
        return
    said = header(scope, b"x-csrf-token") or ""
    if not hmac.compare_digest(said.encode(), csrf_word(state["secret"]).encode()):  # guard: our page
        raise Refused(
            403,
            "csrf",
            "missing or invalid CSRF token; send `csrf` of GET /api/session in the header X-CSRF-Token",
        )


def _is_foreign(scope: Scope) -> bool:
    site = header(scope, b"sec-fetch-site")
    linked = scope["method"] in SAFE_METHODS and not is_api(scope)
    if site is not None and site not in _OURS and not linked:
        return True
    if not any(name == b"origin" for name, _ in scope["headers"]):
        return False  # not from a page: browsers send this or the header above with everything except links
    # A proxy may use https where we use http, so the scheme is not compared.
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
    """Refuses API bodies that do not declare JSON. Stateless."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _has_body(scope) and not _is_json(scope):  # guard: never guessed
            raise Refused(
                415,
                "unsupported-media-type",
                "the body must be JSON; send the header Content-Type: application/json",
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
