"""Settings of the server, of who runs the jobs of many, and of who is told how long things take."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

__all__ = ["JobSettings", "ServerSettings", "TelemetrySettings"]


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the server is, for those who start one and for those who ask one."""

    host: Annotated[str, Meta(min_length=1, description="the address that `agents serve` listens on")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65_535, description="its port; 0 takes any that is free")] = 8420
    names: Annotated[
        str, Meta(description="names under which browsers may reach it, separated by commas")
    ] = ""
    address: Annotated[str, Meta(description="URL of the server that commands go through")] = ""
    requests_per_minute: Annotated[
        int, Meta(ge=1, le=1_000_000, description="requests of one user, or of one address without a user")
    ] = 1200
    body_bytes: Annotated[int, Meta(ge=1024, le=1_000_000_000, description="the largest request")] = 1_000_000
    session_hours: Annotated[int, Meta(ge=1, le=8760, description="how long a browser stays logged in")] = 168

    def __post_init__(self) -> None:
        _ensure_url(self.address)


class JobSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who runs jobs of shared queues, and how many."""

    engine: Annotated[
        Literal["embedded", "temporal"], Meta(description="who hands out jobs: our database, or Temporal")
    ] = "embedded"
    queue_bound: Annotated[
        int, Meta(ge=1, le=10_000_000, description="jobs that may be queued for workers at once")
    ] = 10_000
    provider_limit: Annotated[
        int, Meta(ge=1, le=10_000, description="jobs at once, anywhere, that use models of one provider")
    ] = 64
    temporal_address: Annotated[
        str, Meta(min_length=1, description="where Temporal's frontend answers: host:port")
    ] = "127.0.0.1:7233"
    temporal_namespace: Annotated[str, Meta(min_length=1, description="the namespace of our workflows")] = (
        "default"
    )


class TelemetrySettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who gets traces of what plans do; nobody, unless somebody says so."""

    endpoint: Annotated[
        str, Meta(description="where an OpenTelemetry collector takes traces: an OTLP/HTTP URL; empty: off")
    ] = ""
    service_name: Annotated[
        str, Meta(min_length=1, max_length=200, description="what traces call this installation")
    ] = "cleveragents"

    def __post_init__(self) -> None:
        _ensure_url(self.endpoint)


def _ensure_url(text: str) -> None:
    parts = urlsplit(text)
    if text and not (parts.scheme in ("http", "https") and parts.hostname):
        raise ValueError("should be a URL that begins with http:// or https://")
