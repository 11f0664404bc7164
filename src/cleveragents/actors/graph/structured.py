"""Answers of a given shape: taken out of what a model wrote, and judged by the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cleveragents.core.json_value import JsonValue, thaw, unkeepable

__all__ = ["StructuredAnswer", "structured"]

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_MOST_PROBLEMS = 5


@dataclass(frozen=True, slots=True)
class StructuredAnswer:
    """The object, or what is wrong with it in words for the model."""

    value: dict[str, Any] | None
    problem: str = ""


def structured(text: str, schema: Mapping[str, JsonValue], *, cut_off: bool = False) -> StructuredAnswer:
    """The JSON object in the text, if it has the shape. Small models wrap it in words or in a fence."""
    value, problem = _object_in(text)
    if value is None:
        ending = "; it was cut off, so make it shorter" if cut_off else ""
        return StructuredAnswer(None, f"it is not a JSON object: {problem}{ending}")
    found = unkeepable(value)
    if found is not None:  # guard: no checkpoint could keep it, or nobody read it again
        return StructuredAnswer(None, f"it cannot be used: {found}")
    wrong = _violations(value, schema)
    return StructuredAnswer(None, "; ".join(wrong)) if wrong else StructuredAnswer(value)


def _object_in(text: str) -> tuple[dict[str, Any] | None, str]:
    problem = "there is none"
    for number, candidate in enumerate(_candidates(text)):
        try:
            value = json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            problem = str(error) if not number else problem
            continue
        if isinstance(value, dict):
            return value, ""
        problem = f"it is of type {type(value).__name__}"
    return None, problem


def _candidates(text: str) -> list[str]:
    begin, end = text.find("{"), text.rfind("}")
    widest = [text[begin : end + 1]] if 0 <= begin < end else []
    return [text.strip(), *_FENCED.findall(text), *widest]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _violations(value: dict[str, Any], schema: Mapping[str, JsonValue]) -> list[str]:
    from jsonschema import Draft202012Validator

    found = Draft202012Validator(thaw(schema)).iter_errors(value)
    errors = sorted(found, key=lambda error: [str(part) for part in error.path])
    return [f"{_place(error.path)}: {error.message[:300]}" for error in errors[:_MOST_PROBLEMS]]


def _place(path: Any) -> str:
    return ".".join(str(part) for part in path) or "the object"
