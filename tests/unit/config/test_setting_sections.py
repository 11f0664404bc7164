"""A setting accepts values of its type and range, explains why it refuses others, and never changes."""

from __future__ import annotations

import math

import msgspec
import pytest

from cleveragents.config.settings import Key, ModelSettings, Settings, known_keys
from cleveragents.config.values import parse_value
from cleveragents.context.pipeline.checks import PARTS
from cleveragents.core.errors import ConfigurationError

KEYS = known_keys()
DEFAULTS = Settings()
UNTIL_IT_IS_KNOWN_WHO_ASKS = {"state.directory", "database.url"}
"""Settings with an empty default."""


def default(key: Key) -> object:
    return getattr(getattr(DEFAULTS, key.section), key.name)


def refusal(name: str, value: object, *, strict: bool = False) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse_value(KEYS[name], value, "here", strict=strict)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("models.prices", " as it is ", " as it is "),
        ("worker.concurrency", "1", 1),
        ("worker.concurrency", "9.0", 9),
        ("worker.concurrency", 4, 4),
        ("worker.lease_seconds", "1e3", 1000.0),
        ("worker.lease_seconds", 2, 2.0),
        ("log.level", "info", "info"),
        ("plan.profile", "manual+ci", "manual+ci"),
    ],
)
def test_text_becomes_a_value_of_the_settings_type(name: str, text: object, value: object) -> None:
    parsed = parse_value(KEYS[name], text, "here")
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("models.prices", 3, "should be text"),
        ("worker.concurrency", "3.5", "should be a whole number"),
        ("worker.concurrency", 3.5, "should be a whole number"),
        ("worker.concurrency", True, "should be a whole number"),
        ("worker.concurrency", 0, "should be a whole number >= 1"),
        ("worker.concurrency", 257, "should be a whole number <= 256"),
        ("worker.lease_seconds", "half", "should be a number"),
        ("worker.lease_seconds", None, "should be a number"),
        ("worker.lease_seconds", 0, "should be a number > 0.0"),
        ("worker.lease_seconds", "1e400", "is out of range"),
        ("log.format", "pink", "should be 'auto', 'console' or 'json'"),
        ("log.format", [], "should be 'auto', 'console' or 'json'"),
        ("state.directory", "", "should be text of length >= 1"),
        ("state.directory", "here", "should be an absolute path"),
        ("plan.profile", "manual+bold", "should be one of manual"),
        ("context.rerank_model", "gpt", "should be provider/name, as in openai/gpt-4.1-mini"),
    ],
)
def test_refuses_a_wrong_value_with_the_allowed_ones(name: str, value: object, problem: str) -> None:
    said = refusal(name, value)
    assert said.startswith(f"here: {name} is {value!r}, but {problem}")
    assert "`" not in said


@pytest.mark.parametrize(("name", "text"), [("worker.concurrency", "3"), ("worker.lease_seconds", "0.5")])
def test_toml_text_is_not_a_number(name: str, text: str) -> None:
    assert "number" in refusal(name, text, strict=True)


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if isinstance(default(key), float)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_every_number_is_finite(name: str, value: float) -> None:
    assert "should be a number" in refusal(name, value, strict=True)


@pytest.mark.parametrize("name", sorted(set(KEYS) - UNTIL_IT_IS_KNOWN_WHO_ASKS))
def test_every_default_is_a_valid_value(name: str) -> None:
    key = KEYS[name]
    assert parse_value(key, default(key), "here", strict=True) == default(key)
    assert key.description


@pytest.mark.parametrize("name", PARTS)
def test_component_settings_take_import_paths(name: str) -> None:
    assert parse_value(KEYS[f"context.{name}"], "module:part", "here") == "module:part"
    assert "should be module:attribute" in refusal(f"context.{name}", "module:")


@pytest.mark.parametrize("section", ["", *msgspec.structs.asdict(DEFAULTS)])
def test_refuses_unknown_settings_in_every_section(section: str) -> None:
    wrong = {"nonsense": 1}
    with pytest.raises(msgspec.ValidationError, match="nonsense"):
        msgspec.convert({section: wrong} if section else wrong, Settings)


def test_refuses_contradicting_settings_from_any_source() -> None:
    late = msgspec.structs.replace(DEFAULTS.worker, heartbeat_seconds=10.0)
    with pytest.raises(ValueError, match=r"worker.heartbeat_seconds \(10\) should be at most 0.4 of"):
        msgspec.structs.replace(DEFAULTS, worker=late)


def test_settings_survive_json() -> None:
    values = {
        "state": {"directory": "/tmp/ä"},
        "database": {"url": "sqlite:////tmp/ä.db"},
        "worker": {"lease_seconds": 20.25},
    }
    made = msgspec.convert(values, Settings)
    again = msgspec.json.decode(msgspec.json.encode(made), type=Settings)
    assert again == made != DEFAULTS
    assert (again.state.directory, again.worker.lease_seconds) == ("/tmp/ä", 20.25)


def test_settings_do_not_change() -> None:
    models = ModelSettings()
    with pytest.raises(AttributeError):
        models.retries = 5
    copy = msgspec.structs.replace(models, retries=5)
    assert (models.retries, copy.retries) == (4, 5)
