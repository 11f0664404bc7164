"""Every setting there is: its key, type, default, and what a repository's own file may do to it.

A setting is `section.name`; nothing is listed here that no code reads. Its environment variable is the key in
capitals with `_` for the dot (`log.level`: `CLEVERAGENTS_LOG_LEVEL`); as all keys are known, that is
unambiguous.

Defaults are not checked by msgspec, which is why a few can be what nobody may say: empty.

A repository's file comes from whoever wrote the repository, so it may only *tighten* what the user has: take
fewer jobs at once, give less grace, ask for more durability. All other settings are not its business.
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
    """What a repository's file may do to a setting."""

    NEVER = "never"
    LOWER = "may lower it"
    RAISE = "may raise it"
    JOIN = "may tighten it"


def is_web_address(text: str) -> bool:
    """Whether it is a URL that can be asked: with a host, and a port that can be one."""
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


def _loadable(name: str) -> None:
    module, colon, attribute = name.partition(":")
    if name and not (module.strip() == module and (not colon or attribute.isidentifier())):
        raise ValueError("should be module:attribute, or the name of an installed part")


_LOWER = {"repository": RepositoryPolicy.LOWER}
_RAISE = {"repository": RepositoryPolicy.RAISE}
_JOIN = {"repository": RepositoryPolicy.JOIN}


def _seconds(description: str) -> Meta:
    return Meta(gt=0, le=86_400, description=description)


def _part(what: str) -> Meta:
    return Meta(description=f"who {what}: module:attribute, or an installed part")


class StateSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where this user's state lives."""

    # Empty until it is known who asks: `min_length` keeps people from saying so.
    directory: Annotated[
        str, Meta(min_length=1, description="where the database, the audit log's key and the error log live")
    ] = ""

    def __post_init__(self) -> None:
        if self.directory:
            _absolute(self.directory)


class DatabaseSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The store of jobs, changesets and events."""

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
        float, _seconds("how long a write waits for a busy database before it gives up")
    ] = 60.0

    def __post_init__(self) -> None:
        if self.url:
            _supported(self.url)


class WorkerSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How jobs are run."""

    concurrency: Annotated[
        int, Meta(ge=1, le=256, description="jobs one worker runs at a time", extra=_LOWER)
    ] = 4
    lease_seconds: Annotated[float, _seconds("silence after which a peer takes a job over")] = 15.0
    heartbeat_seconds: Annotated[float, _seconds("how often an owner says that it lives")] = 5.0
    cancel_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="how long a cancelled job may tidy up before its processes are ended",
            extra=_LOWER,
        ),
    ] = 5.0
    poll_seconds: Annotated[float, _seconds("how often an idle worker looks for jobs")] = 0.5


class PlanSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How plans are run."""

    profile: Annotated[
        str,
        Meta(description="what plans may do by themselves; `docs/reference/policies.md`", extra=_JOIN),
    ] = "supervised"
    pass_environment: Annotated[
        str, Meta(description="names of variables that commands may see, separated by commas")
    ] = ""
    max_parallel: Annotated[
        int, Meta(ge=1, le=64, description="plans of one tree that run at once", extra=_LOWER)
    ] = 4
    max_depth: Annotated[
        int, Meta(ge=0, le=16, description="how deep sub-plans may have sub-plans", extra=_LOWER)
    ] = 4
    max_fan_out: Annotated[
        int, Meta(ge=0, le=1000, description="sub-plans that one plan may have", extra=_LOWER)
    ] = 32

    def __post_init__(self) -> None:
        _known_profile(self.profile)


class SandboxSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where plans work before they are applied."""

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
    quota_bytes: Annotated[
        int, Meta(ge=1_000_000, description="disk that all sandboxes together may use")
    ] = 50_000_000_000


class ModelSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which language models are used, and how."""

    default: Annotated[
        str, Meta(description="the model of plans and actors that name none: provider/name")
    ] = ""
    fallback: Annotated[str, Meta(description="the model that is asked when the first does not answer")] = ""
    base_url: Annotated[
        str, Meta(description="where an OpenAI-compatible server answers, for models named openai/…")
    ] = ""
    concurrency: Annotated[
        int, Meta(ge=1, le=1024, description="calls under way at once with one provider", extra=_LOWER)
    ] = 8
    timeout_seconds: Annotated[
        float, _seconds("how long one answer may take, from the request to its last word")
    ] = 300.0
    retries: Annotated[
        int, Meta(ge=0, le=20, description="how often a call that found no answer is made again")
    ] = 4
    prices: Annotated[
        str, Meta(description="a TOML file with prices of your own, which count before those shipped")
    ] = ""

    def __post_init__(self) -> None:
        _named(self.default)
        _named(self.fallback)
        _reachable(self.base_url)


class ContextSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How code that matters is found, and by whom. Parts are code that is run: no repository names one."""

    budget_tokens: Annotated[
        int, Meta(ge=64, le=10_000_000, description="tokens of an answer, if nobody says how many")
    ] = 8000
    deadline_seconds: Annotated[
        float, _seconds("how long an answer may take, not counting the first indexing")
    ] = 10.0
    index_seconds: Annotated[
        float, _seconds("how long a plan waits for a repository to be indexed at first")
    ] = 120.0
    starting_tokens: Annotated[
        int,
        Meta(
            ge=0, le=10_000_000, description="tokens of context that actors are shown at the start; 0: none"
        ),
    ] = 8000
    plan_tokens: Annotated[
        int,
        Meta(ge=0, le=100_000_000, description="tokens of context that a plan's actors may ask for in all"),
    ] = 64_000
    strategies_off: Annotated[str, Meta(description="strategies that are not asked, separated by commas")] = (
        "embeddings"
    )
    tokenizer: Annotated[
        Literal["estimate", "o200k_base", "cl100k_base"],
        Meta(
            description=(
                "how tokens are counted: a careful estimate, or tiktoken, where its file is there already"
            )
        ),
    ] = "estimate"
    rerank_model: Annotated[
        str, Meta(description="the model that ranks the best twenty files once more: provider/name")
    ] = ""
    index_megabytes: Annotated[
        int, Meta(ge=10, le=1_000_000, description="disk that the index of one repository may use")
    ] = 2048
    selector: Annotated[str, _part("chooses strategies")] = ""
    allocator: Annotated[str, _part("divides the tokens")] = ""
    executor: Annotated[str, _part("runs strategies")] = ""
    deduplicator: Annotated[str, _part("merges what was found")] = ""
    scorer: Annotated[str, _part("ranks files")] = ""
    depths: Annotated[str, _part("says how places can be shown")] = ""
    packer: Annotated[str, _part("chooses what is shown")] = ""
    orderer: Annotated[str, _part("orders what is shown")] = ""
    preamble: Annotated[str, _part("writes what precedes the fragments")] = ""
    skeleton: Annotated[str, _part("draws the repository's shape")] = ""

    def __post_init__(self) -> None:
        _named(self.rerank_model)
        for part in (self.selector, self.allocator, self.executor, self.deduplicator, self.scorer):
            _loadable(part)
        for part in (self.depths, self.packer, self.orderer, self.preamble, self.skeleton):
            _loadable(part)


class EventSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Delivery of events."""

    queue_bound: Annotated[int, Meta(ge=1, le=10_000_000, description="events that may wait to be kept")] = (
        10_000
    )


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is said on stderr."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="how much is logged")] = (
        "warning"
    )
    format: Annotated[
        Literal["auto", "console", "json"],
        Meta(description="console for people, json for programs, auto asks whether stderr is a terminal"),
    ] = "auto"


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of one run, valid and immutable."""

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

    def __post_init__(self) -> None:
        worker = self.worker
        if worker.heartbeat_seconds > 0.4 * worker.lease_seconds:
            raise ValueError(
                f"worker.heartbeat_seconds ({worker.heartbeat_seconds:g}) should be at most 0.4 of "
                f"worker.lease_seconds ({worker.lease_seconds:g}), or one late beat loses the job"
            )


class Key(NamedTuple):
    """One setting, seen from outside."""

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
    """Every setting by its dotted key, in the order of `config list`."""
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
    """The setting that somebody who wrote `wrong` probably meant."""
    from difflib import get_close_matches

    close = get_close_matches(wrong, list(known_keys()), n=1, cutoff=0.6)
    if close:
        return close[0]
    by_name = {key.name: dotted for dotted, key in known_keys().items()}
    close = get_close_matches(wrong.rpartition(".")[2], list(by_name), n=1, cutoff=0.75)
    return by_name[close[0]] if close else None
