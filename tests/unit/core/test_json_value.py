"""Frozen JSON: equal to its source, deeply immutable, and only JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.errors import InvalidPayload
from cleveragents.core.json_value import FrozenObject, freeze, thaw

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def assert_immutable(value: Any) -> None:
    if isinstance(value, Mapping):
        assert isinstance(value, FrozenObject)
        with pytest.raises(AttributeError):
            value._items = {}
        with pytest.raises(TypeError):
            value["new"] = 1
        for item in value.values():
            assert_immutable(item)
    elif not isinstance(value, str):
        assert not hasattr(value, "append")
        for item in value if isinstance(value, tuple) else ():
            assert_immutable(item)


@given(JSON)
def test_a_frozen_value_is_equal_and_immutable(value: Any) -> None:
    frozen = freeze(value)
    assert thaw(frozen) == value
    assert freeze(frozen) == frozen
    assert hash(frozen) == hash(freeze(json.loads(json.dumps(value))))
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert_immutable(frozen)


def test_a_frozen_value_does_not_share_the_callers_objects() -> None:
    mine = {"list": [1], "object": {"a": 1}}
    frozen = FrozenObject(mine)
    mine["list"].append(2)
    mine["object"]["b"] = 2
    assert frozen == {"list": (1,), "object": {"a": 1}}
    assert len(frozen) == 2
    assert "list" in repr(frozen)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": float("nan")}, "nan is not a JSON number"),
        ([float("inf")], "inf is not a JSON number"),
        ({1: "a"}, "key 1 is not text"),
        ({"a": {1, 2}}, "set is not a JSON value"),
        (b"bytes", "bytes is not a JSON value"),
        ([-(10**4300)], "the integer has too many digits"),
    ],
)
def test_reports_values_that_json_cannot_represent(value: Any, problem: str) -> None:
    with pytest.raises(InvalidPayload, match=f"the payload: {problem}.*; use only JSON values"):
        freeze(value, where="the payload")


def test_refuses_endless_nesting_before_the_stack_overflows() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPayload, match="nested deeper than 64"):
        freeze(endless)
