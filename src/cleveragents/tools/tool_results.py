"""Format the result of a tool for a model: short facts first, then the long text, unescaped and truncated.

JSON would escape every line break of a file, which costs tokens and makes small models copy the escapes into
their edits. So the long text of a result is shown unescaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from cleveragents.core.json_value import JsonValue, thaw

__all__ = ["MOST_CHARACTERS", "cut", "first_failure", "passed_tests", "result_text"]

MOST_CHARACTERS = 32_000
"""The limit for one answer: about 8,000 tokens, a small part of even a small model's context."""

_LONG_TEXTS = ("content", "output", "diff", "text")
_HEAD_SHARE = 0.6
# pytest: `____ test_name ____`; unittest: a line of `=`, then `FAIL: test_name (…)`.
_PYTEST = re.compile(r"^_{3,} \S.* _{3,}$", re.MULTILINE)
_PYTEST_END = re.compile(
    r"^=+ (?:short test summary info|warnings summary|\d+ (?:failed|error)).*$", re.MULTILINE
)
_UNITTEST = re.compile(r"^={70}\n(?:FAIL|ERROR): .*$", re.MULTILINE)
_UNITTEST_END = re.compile(r"^-{70}\nRan \d+ tests? in .*$", re.MULTILINE)
_PYTEST_COUNTS = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s\b.*$", re.MULTILINE)
_PYTEST_PASSED = re.compile(r"\b(\d+) passed\b")
_UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_UNITTEST_FAILED = re.compile(r"^FAILED \((.*)\)$", re.MULTILINE)
_BY_TIMEOUT = re.compile(r"\Aexit code 124$", re.MULTILINE)
_STOPPED = re.compile(r"(?:exit code (?:124|137)\b|took longer than )")


def result_text(result: JsonValue) -> str:
    """Return the result of a call as text."""
    if isinstance(result, str):
        return cut(result)
    if not isinstance(result, Mapping):
        return cut(_json(result))
    long = next((name for name in _LONG_TEXTS if isinstance(result.get(name), str)), None)
    facts = [f"{name}: {_json(value)}" for name, value in result.items() if name != long and _says(value)]
    body = [] if long is None else [str(result[long])]
    return cut("\n".join([*facts, *body]) or "done")


def cut(text: str, most: int = MOST_CHARACTERS, *, advice: str = "; request a smaller part") -> str:
    """Return the text; if it is too long, its beginning and end with a note on the omitted part."""
    if len(text) <= most:
        return text
    head = int(most * _HEAD_SHARE)
    tail = most - head
    missing = f"\n… {len(text) - most:,} characters omitted{advice} …\n"
    return text[:head] + missing + text[-tail:]


def first_failure(output: str) -> str:
    """Return the output of pytest or unittest with only its first failure; return other output unchanged. If
    the program `timeout` stopped the run, add a note.

    The shorter output is for small models, which correct one thing at a time.
    """
    for failure, end in ((_PYTEST, _PYTEST_END), (_UNITTEST, _UNITTEST_END)):
        first = failure.search(output)
        second = failure.search(output, first.end()) if first else None
        if second is None:
            continue
        rest = end.search(output, second.end())
        summary = output[rest.start() :] if rest else ""
        return output[: second.start()] + summary
    return _BY_TIMEOUT.sub(r"\g<0>: stopped, because it took too long. Perhaps a loop never ends.", output, 1)


def passed_tests(output: str) -> int | None:
    """Return the number of passed tests in the output of pytest or unittest; None if the output does not
    state it. A run that was stopped, because a test never ended, counts as 0.
    """
    counted = _PYTEST_COUNTS.findall(output)
    if counted:
        passed = _PYTEST_PASSED.search(counted[-1])
        return int(passed[1]) if passed else 0
    ran, failed = _UNITTEST_RAN.findall(output), _UNITTEST_FAILED.findall(output)
    if ran and failed:
        return int(ran[-1]) - sum(map(int, re.findall(r"\b(?:failures|errors)=(\d+)", failed[-1])))
    return 0 if _STOPPED.match(output) else None


def _says(value: JsonValue) -> bool:
    """Return whether a value is worth a line in the result: it is not None, False or empty."""
    return value is not None and value is not False and value != "" and value != ()


def _json(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)
