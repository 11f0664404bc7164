"""Records are stored by their fields, as JSON and as rows, and restored unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum

import pytest

from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.records import facts_of, record_of
from cleveragents.storage.rows import record_in, row_of

NOON = datetime(2026, 11, 17, 12, 0, 0, 5, tzinfo=UTC)


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Wheel:
    size: int
    colour: Colour | None = None


@dataclass(frozen=True, slots=True)
class Cart:
    name: str
    wheels: tuple[Wheel, ...] = ()
    spare: Wheel | None = None
    load: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    note: JsonValue = None


@dataclass(frozen=True, slots=True)
class Trip:
    id: str
    colour: Colour
    began_at: datetime
    ended_at: datetime | None = None
    note: str = ""


CART = Cart("c", (Wheel(1), Wheel(2, Colour.BLUE)), Wheel(3, Colour.RED), FrozenObject({"a": [1]}), (1, None))


def test_a_record_comes_back_from_json_as_it_was() -> None:
    assert record_of(Cart, freeze(facts_of(CART))) == CART


def test_the_facts_of_a_record_are_json() -> None:
    assert facts_of(Wheel(2, Colour.BLUE)) == {"size": 2, "colour": "blue"}
    assert facts_of(CART)["wheels"] == [{"size": 1, "colour": None}, {"size": 2, "colour": "blue"}]


def test_a_field_with_a_default_may_be_missing_and_unknown_ones_are_passed_over() -> None:
    assert record_of(Cart, {"name": "c", "wings": 2}) == Cart("c")


def test_a_field_without_a_default_may_not_be_missing() -> None:
    with pytest.raises(TypeError, match="name"):
        record_of(Cart, {})


def test_a_value_that_no_enumeration_has_is_refused() -> None:
    with pytest.raises(ValueError, match="green"):
        record_of(Wheel, {"size": 1, "colour": "green"})


@pytest.mark.parametrize("ended", [None, NOON])
def test_a_record_comes_back_from_its_row_as_it_was(ended: datetime | None) -> None:
    trip = Trip("t", Colour.RED, NOON, ended)
    row = row_of(trip)
    assert type(row["began_at"]) is int
    assert type(row["colour"]) is str
    assert record_in(Trip, row) == trip


def test_columns_may_override_fields() -> None:
    row = row_of(Trip("t", Colour.RED, NOON), note="[1]", number=7)
    assert row["number"] == 7
    assert record_in(Trip, row, note="one") == Trip("t", Colour.RED, NOON, None, "one")
