"""Validation errors as text that names the field and quotes none of its values, which may be secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from cleveragents.core.text.redaction import redact_text

__all__ = ["field_problem", "fields_text"]

_PATTERNS: Mapping[str, str] = {
    r"\S": "should not be empty",
    r"^[a-z0-9][a-z0-9._-]*$": "should be lower-case letters, digits and ._-, "
    "starting with a letter or digit",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "should be lower-case letters, digits and -, "
    "starting and ending with a letter or digit",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "should be namespace/name "
    "in lower-case letters, digits and -",
    r"^[A-Za-z0-9_][A-Za-z0-9._+/^~-]*$": "should be a commit, such as HEAD~1 or a branch",
    r"^[0-9A-Za-z]+$": "should be letters and digits",
    r"^[0-9A-Z]+$": "should be digits and upper-case letters",
    r"^[0-9]+$": "should be a whole number",
    r"^[0-9a-f]+$": "should be lower-case hexadecimal digits",
    r"^[0-9a-f]{64}$": "should be 64 lower-case hexadecimal digits",
}
_KIND = re.compile(r"^[A-Z][a-z]+ (?=should )")


def fields_text(found: Iterable[Mapping[str, Any]]) -> str:
    """Return validation errors of pydantic as text that names each field."""
    return "; ".join(
        _in_a_sentence(".".join(redact_text(str(step)) for step in one["loc"]), field_problem(one))
        for one in found
    )


def field_problem(one: Mapping[str, Any]) -> str:
    """Return the problem of one validation error of pydantic, without the field."""
    if one["type"] == "missing":
        return "is missing"
    if one["type"] == "string_pattern_mismatch":
        return _PATTERNS.get(str(one["ctx"]["pattern"]), "has the wrong format")
    return redact_text(_KIND.sub("", str(one["msg"])).removeprefix("Value error, "))


def _in_a_sentence(where: str, said: str) -> str:
    """Return the field and its problem as text, never in the form `field: text`: if the field were named
    `token`, the text would be masked.
    """
    if said.startswith(("is ", "should ")):
        return f"{where} {said}"
    return f"{said[:1].lower()}{said[1:]} ({where})"
