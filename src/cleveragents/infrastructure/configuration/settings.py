"""Every setting there is: its key, type, default, and what a repository's own file may do to it.

A setting is `section.name`; nothing is listed here that no code reads. Its environment variable is the key in
capitals with `_` for the dot (`log.level`: `CLEVERAGENTS_LOG_LEVEL`); as all keys are known, that is
unambiguous.

A repository's file comes from whoever wrote the repository, so it may only *tighten* what the user has: take
fewer jobs at once, give less grace, ask for more durability. All other settings are not its business.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Literal, NamedTuple

from cleveragents.infrastructure.configuration.section import Section, setting

__all__ = [
    "ContextSettings",
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
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_NEVER_LONGER_THAN = 86_400
_LOWER = Repository.LOWER.value
_JOIN = Repository.JOIN.value
_RAISE = Repository.RAISE.value


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
    from cleveragents.domain.policy import PROFILES

    if not set(names.split("+")) <= set(PROFILES):
        raise ValueError(f"should be one of {', '.join(PROFILES)}, or several joined by +")


def _named(model: str) -> None:
    provider, _, name = model.partition("/")
    if model and not (provider and name):
        raise ValueError("should be provider/name, as in openai/gpt-4.1-mini")


def _reachable(url: str) -> None:
    if url and not is_web_address(url):
        raise ValueError("should be a URL that begins with http:// or https://")


def _seconds(default: float, description: str) -> float:
    seconds: float = setting(default, description, gt=0, le=_NEVER_LONGER_THAN)
    return seconds


class StateSettings(Section):
    """Where this user's state lives."""

    directory: str = setting(
        "", description="where the database, the audit log's key and the error log live", check=_absolute
    )


class DatabaseSettings(Section):
    """The store of jobs, changesets and events."""

    url: str = setting(
        "",
        description="sqlite:////absolute/path.db or postgresql://user:password@host/name",
        check=_supported,
    )
    durability: Literal["normal", "full"] = setting(
        "normal",
        description="normal survives kill -9, full survives a power cut",
        repository=_RAISE,
    )
    busy_timeout_seconds: float = _seconds(
        60.0, "how long a write waits for a busy database before it gives up"
    )


class WorkerSettings(Section):
    """How jobs are run."""

    concurrency: int = setting(
        4, ge=1, le=256, description="jobs one worker runs at a time", repository=_LOWER
    )
    lease_seconds: float = _seconds(15.0, "silence after which a peer takes a job over")
    heartbeat_seconds: float = _seconds(5.0, "how often an owner says that it lives")
    cancel_grace_seconds: float = setting(
        5.0,
        ge=0,
        le=3600,
        description="how long a cancelled job may tidy up before its processes are ended",
        repository=_LOWER,
    )
    poll_seconds: float = _seconds(0.5, "how often an idle worker looks for jobs")


class PlanSettings(Section):
    """How plans are run."""

    profile: str = setting(
        "supervised",
        description="what plans may do by themselves; `docs/reference/policies.md`",
        repository=_JOIN,
        check=_known_profile,
    )
    pass_environment: str = setting(
        "", description="names of variables that commands may see, separated by commas"
    )


class SandboxSettings(Section):
    """Where plans work before they are applied."""

    isolation: Literal["off", "auto", "require"] = setting(
        "auto",
        description="bubblewrap around commands: never, where it works, or nothing without it",
        repository=_RAISE,
    )
    quota_bytes: int = setting(
        50_000_000_000,
        ge=1_000_000,
        description="disk that all sandboxes together may use",
    )


class ModelSettings(Section):
    """Which language models are used, and how."""

    default: str = setting(
        "", description="the model of plans and actors that name none: provider/name", check=_named
    )
    fallback: str = setting(
        "", description="the model that is asked when the first does not answer", check=_named
    )
    base_url: str = setting(
        "",
        description="where an OpenAI-compatible server answers, for models named openai/…",
        check=_reachable,
    )
    concurrency: int = setting(
        8,
        ge=1,
        le=1024,
        description="calls under way at once with one provider",
        repository=_LOWER,
    )
    timeout_seconds: float = _seconds(
        300.0, "how long one answer may take, from the request to its last word"
    )
    retries: int = setting(4, ge=0, le=20, description="how often a call that found no answer is made again")
    prices: str = setting(
        "", description="a TOML file with prices of your own, which count before those shipped"
    )


def _loadable(name: str) -> None:
    module, colon, attribute = name.partition(":")
    if name and not (module.strip() == module and (not colon or attribute.isidentifier())):
        raise ValueError("should be module:attribute, or the name of an installed part")


def _part(what: str) -> str:
    name: str = setting("", f"who {what}: module:attribute, or an installed part", check=_loadable)
    return name


class ContextSettings(Section):
    """How code that matters is found, and by whom. Parts are code that is run: no repository names one."""

    budget_tokens: int = setting(8000, "tokens of an answer, if nobody says how many", ge=64, le=10_000_000)
    deadline_seconds: float = _seconds(10.0, "how long an answer may take, not counting the first indexing")
    index_seconds: float = _seconds(120.0, "how long a plan waits for a repository to be indexed at first")
    plan_tokens: int = setting(
        64_000, "tokens of context that a plan's actors may ask for in all", ge=0, le=100_000_000
    )
    strategies_off: str = setting("", "strategies that are not asked, separated by commas")
    tokenizer: Literal["estimate", "o200k_base", "cl100k_base"] = setting(
        "estimate", "how tokens are counted: a careful estimate, or tiktoken, where its file is there already"
    )
    rerank_model: str = setting(
        "", "the model that ranks the best twenty files once more: provider/name", check=_named
    )
    index_megabytes: int = setting(2048, "disk that the index of one repository may use", ge=10, le=1_000_000)
    selector: str = _part("chooses strategies")
    allocator: str = _part("divides the tokens")
    executor: str = _part("runs strategies")
    deduplicator: str = _part("merges what was found")
    scorer: str = _part("ranks files")
    depths: str = _part("says how places can be shown")
    packer: str = _part("chooses what is shown")
    orderer: str = _part("orders what is shown")
    preamble: str = _part("writes what precedes the fragments")
    skeleton: str = _part("draws the repository's shape")


class EventSettings(Section):
    """Delivery of events."""

    queue_bound: int = setting(10_000, ge=1, le=10_000_000, description="events that may wait to be kept")


class LogSettings(Section):
    """What is said on stderr."""

    level: Literal["debug", "info", "warning", "error"] = setting("warning", description="how much is logged")
    format: Literal["auto", "console", "json"] = setting(
        "auto",
        description="console for people, json for programs, auto asks whether stderr is a terminal",
    )


class Settings(Section):
    """All settings of one run, valid and immutable."""

    state: StateSettings = StateSettings()
    database: DatabaseSettings = DatabaseSettings()
    worker: WorkerSettings = WorkerSettings()
    plan: PlanSettings = PlanSettings()
    sandbox: SandboxSettings = SandboxSettings()
    models: ModelSettings = ModelSettings()
    context: ContextSettings = ContextSettings()
    events: EventSettings = EventSettings()
    log: LogSettings = LogSettings()

    def check_together(self) -> None:
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
    repository: Repository
    model: type[Section]

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
            rule = Repository(field.repository) if field.repository else Repository.NEVER
            key = Key(section, name, field.description, rule, model)
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
