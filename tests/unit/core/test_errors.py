"""Errors: one documented, complete tree; each has a message and crosses to another process."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import MISSING, dataclass, is_dataclass
from typing import Any

import pytest

from cleveragents.core import errors
from cleveragents.core.errors import CleverAgentsError, Fault, Remedy, StalePlan
from cleveragents.core.errors.families import error_fields

FAMILIES = {errors.InvalidRequest, errors.Conflict, errors.Unavailable, errors.Fault}
ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, CleverAgentsError)]
CONCRETE = [cls for cls in ALL if cls is not CleverAgentsError and cls not in FAMILIES]
SAMPLES: dict[str, Any] = {
    "str": "text",
    "int": 7,
    "float": 2.5,
    "float | None": 2.5,
    "int | float | None": 2.5,
    "str | None": "text",
    "tuple[str, ...]": ("a", "b"),
    "bool": True,
    "int | None": 5,
    "tuple[int, int, int, int] | None": (7, 8, 9, 1),
    "tuple[Remedy, ...]": (Remedy("plan.list", "text", {"call": None}, "List the plans"),),
}


def sample(cls: type[CleverAgentsError], *, only_required: bool) -> CleverAgentsError:
    given = {
        one.name: SAMPLES[str(one.type)]
        for one in error_fields(cls)
        if not only_required or (one.default is MISSING and one.default_factory is MISSING)
    }
    return cls(**given)


def test_all_names_every_error() -> None:
    remedies = ["OptionValue", "Remedy", "remedies_record", "remedies_from_json", "remedies_to_json"]
    assert sorted(errors.__all__) == sorted([*(cls.__name__ for cls in ALL), *remedies])


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    drawn = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if line.lstrip().startswith("* "):
            depth = (len(line) - len(line.lstrip())) // 2
            path[depth:] = [line.strip("* ").split(":")[0]]
            drawn[path[-1]] = path[-2] if depth else "Exception"
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in ALL}


@pytest.mark.parametrize("cls", CONCRETE)
@pytest.mark.parametrize("only_required", [True, False])
def test_every_error_has_a_message_and_survives_pickling(
    cls: type[CleverAgentsError], only_required: bool
) -> None:
    error = sample(cls, only_required=only_required)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)
    assert "\n" not in str(error)
    assert "<" not in str(error)
    assert len(str(error)) >= 9


@pytest.mark.parametrize("cls", CONCRETE)
def test_every_error_belongs_to_one_family_with_its_exit_code(
    cls: type[CleverAgentsError],
) -> None:
    assert len([family for family in FAMILIES if issubclass(cls, family)]) == 1
    assert cls.exit_code in {1, 2, 3, 75, 130}


def test_a_class_becomes_a_dataclass_with_its_first_error() -> None:
    class Broken(Fault):
        __module__ = "cleveragents.core.errors"
        part: str

    class BrokenTwice(Broken):
        __module__ = "cleveragents.core.errors"
        again: str = "here"

    assert "__init__" not in vars(Broken), "the definition of an error costs nothing"
    error = BrokenTwice("index")
    assert is_dataclass(error)
    assert repr(error).endswith("BrokenTwice(part='index', again='here')")
    assert error.args == ("index",)
    assert [field.name for field in error_fields(Broken)] == ["part"]


def test_an_error_of_another_package_may_be_a_dataclass() -> None:
    @dataclass(eq=False)
    class Mine(StalePlan):
        more: str = "here"

    assert Mine("P", 3, "there").more == "there"
    assert Mine("P", 3).version == 3


def test_an_error_is_complete_if_another_thread_is_still_making_its_class_a_dataclass() -> None:
    class Broken(Fault):
        part: str

    # `dataclass` first sets the fields and then the methods; this is the state in between.
    Broken.__dataclass_fields__ = {}
    assert Broken("index").part == "index"
