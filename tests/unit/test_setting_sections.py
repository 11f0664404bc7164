"""A section of settings takes what fits its types and bounds, says why it does not take the rest, and never
changes."""

from __future__ import annotations

from typing import Literal

import pytest

from cleveragents.infrastructure.configuration.section import Section, setting


class Small(Section):
    """A few settings of every type."""

    name: str = setting("none", "a text")
    number: int = setting(3, "a whole number", ge=1, le=9)
    share: float = setting(0.5, "a number", gt=0)
    quick: bool = setting(False, "yes or no")
    colour: Literal["red", "green", "blue"] = setting("red", "one of three")


class Large(Section):
    """Sections."""

    small: Small = Small()

    def check_together(self) -> None:
        if self.small.quick and self.small.number > 5:
            raise ValueError("quick is for small numbers")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", " as it is ", " as it is "),
        ("number", " 1 ", 1),
        ("number", "9.0", 9),
        ("number", 4, 4),
        ("share", "1e3", 1000.0),
        ("share", 2, 2.0),
        ("quick", "Yes", True),
        ("quick", "off", False),
        ("quick", True, True),
        ("colour", "blue", "blue"),
    ],
)
def test_text_becomes_a_value_of_the_settings_type(name: str, text: object, value: object) -> None:
    checked = Small.checked(name, text)
    assert (checked, type(checked)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("name", 3, "should be a valid string"),
        ("number", "3.5", "should be a valid integer, unable to parse"),
        ("number", "3.", "should be a valid integer, unable to parse"),
        ("number", 3.5, "should be a valid integer"),
        ("number", True, "should be a valid integer"),
        ("number", 0, "should be greater than or equal to 1"),
        ("number", 10, "should be less than or equal to 9"),
        ("share", "half", "should be a valid number, unable to parse"),
        ("share", None, "should be a valid number"),
        ("share", True, "should be a valid number"),
        ("share", "inf", "should be a finite number"),
        ("share", 10**400, "should be a finite number"),
        ("share", 0, "should be greater than 0"),
        ("quick", "perhaps", "should be a valid boolean"),
        ("quick", 1, "should be a valid boolean"),
        ("colour", "pink", "should be 'red', 'green' or 'blue'"),
        ("colour", [], "should be 'red', 'green' or 'blue'"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(name: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Small.checked(name, value)


@pytest.mark.parametrize(("name", "text"), [("number", "3"), ("share", "0.5"), ("quick", "yes")])
def test_where_there_are_types_text_is_no_number(name: str, text: str) -> None:
    with pytest.raises(ValueError, match="should be a valid"):
        Small.checked(name, text, strict=True)


def test_sections_are_checked_one_by_one_and_then_together() -> None:
    made = Large.model_validate({"small": {"number": 5, "quick": True}})
    assert (made.small.number, made.small.quick, made.small.name) == (5, True, "none")
    with pytest.raises(ValueError, match="quick is for small numbers"):
        Large.model_validate({"small": {"number": 6, "quick": True}})
    with pytest.raises(ValueError, match="there is no setting numbr"):
        Large.model_validate({"small": {"numbr": 6}})


def test_what_is_written_out_is_read_back() -> None:
    made = Large.model_validate({"small": Small().model_copy(update={"name": "ä", "share": 0.25})})
    again = Large.model_validate_json(made.model_dump_json())
    assert again == made != Large()
    assert again.model_dump()["small"]["name"] == "ä"


def test_settings_do_not_change() -> None:
    small = Small()
    with pytest.raises(AttributeError):
        small.number = 4
    copy = small.model_copy(update={"number": 4})
    assert (small.number, copy.number) == (3, 4)
