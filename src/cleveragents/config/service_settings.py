"""Settings of the server, of shared jobs, of the audit log, and of telemetry."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

__all__ = ["AuditSettings", "JobSettings", "ServerSettings", "TelemetrySettings"]


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the server is, for those who start one and for those who ask one."""

    host: Annotated[str, Meta(min_length=1, description="the address that the server listens on")] = (
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
    header_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="time for the headers of a request to arrive")
    ] = 10.0
    body_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="time for the body of a request to arrive, plus 1 s for each KiB"),
    ] = 20.0
    stalled_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="time after which a client that reads nothing is disconnected"),
    ] = 60.0
    connections: Annotated[
        int,
        Meta(ge=8, le=1_000_000, description="connections at once, at most half of the open-files limit"),
    ] = 2500
    connections_per_address: Annotated[
        int, Meta(ge=4, le=1_000_000, description="connections at once from one address")
    ] = 600
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


class AuditSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys of the audit log, and its anchor outside the machine."""

    key_file: Annotated[
        str, Meta(description="file with the key that seals the log's head; empty: audit.key beside the log")
    ] = ""
    anchor: Annotated[
        str,
        Meta(description="where anchors of the log go: a path, https://…, or git+URL#BRANCH"),
    ] = ""
    anchor_minutes: Annotated[
        int, Meta(ge=0, le=10_080, description="how often the server and workers anchor the log; 0: never")
    ] = 0
    anchor_key_file: Annotated[
        str, Meta(description="Ed25519 private key that signs anchors; empty: anchor.key beside the log")
    ] = ""
    anchor_public_key_file: Annotated[
        str, Meta(description="public keys that anchors are checked with; empty: that of the private key")
    ] = ""
    anchor_token_variable: Annotated[
        str, Meta(description="environment variable with the bearer token for an anchor URL")
    ] = ""

    def __post_init__(self) -> None:
        for path in (self.key_file, self.anchor_key_file, self.anchor_public_key_file):
            if path and not path.startswith("/"):
                raise ValueError("should be an absolute path")
        if self.anchor and not self.anchor.startswith(("/", "file:///", "http://", "https://", "git+")):
            raise ValueError("should be an absolute path, https://…, or git+URL#BRANCH")


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
