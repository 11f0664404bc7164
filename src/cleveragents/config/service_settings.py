"""Settings of the server, shared jobs, the audit log, telemetry and notifications."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

__all__ = ["AuditSettings", "JobSettings", "NotificationSettings", "ServerSettings", "TelemetrySettings"]


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Address and limits of the server, and its URL for clients."""

    host: Annotated[str, Meta(min_length=1, description="address that the server listens on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="port of the server; 0: any free port")] = 8420
    names: Annotated[
        str, Meta(description="host names that browsers may use for the server, separated by commas")
    ] = ""
    address: Annotated[str, Meta(description="URL of the server that commands use")] = ""
    requests_per_minute: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="maximum requests per minute of a user, or of an address if a request has no user",
        ),
    ] = 1200
    body_bytes: Annotated[
        int, Meta(ge=1024, le=1_000_000_000, description="maximum size of a request body")
    ] = 1_000_000
    header_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="time limit for the headers of a request")
    ] = 10.0
    body_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="time limit for the body of a request, plus 1 s for each KiB"),
    ] = 20.0
    stalled_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="time after which a client that reads nothing is disconnected"),
    ] = 60.0
    connections: Annotated[
        int,
        Meta(
            ge=8,
            le=1_000_000,
            description="maximum number of connections, at most half of the open-files limit",
        ),
    ] = 2500
    connections_per_address: Annotated[
        int, Meta(ge=4, le=1_000_000, description="maximum number of connections from one address")
    ] = 600
    session_hours: Annotated[int, Meta(ge=1, le=8760, description="how long a browser stays logged in")] = 168

    def __post_init__(self) -> None:
        _ensure_url(self.address)


class JobSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Engine and limits of shared job queues."""

    engine: Annotated[
        Literal["embedded", "temporal"], Meta(description="job engine: embedded (the database) or temporal")
    ] = "embedded"
    queue_bound: Annotated[int, Meta(ge=1, le=10_000_000, description="maximum number of queued jobs")] = (
        10_000
    )
    provider_limit: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="maximum number of jobs, on all workers, that use models of one provider",
        ),
    ] = 64
    temporal_address: Annotated[
        str, Meta(min_length=1, description="address of the Temporal frontend: host:port")
    ] = "127.0.0.1:7233"
    temporal_namespace: Annotated[
        str, Meta(min_length=1, description="Temporal namespace of the workflows")
    ] = "default"


class AuditSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Keys and external anchors of the audit log."""

    key_file: Annotated[
        str, Meta(description="file with the key that signs the log's head; empty: audit.key beside the log")
    ] = ""
    anchor: Annotated[
        str,
        Meta(description="target of the log's anchors: a path, https://…, or git+URL#BRANCH"),
    ] = ""
    anchor_minutes: Annotated[
        int, Meta(ge=0, le=10_080, description="minutes between anchors by the server and workers; 0: never")
    ] = 0
    anchor_key_file: Annotated[
        str, Meta(description="Ed25519 private key that signs anchors; empty: anchor.key beside the log")
    ] = ""
    anchor_public_key_file: Annotated[
        str, Meta(description="public keys that verify anchors; empty: the public key of the private key")
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
    """Export of traces; off by default."""

    endpoint: Annotated[
        str, Meta(description="OTLP/HTTP URL of an OpenTelemetry collector for traces; empty: off")
    ] = ""
    service_name: Annotated[str, Meta(min_length=1, max_length=200, description="service name in traces")] = (
        "cleveragents"
    )

    def __post_init__(self) -> None:
        _ensure_url(self.endpoint)


class NotificationSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Notifications of plans that need a person or ended; off by default."""

    webhook: Annotated[
        str, Meta(description="URL that the server posts to when a plan needs you or ends; empty: off")
    ] = ""

    def __post_init__(self) -> None:
        _ensure_url(self.webhook)


def _ensure_url(text: str) -> None:
    parts = urlsplit(text)
    if text and not (parts.scheme in ("http", "https") and parts.hostname):
        raise ValueError("should be a URL that begins with http:// or https://")
    try:
        (parts.hostname or "").encode("idna")
    except UnicodeError:
        raise ValueError("should be a URL with a valid host, as in https://agents.example") from None
