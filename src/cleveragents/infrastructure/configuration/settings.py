"""Every setting there is: its key, type, default, and what a repository's own file may do to it.

A setting is `section.name`; nothing is listed here that no code reads. Its environment variable is the key in
capitals with `_` for the dot (`log.level`: `CLEVERAGENTS_LOG_LEVEL`); as all keys are known, that is
unambiguous.

A repository's file comes from whoever wrote the repository, so it may only *tighten* what the user has: take
fewer jobs at once, give less grace, ask for more durability. All other settings are not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict

__all__ = [
    "DatabaseSettings",
    "EventSettings",
    "Key",
    "LogSettings",
    "ModelSettings",
    "PlanSettings",
    "Repository",
    "SandboxSettings",
    "Settings",
    "StateSettings",
    "WorkerSettings",
    "is_web_address",
    "known_keys",
    "nearest_key",
]


class Repository(str, Enum):
    """What a repository's file may do to a setting."""

    NEVER = "never"
    LOWER = "may lower it"
    RAISE = "may raise it"
    JOIN = "may tighten it"


def is_web_address(text: str) -> bool:
    """Whether it is a URL that can be asked: with a host, and a port that can be one."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


_Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
_LOWER: JsonDict = {"repository": Repository.LOWER.value}
_JOIN: JsonDict = {"repository": Repository.JOIN.value}
_RAISE: JsonDict = {"repository": Repository.RAISE.value}


class StateSettings(_Section):
    """Where this user's state lives."""

    directory: str = Field(
        default="", description="where the database, the audit log's key and the error log live"
    )

    @field_validator("directory")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not value.startswith("/"):
            raise ValueError("should be an absolute path")
        return value


class DatabaseSettings(_Section):
    """The store of jobs, changesets and events."""

    url: str = Field(
        default="", description="sqlite:////absolute/path.db or postgresql://user:password@host/name"
    )
    durability: Literal["normal", "full"] = Field(
        default="normal",
        description="normal survives kill -9, full survives a power cut",
        json_schema_extra=_RAISE,
    )
    busy_timeout_seconds: _Seconds = Field(
        default=60.0, description="how long a write waits for a busy database before it gives up"
    )

    @field_validator("url")
    @classmethod
    def _supported(cls, value: str) -> str:
        if value.startswith("sqlite:"):
            if not value.startswith("sqlite:////") or len(value) == len("sqlite:////"):
                raise ValueError("should name an absolute file: sqlite:////absolute/path.db")
        elif not value.startswith(("postgresql://", "postgresql+psycopg://")):
            raise ValueError("should begin with sqlite:////, postgresql:// or postgresql+psycopg://")
        return value


class WorkerSettings(_Section):
    """How jobs are run."""

    concurrency: int = Field(
        default=4, ge=1, le=256, description="jobs one worker runs at a time", json_schema_extra=_LOWER
    )
    lease_seconds: _Seconds = Field(default=15.0, description="silence after which a peer takes a job over")
    heartbeat_seconds: _Seconds = Field(default=5.0, description="how often an owner says that it lives")
    cancel_grace_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        default=5.0,
        description="how long a cancelled job may tidy up before its processes are ended",
        json_schema_extra=_LOWER,
    )
    poll_seconds: _Seconds = Field(default=0.5, description="how often an idle worker looks for jobs")


class PlanSettings(_Section):
    """How plans are run."""

    profile: str = Field(
        default="supervised",
        description="what plans may do by themselves; `docs/reference/policies.md`",
        json_schema_extra=_JOIN,
    )
    pass_environment: str = Field(
        default="", description="names of variables that commands may see, separated by commas"
    )

    @field_validator("profile")
    @classmethod
    def _known(cls, value: str) -> str:
        from cleveragents.domain.policy import PROFILES

        if not set(value.split("+")) <= set(PROFILES):
            raise ValueError(f"should be one of {', '.join(PROFILES)}, or several joined by +")
        return value


class SandboxSettings(_Section):
    """Where plans work before they are applied."""

    isolation: Literal["off", "auto", "require"] = Field(
        default="auto",
        description="bubblewrap around commands: never, where it works, or nothing without it",
        json_schema_extra=_RAISE,
    )
    quota_bytes: int = Field(
        default=50_000_000_000,
        ge=1_000_000,
        description="disk that all sandboxes together may use",
    )


class ModelSettings(_Section):
    """Which language models are used, and how."""

    default: str = Field(
        default="", description="the model of plans and actors that name none: provider/name"
    )
    fallback: str = Field(default="", description="the model that is asked when the first does not answer")
    base_url: str = Field(
        default="", description="where an OpenAI-compatible server answers, for models named openai/…"
    )
    concurrency: int = Field(
        default=8,
        ge=1,
        le=1024,
        description="calls under way at once with one provider",
        json_schema_extra=_LOWER,
    )
    timeout_seconds: _Seconds = Field(
        default=300.0, description="how long one answer may take, from the request to its last word"
    )
    retries: int = Field(
        default=4, ge=0, le=20, description="how often a call that found no answer is made again"
    )
    prices: str = Field(
        default="", description="a TOML file with prices of your own, which count before those shipped"
    )

    @field_validator("default", "fallback")
    @classmethod
    def _named(cls, value: str) -> str:
        provider, _, name = value.partition("/")
        if value and not (provider and name):
            raise ValueError("should be provider/name, as in openai/gpt-4.1-mini")
        return value

    @field_validator("base_url")
    @classmethod
    def _reachable(cls, value: str) -> str:
        if value and not is_web_address(value):
            raise ValueError("should be a URL that begins with http:// or https://")
        return value


class EventSettings(_Section):
    """Delivery of events."""

    queue_bound: int = Field(
        default=10_000, ge=1, le=10_000_000, description="events that may wait to be kept"
    )


class LogSettings(_Section):
    """What is said on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description="how much is logged"
    )
    format: Literal["auto", "console", "json"] = Field(
        default="auto",
        description="console for people, json for programs, auto asks whether stderr is a terminal",
    )


class Settings(_Section):
    """All settings of one run, valid and immutable."""

    state: StateSettings = StateSettings()
    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    plan: PlanSettings = PlanSettings()
    sandbox: SandboxSettings = SandboxSettings()
    models: ModelSettings = ModelSettings()
    events: EventSettings = EventSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _heartbeats_fit_the_lease(self) -> Settings:
        worker = self.worker
        if worker.heartbeat_seconds > 0.4 * worker.lease_seconds:
            raise ValueError(
                f"worker.heartbeat_seconds ({worker.heartbeat_seconds:g}) should be at most 0.4 of "
                f"worker.lease_seconds ({worker.lease_seconds:g}), or one late beat loses the job"
            )
        return self


class Key(BaseModel):
    """One setting, seen from outside."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    section: str
    name: str
    description: str
    repository: Repository
    model: type[BaseModel]

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
    for section, outer in Settings.model_fields.items():
        model = type(outer.default)
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            rule = extra.get("repository") if isinstance(extra, dict) else None
            key = Key(
                section=section,
                name=name,
                description=field.description or "",
                repository=Repository(rule) if rule else Repository.NEVER,
                model=model,
            )
            keys[key.dotted] = key
    return keys


def nearest_key(wrong: str) -> str | None:
    """The setting that somebody who wrote `wrong` probably meant."""
    close = get_close_matches(wrong, list(known_keys()), n=1, cutoff=0.6)
    if close:
        return close[0]
    by_name = {key.name: dotted for dotted, key in known_keys().items()}
    close = get_close_matches(wrong.rpartition(".")[2], list(by_name), n=1, cutoff=0.75)
    return by_name[close[0]] if close else None
