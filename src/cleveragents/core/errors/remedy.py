"""Remedies of errors as data, which the CLI, the page and the API each render in their own form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.core.json_value import JsonValue

__all__ = ["OptionValue", "Remedy", "remedies_from_json", "remedies_record", "remedies_to_json"]

OptionValue = str | int | float | bool | None


@dataclass(frozen=True)
class Remedy:
    """An operation that resolves an error. The CLI shows a command line, the page a button, the API a field.

    `action` is the name of the operation in the CLI and the API: `plan.resume`, `job.list`, `trust`. `plan`
    is the plan it acts on. `options` uses the field names of the API, such as `limits.usd`; the value None
    means that the person chooses it. `text` states the purpose in a few words: "List the plans".
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


def remedies_record(remedies: Sequence[Remedy]) -> dict[str, JsonValue]:
    """Return the remedies as a waiting plan stores them: `remedy` as text, `remedies` as data."""
    return {"remedy": "; ".join(one.text for one in remedies), "remedies": remedies_to_json(remedies)}


def remedies_from_json(value: object) -> tuple[Remedy, ...]:
    """Return the remedies in a JSON value; empty if another version wrote them in another format."""
    from msgspec import ValidationError, convert

    try:
        return convert(value, tuple[Remedy, ...])
    except ValidationError:
        return ()
