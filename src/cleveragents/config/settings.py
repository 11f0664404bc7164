"""All settings, each with its key, type, default, and the changes that the file of a repository may make.

The key of a setting is `section.name`. Its environment variable is the key in capitals with `_` for the dot:
`CLEVERAGENTS_LOG_LEVEL` sets `log.level`. This is unambiguous because all keys are known.

A few settings have an empty default, although users cannot set an empty value. (msgspec does not validate
defaults.)

The file of a repository comes from an untrusted author, so it may only *tighten* the user's settings, that
is, make them stricter: fewer parallel jobs, less grace time, more durability. It cannot change any other
setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Literal, NamedTuple, get_args

from msgspec import Meta, Struct
from msgspec.structs import fields

from cleveragents.config.service_settings import (
    AuditSettings,
    JobSettings,
    NotificationSettings,
    ServerSettings,
    TelemetrySettings,
)
from cleveragents.core.policy import PROFILES

__all__ = [
    "ContextSettings",
    "DatabaseSettings",
    "EventSettings",
    "Key",
    "LogSettings",
    "ModelSettings",
    "PlanSettings",
    "RepositoryPolicy",
    "SandboxSettings",
    "Scalar",
    "Settings",
    "StateSettings",
    "WorkerSettings",
    "is_web_address",
    "known_keys",
    "nearest_key",
]

Scalar = str | int | float | bool


class RepositoryPolicy(str, Enum):
    """How the file of a repository may change a setting."""

    NEVER = "never"
    LOWER = "may lower it"
    RAISE = "may raise it"
    JOIN = "may tighten it"


def is_web_address(text: str) -> bool:
    """Return whether the text is an HTTP URL with a host and, if given, a valid port."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _absolute(path: str) -> None:
    if not path.startswith("/"):
        raise ValueError("should be an absolute path")


def _supported(url: str) -> None:
    if url.startswith("sqlite:"):
        if not url.startswith("sqlite:////") or len(url) == len("sqlite:////"):
            raise ValueError("should name an absolute file: sqlite:////absolute/path.db")
    elif not url.startswith(("postgresql://", "postgresql+psycopg://")):
        raise ValueError("should begin with sqlite:////, postgresql:// or postgresql+psycopg://")


def _known_profile(names: str) -> None:
    if not set(names.split("+")) <= set(PROFILES):
        raise ValueError(f"should be one of {', '.join(PROFILES)}, or several joined by +")


def _named(model: str) -> None:
    provider, _, name = model.partition("/")
    if model and not (provider and name):
        raise ValueError("should be provider/name, as in openai/gpt-4.1-mini")


def _reachable(url: str) -> None:
    if url and not is_web_address(url):
        raise ValueError("should be a URL that begins with http:// or https://")


def _variable(name: str) -> None:
    if name and not (name.isascii() and name.isidentifier()):
        # The value may be a key by mistake, so it is not repeated.
        raise ValueError("should be the name of a variable, such as OPENAI_API_KEY, not the key itself")


def _loadable(name: str) -> None:
    module, colon, attribute = name.partition(":")
    if name and not (module.strip() == module and (not colon or attribute.isidentifier())):
        raise ValueError("should be module:attribute, or the name of an entry point")


_LOWER = {"repository": RepositoryPolicy.LOWER}
_RAISE = {"repository": RepositoryPolicy.RAISE}
_JOIN = {"repository": RepositoryPolicy.JOIN}


def _seconds(description: str) -> Meta:
    return Meta(gt=0, le=86_400, description=description)


def _part(purpose: str) -> Meta:
    return Meta(description=f"component that {purpose}: module:attribute, or an entry point")


class StateSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Location of the user's state."""

    # Empty until the user is known; `min_length` forbids setting it to empty.
    directory: Annotated[
        str,
        Meta(min_length=1, description="directory of the database, the audit log's key and the error log"),
    ] = ""

    def __post_init__(self) -> None:
        if self.directory:
            _absolute(self.directory)


class DatabaseSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The database of plans, jobs and events."""

    url: Annotated[
        str,
        Meta(
            min_length=1,
            description="sqlite:////absolute/path.db or postgresql://user:password@host/name",
        ),
    ] = ""
    durability: Annotated[
        Literal["normal", "full"],
        Meta(description="normal survives kill -9, full survives a power cut", extra=_RAISE),
    ] = "normal"
    busy_timeout_seconds: Annotated[
        float, _seconds("how long a write waits for a busy database before it fails")
    ] = 60.0

    def __post_init__(self) -> None:
        if self.url:
            _supported(self.url)


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How workers run jobs."""

    concurrency: Annotated[
        int, Meta(ge=1, le=256, description="jobs that one worker runs in parallel", extra=_LOWER)
    ] = 4
    lease_seconds: Annotated[
        float, _seconds("time without a heartbeat after which another worker takes over a job")
    ] = 15.0
    heartbeat_seconds: Annotated[float, _seconds("time between heartbeats of a running job")] = 5.0
    cancel_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="how long a cancelled job may clean up before its processes are killed",
            extra=_LOWER,
        ),
    ] = 5.0
    poll_seconds: Annotated[float, _seconds("time after which an idle worker looks for jobs again")] = 0.5


class PlanSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Policies and limits of plans."""

    profile: Annotated[
        str,
        Meta(
            description="policy profile: what plans may do without approval; see docs/reference/policies.md",
            extra=_JOIN,
        ),
    ] = "supervised"
    pass_environment: Annotated[
        str, Meta(description="environment variables that commands may see, separated by commas")
    ] = ""
    max_parallel: Annotated[
        int, Meta(ge=1, le=64, description="plans of one tree that run in parallel", extra=_LOWER)
    ] = 4
    max_depth: Annotated[
        int, Meta(ge=0, le=16, description="maximum depth of nested sub-plans", extra=_LOWER)
    ] = 4
    max_fan_out: Annotated[
        int, Meta(ge=0, le=1000, description="maximum number of sub-plans of one plan", extra=_LOWER)
    ] = 32

    project_rules: Annotated[
        Literal["allow", "deny"],
        Meta(description="allow or deny approval rules for a whole project", extra=_RAISE),
    ] = "allow"

    def __post_init__(self) -> None:
        _known_profile(self.profile)


class SandboxSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Isolation and disk quota of sandboxes."""

    isolation: Annotated[
        Literal["off", "auto", "required"],
        Meta(
            description="isolate commands with bubblewrap: off, auto (if it works) or required",
            extra={**_RAISE, "aliases": {"require": "required"}},
        ),
    ] = "auto"
    allow_unisolated: Annotated[
        bool, Meta(description="let servers and workers run commands without isolation")
    ] = False
    quota_bytes: Annotated[int, Meta(ge=1_000_000, description="disk space for all sandboxes together")] = (
        50_000_000_000
    )


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Default models and limits of model calls."""

    default: Annotated[str, Meta(description="default model of plans and actors: provider/name")] = ""
    fallback: Annotated[
        str, Meta(description="model to use when the first one does not answer: provider/name")
    ] = ""
    base_url: Annotated[
        str, Meta(description="URL of an OpenAI-compatible server for models named openai/…")
    ] = ""
    key_variable: Annotated[
        str,
        Meta(description="variable or keyring entry with the key for models.base_url; empty: no key is sent"),
    ] = ""
    concurrency: Annotated[
        int,
        Meta(ge=1, le=1024, description="maximum number of concurrent calls to one provider", extra=_LOWER),
    ] = 8
    timeout_seconds: Annotated[
        float, _seconds("time limit of one call, from the request to the end of the answer")
    ] = 300.0
    retries: Annotated[
        int, Meta(ge=0, le=20, description="how often a call without an answer is retried")
    ] = 4
    usage_limit_hours: Annotated[
        float,
        Meta(
            ge=0,
            le=720,
            description="how long a plan waits for the reset of a provider's usage limit; 0: it fails",
        ),
    ] = 24.0
    prices: Annotated[
        str, Meta(description="TOML file with your own prices, which override the built-in ones")
    ] = ""

    def __post_init__(self) -> None:
        _named(self.default)
        _named(self.fallback)
        _reachable(self.base_url)
        _variable(self.key_variable)


class ContextSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How relevant code is found. Components of the pipeline are executable code, so the file of a repository
    cannot set them.
    """

    budget_tokens: Annotated[
        int, Meta(ge=64, le=10_000_000, description="default token budget of a context search")
    ] = 8000
    deadline_seconds: Annotated[
        float, _seconds("time limit of a context search, not counting the first indexing")
    ] = 10.0
    index_seconds: Annotated[float, _seconds("how long a plan waits for the first index of a repository")] = (
        120.0
    )
    starting_tokens: Annotated[
        int,
        Meta(ge=0, le=10_000_000, description="tokens of context that actors get at the start; 0: none"),
    ] = 8000
    plan_tokens: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000_000,
            description="tokens of context that the actors of one plan may request in total",
        ),
    ] = 64_000
    strategies_off: Annotated[str, Meta(description="disabled context strategies, separated by commas")] = (
        "embeddings"
    )
    tokenizer: Annotated[
        Literal["estimate", "o200k_base", "cl100k_base"],
        Meta(
            description=(
                "token counter: a conservative estimate, or tiktoken, if its file is already on this machine"
            )
        ),
    ] = "estimate"
    rerank_model: Annotated[
        str, Meta(description="model that reranks the best twenty files: provider/name")
    ] = ""
    index_megabytes: Annotated[
        int, Meta(ge=10, le=1_000_000, description="disk space for the index of one repository")
    ] = 2048
    selector: Annotated[str, _part("selects strategies")] = ""
    allocator: Annotated[str, _part("divides the token budget")] = ""
    executor: Annotated[str, _part("runs strategies")] = ""
    deduplicator: Annotated[str, _part("merges search results")] = ""
    scorer: Annotated[str, _part("ranks files")] = ""
    depths: Annotated[str, _part("decides how much detail of each definition can be shown")] = ""
    packer: Annotated[str, _part("selects fragments")] = ""
    orderer: Annotated[str, _part("orders fragments")] = ""
    preamble: Annotated[str, _part("writes the text before the fragments")] = ""
    skeleton: Annotated[str, _part("outlines the repository")] = ""

    def __post_init__(self) -> None:
        _named(self.rerank_model)
        for part in (self.selector, self.allocator, self.executor, self.deduplicator, self.scorer):
            _loadable(part)
        for part in (self.depths, self.packer, self.orderer, self.preamble, self.skeleton):
            _loadable(part)


class EventSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Delivery of events."""

    queue_bound: Annotated[
        int, Meta(ge=1, le=10_000_000, description="maximum number of events waiting to be stored")
    ] = 10_000


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The log on stderr."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="lowest level that is logged")
    ] = "warning"
    format: Annotated[
        Literal["auto", "console", "json"],
        Meta(description="console for people, json for programs; auto: json in a service without a terminal"),
    ] = "auto"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The validated, immutable settings of one run."""

    state: StateSettings = StateSettings()
    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    jobs: JobSettings = JobSettings()
    server: ServerSettings = ServerSettings()
    plan: PlanSettings = PlanSettings()
    sandbox: SandboxSettings = SandboxSettings()
    models: ModelSettings = ModelSettings()
    context: ContextSettings = ContextSettings()
    events: EventSettings = EventSettings()
    audit: AuditSettings = AuditSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    notifications: NotificationSettings = NotificationSettings()

    def __post_init__(self) -> None:
        worker = self.worker
        if worker.heartbeat_seconds > 0.4 * worker.lease_seconds:
            raise ValueError(
                f"worker.heartbeat_seconds ({worker.heartbeat_seconds:g}) should be at most 0.4 of "
                f"worker.lease_seconds ({worker.lease_seconds:g}), or one late heartbeat loses the job"
            )


class Key(NamedTuple):
    """The name, description and rules of one setting."""

    section: str
    name: str
    description: str
    repository: RepositoryPolicy
    choices: tuple[Scalar, ...]
    """The allowed values, in the order of their declaration; empty if any value of the type is allowed."""
    aliases: Mapping[str, str]
    """Earlier names of choices."""
    model: type[Struct]

    @property
    def dotted(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"CLEVERAGENTS_{self.section}_{self.name}".upper()


@cache
def known_keys() -> Mapping[str, Key]:
    """Return all settings by their dotted key, in the order of `config list`."""
    keys: dict[str, Key] = {}
    for section in fields(Settings):
        for field in fields(section.type):
            kind, meta = get_args(field.type)
            extra = meta.extra or {}
            rule = extra.get("repository", RepositoryPolicy.NEVER)
            aliases = extra.get("aliases", {})
            key = Key(section.name, field.name, meta.description, rule, get_args(kind), aliases, section.type)
            keys[key.dotted] = key
    return keys


def nearest_key(wrong: str) -> str | None:
    """Return the key closest to the misspelled key `wrong`, or None."""
    from difflib import get_close_matches

    close = get_close_matches(wrong, list(known_keys()), n=1, cutoff=0.6)
    if close:
        return close[0]
    by_name = {key.name: dotted for dotted, key in known_keys().items()}
    close = get_close_matches(wrong.rpartition(".")[2], list(by_name), n=1, cutoff=0.75)
    return by_name[close[0]] if close else None
