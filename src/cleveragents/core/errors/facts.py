"""Errors as JSON: a code and fields, so that a client raises the same error as the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import get_type_hints

from cleveragents.core import errors
from cleveragents.core.errors.families import CleverAgentsError, Fault, error_fields
from cleveragents.core.errors.remedy import Remedy

__all__ = ["error_from_facts", "facts_of"]

_REMEDIES = "remedies"


def facts_of(error: CleverAgentsError) -> dict[str, object] | None:
    """Return the fields of an error without its remedies; None for a fault, whose details stay in the log."""
    if isinstance(error, Fault):
        return None
    return {field.name: getattr(error, field.name) for field in fields(error) if field.name != _REMEDIES}


def error_from_facts(
    code: str, facts: Mapping[str, object], remedies: Sequence[Remedy] = ()
) -> CleverAgentsError | None:
    """Return the error with this code, fields and remedies, or None if this version does not know it."""
    kind = getattr(errors, "".join(word.capitalize() for word in code.split("-")), None)
    if not (isinstance(kind, type) and issubclass(kind, CleverAgentsError)):
        return None
    from msgspec import ValidationError, convert

    hints = get_type_hints(kind)
    names = [field.name for field in error_fields(kind)]
    given = {_REMEDIES: tuple(remedies)} if _REMEDIES in names else {}
    values = {name: facts[name] for name in names if name in facts and name != _REMEDIES}
    try:
        return kind(**{name: convert(value, hints[name]) for name, value in values.items()}, **given)
    except (TypeError, ValidationError):  # another version has other fields
        return None
