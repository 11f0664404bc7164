"""Helpers that read a request."""

from __future__ import annotations

import ipaddress
from typing import Any

from starlette.types import Scope

__all__ = ["SAFE_METHODS", "address_of", "header", "is_api", "is_public_route", "state_of"]

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_SITE_BITS = 64


def header(scope: Scope, name: bytes) -> str | None:
    """Return the value of the header; None if the header is missing or repeated."""
    found = [value for key, value in scope["headers"] if key == name]
    if len(found) != 1:
        return None
    text: str = found[0].decode("latin-1")
    return text.strip()


def state_of(scope: Scope) -> dict[str, Any]:
    """Return the state that routes see as `request.state`."""
    state: dict[str, Any] = scope.setdefault("state", {})
    return state


def is_api(scope: Scope) -> bool:
    """Return whether the address belongs to the API."""
    path: str = scope["path"]
    return path == "/api" or path.startswith("/api/")


def is_public_route(scope: Scope) -> bool:
    """Return whether the address is public: the page, its files and the health check."""
    return scope["method"] in SAFE_METHODS and not is_api(scope) and scope["path"] != "/metrics"


def address_of(scope: Scope) -> str:
    """Return the client's address; for IPv6, its /64 network, because one machine can use all addresses of a
    network.
    """
    client = scope.get("client")
    host = str(client[0]) if client else "unknown"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address, _SITE_BITS), strict=False))
