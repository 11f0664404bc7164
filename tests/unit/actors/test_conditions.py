"""Conditions reject invalid expressions at loading and are evaluated safely."""

from __future__ import annotations

from typing import Any

import pytest

from cleveragents.actors.conditions import Condition
from cleveragents.core.errors import InvalidCondition

STATE: dict[str, Any] = {
    "verdict": "approved",
    "rounds": 2,
    "files": ["a.py", "b.py"],
    "review": {"verdict": "again", "items": [1, 0]},
    "done": False,
    "nothing": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("verdict == 'approved'", True),
        ("verdict != 'approved'", False),
        ("rounds >= 2 and not done", True),
        ("done or rounds > 2", False),
        ("1 < rounds <= 2", True),
        ("len(files) + 1 == 3", True),
        ("len(files) - 2", False),
        ("'a.py' in files", True),
        ("'c.py' not in files", True),
        ("verdict in ['approved', 'fine']", True),
        ("review.verdict == 'again'", True),
        ("review['verdict'] == 'again'", True),
        ("review.items[0] == 1", True),
        ("any(review.items) and not all(review.items)", True),
        ("max(review.items) > min(review.items)", True),
        ("lower('ABC') == 'abc'", True),
        ("-rounds < 0", True),
        ("nothing == None", True),
        ("files", True),
        ("'x' in ('x', 'y')", True),
    ],
)
def test_a_condition_decides(text: str, holds: bool) -> None:
    assert Condition(text, STATE).holds(STATE) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("verdict ==", "not a valid condition"),
        ("", "not a valid condition"),
        ("verdict = 'x'", "not a valid condition"),
        ("verdct == 'x'", "did you mean verdict?"),
        ("zzz == 1", "available: verdict, rounds"),
        ("open('/etc/passwd')", "unknown function"),
        ("__import__('os')", "unknown function"),
        ("verdict.upper()", "unknown function"),
        ("(lambda: 1)()", "unknown function"),
        ("[x for x in files]", "ListComp is not allowed"),
        ("{'a': 1}", "Dict is not allowed"),
        ("f'{verdict}'", "JoinedStr is not allowed"),
        ("files[0:1]", "Slice is not allowed"),
        ("2 ** 99", "Pow is not allowed"),
        ("'a' * 99", "Mult is not allowed"),
        ("any(lambda: 1)", "Lambda is not allowed"),
        ("rounds if done else 1", "IfExp is not allowed"),
        ("(x := 1)", "NamedExpr is not allowed"),
        ("b'x' == 1", "is not allowed"),
        ("1j == 1", "is not allowed"),
        ("max(files, key=len)", "no named arguments"),
        ("len == 1", "the state has no key 'len'"),
        ("rounds == " + "1" * 1000, "longer than"),
        ("+".join(["1"] * 400), "more than 200 parts"),
        ("\0", "not a valid condition"),
    ],
)
def test_an_invalid_condition_is_refused_at_loading(text: str, said: str) -> None:
    with pytest.raises(InvalidCondition) as refused:
        Condition(text, STATE)
    assert said in str(refused.value)
    assert refused.value.text == text


@pytest.mark.parametrize(
    "text", ["verdict > 1", "review.verdct == 1", "files[7] == 1", "len(rounds)", "max([])"]
)
def test_an_undecidable_condition_is_an_invalid_condition(text: str) -> None:
    condition = Condition(text, STATE)
    with pytest.raises(InvalidCondition):
        condition.holds(STATE)


def test_a_part_is_looked_up_and_never_an_attribute() -> None:
    with pytest.raises(InvalidCondition):
        Condition("review.__class__ == 1", STATE).holds(STATE)
    assert Condition("review.__class__ == 1", STATE).holds({**STATE, "review": {"__class__": 1}})
