"""What a person can do about an error, as data: each surface renders it in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue

__all__ = ["OptionValue", "Remedy", "offered", "remedies_from_json", "remedies_to_json"]

OptionValue = str | int | float | bool | None


@dataclass(frozen=True)
class Remedy:
    """An operation that helps. The CLI shows a command line, the page a button, the API a field.

    `action` is the operation as the CLI and the API name it: `plan.resume`, `job.list`, `trust`. `plan` is
    the plan it acts on. `options` are named as the API's fields are, `limits.usd`; None is a value that the
    person chooses. `text` says what it is for, in a few words: "List the plans".
    """

    action: str
    plan: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    text: str = ""


def remedies_to_json(remedies: Sequence[Remedy]) -> list[JsonValue]:
    """Return the remedies as JSON objects."""
    return [
        {"action": one.action, "plan": one.plan, "options": dict(one.options), "text": one.text}
        for one in remedies
    ]


def offered(remedies: Sequence[Remedy]) -> dict[str, JsonValue]:
    """Return what a waiting plan keeps of them: `remedy` in words, `remedies` as data."""
    return {"remedy": "; ".join(one.text for one in remedies), "remedies": remedies_to_json(remedies)}


def remedies_from_json(value: object) -> tuple[Remedy, ...]:
    """Return the remedies of a JSON value; none if another version wrote them differently."""
    from msgspec import ValidationError, convert

    try:
        return convert(value, tuple[Remedy, ...])
    except ValidationError:
        return ()
