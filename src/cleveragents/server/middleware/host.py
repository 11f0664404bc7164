"""Only requests that name this server are answered.

A page on the internet can have its own name lead to 127.0.0.1 (DNS rebinding); the browser then takes this
server for that page's own. The name in `Host` gives it away. An address instead of a name cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from cleveragents.server.middleware.wire import header
from cleveragents.server.problems import Refused

__all__ = ["HostGate", "allowed_names", "is_loopback", "name_in"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")


class HostGate:
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
