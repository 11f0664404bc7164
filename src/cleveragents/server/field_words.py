"""What is wrong with a field, in words: the validation's own are for who wrote it, and show expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cleveragents.core.text.redaction import redact_text

__all__ = ["field_problem", "in_a_sentence"]

_PATTERNS: Mapping[str, str] = {
    r"\S": "should not be empty",
    r"^[a-z0-9][a-z0-9._-]*$": "should be letters, digits and ._-, in lower case; "
    "the first is a letter or a digit",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "should be letters, digits and -, in lower case; "
    "the first and the last are letters or digits",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "should be as in namespace/name: "
    "letters, digits and -, in lower case",
    r"^[A-Za-z0-9_][A-Za-z0-9._+/^~-]*$": "should name a commit, as HEAD~1 or a branch does",
    r"^[0-9A-Za-z]+$": "should be letters and digits",
    r"^[0-9A-Z]+$": "should be digits and letters, in upper case",
    r"^[0-9]+$": "should be a whole number",
    r"^[0-9a-f]{64}$": "should be 64 digits of a hexadecimal number, in lower case",
}
_KIND = re.compile(r"^[A-Z][a-z]+ (?=should )")


def field_problem(one: Mapping[str, Any]) -> str:
    """One finding of the validation. Nothing that was sent is in it, unless it is no secret."""
    if one["type"] == "missing":
        return "is missing"
    if one["type"] == "string_pattern_mismatch":
        return _PATTERNS.get(str(one["ctx"]["pattern"]), "is not written as such a thing is")
    return redact_text(_KIND.sub("", str(one["msg"])).removeprefix("Value error, "))


def in_a_sentence(where: str, said: str) -> str:
    """The place and what is wrong there. Never as `place: words`, which for a place called `token` looks like
    a token, so that the words are masked."""
    if said.startswith(("is ", "should ")):
        return f"{where} {said}"
    return f"{said[:1].lower()}{said[1:]} ({where})"
