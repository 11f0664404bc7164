"""Errors as JSON: a code and the fields of its class, so that a client raises what the server raised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import get_type_hints

from cleveragents.core import errors
from cleveragents.core.errors.families import CleverAgentsError, Fault

__all__ = ["error_from_facts", "facts_of"]


def facts_of(error: CleverAgentsError) -> dict[str, object] | None:
    """Return the fields of an error; None for a fault, whose details stay in the log."""
    if isinstance(error, Fault):
        return None
    return {field.name: getattr(error, field.name) for field in fields(error)}


def error_from_facts(code: str, facts: Mapping[str, object]) -> CleverAgentsError | None:
    """Return the error with this code and these fields; None if this version has no such error."""
    kind = getattr(errors, "".join(word.capitalize() for word in code.split("-")), None)
    if not (isinstance(kind, type) and issubclass(kind, CleverAgentsError)):
        return None
    from msgspec import ValidationError, convert

    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    try:
        return kind(**{name: convert(facts[name], hints[name]) for name in names if name in facts})
    except (TypeError, ValidationError):  # another version has other fields
        return None
