"""Dataclasses whose methods are made at the first use behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable, Hashable
from dataclasses import FrozenInstanceError, field
from types import FunctionType
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from cleveragents.core.dataclass import dataclass as lazy

T = TypeVar("T")
Declared = dict[str, Any]
SHARED: list[str] = []


@lazy(frozen=True, slots=True)
class Point:
    """A frozen class with slots, to be pickled."""

    x: int
    y: int = 0
    names: tuple[str, ...] = field(default=("a",), repr=False)


@lazy(slots=True)
class Basket:
    """One that can be changed."""

    things: list[str] = field(default_factory=list)


@lazy(eq=False)
class Wrong(Exception):
    """An error."""

    why: str

    def __str__(self) -> str:
        return f"wrong: {self.why}"


def declared(dataclass: Any) -> Declared:
    """Classes of every kind that the product has, declared with this decorator."""

    @dataclass(frozen=True, slots=True)
    class Base:
        a: int
        b: str = "b"

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: str = "other"
        c: tuple[int, ...] = field(default=(), compare=False, metadata={"said": "c"})

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("below 0")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Keywords(Generic[T]):
        first: T
        second: int = field(default=2)

    @dataclass
    class Plain:
        one: int
        many: list[int] = field(default_factory=list)

    @dataclass
    class Child(Plain):
        more: str = "more"

        def __repr__(self) -> str:
            return "its own"

    @dataclass(frozen=True)
    class Equal:
        key: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

    @dataclass(frozen=True)
    class Hashed:
        key: str

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True, slots=True)
    class Counted:
        most: ClassVar[int] = 3
        count: int = 1

    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        number: int

    @dataclass(eq=False)
    class Failure(Exception):
        reason: str

    found = [Base, Derived, Keywords, Plain, Child, Equal, Hashed, Counted, Ordered, Failure]
    return {kind.__name__: kind for kind in found}


MAKE: dict[str, Callable[[Any], Any]] = {
    "Base": lambda kind: kind(1),
    "Derived": lambda kind: kind(1, c=(2,)),
    "Keywords": lambda kind: kind(first="x"),
    "Plain": lambda kind: kind(1),
    "Child": lambda kind: kind(1, [2], "z"),
    "Equal": lambda kind: kind("k"),
    "Hashed": lambda kind: kind("k"),
    "Counted": lambda kind: kind(),
    "Ordered": lambda kind: kind(5),
    "Failure": lambda kind: kind("r"),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_class_is_what_the_standard_library_makes_of_it(name: str) -> None:
    ours, theirs = declared(lazy)[name], declared(dataclasses.dataclass)[name]
    mine, other = MAKE[name](ours), MAKE[name](theirs)
    assert repr(mine) == repr(other)
    assert (mine == MAKE[name](ours)) == (other == MAKE[name](theirs))
    assert mine != other or name == "Equal"
    assert isinstance(mine, Hashable) == isinstance(other, Hashable)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__dataclass_params__.frozen == theirs.__dataclass_params__.frozen
    assert [str(f) for f in dataclasses.fields(ours)] == [str(f) for f in dataclasses.fields(theirs)]
    assert hasattr(mine, "__dict__") == hasattr(other, "__dict__")
    assert vars(ours).get("__slots__") == vars(theirs).get("__slots__")


@pytest.mark.parametrize("name", ["Base", "Derived", "Keywords", "Hashed", "Ordered"])
def test_equal_values_of_a_frozen_class_have_equal_hashes(name: str) -> None:
    kind = declared(lazy)[name]
    assert {MAKE[name](kind)} == {MAKE[name](kind)}


def test_a_class_that_can_change_has_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Basket())


def test_a_frozen_value_refuses_assignment_and_deletion() -> None:
    point, name = Point(1), "x"
    with pytest.raises(FrozenInstanceError, match="assign to field 'x'"):
        setattr(point, name, 2)
    with pytest.raises(FrozenInstanceError, match="delete field 'x'"):
        delattr(point, name)
    assert point.x == 1


def test_a_subclass_of_a_frozen_class_may_have_attributes_of_its_own() -> None:
    class Named(Point):
        def __init__(self, x: int, name: str) -> None:
            super().__init__(x)
            self.name = name

    named, field_name = Named(3, "n"), "x"
    assert (named.x, named.y, named.name) == (3, 0, "n")
    del named.name
    with pytest.raises(FrozenInstanceError):
        setattr(named, field_name, 2)


def test_every_value_has_a_default_of_its_own() -> None:
    one, other = Basket(), Basket()
    one.things.append("apple")
    assert other.things == []


def test_a_default_of_a_class_without_slots_is_read_from_the_class() -> None:
    @lazy
    class Kept:
        number: int = field(default=4)
        things: list[str] = field(default_factory=list)

    assert Kept.number == 4
    assert not hasattr(Kept, "things")


@pytest.mark.parametrize("value", [Point(1, 2), Basket(["a"])])
def test_values_are_copied_and_pickled(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert dataclasses.replace(value) == value


def test_an_error_keeps_its_words_when_it_is_pickled() -> None:
    error = pickle.loads(pickle.dumps(Wrong("so")))
    assert (str(error), error.why) == ("wrong: so", "so")


def test_a_value_is_checked_after_it_was_made() -> None:
    with pytest.raises(ValueError, match="below 0"):
        declared(lazy)["Derived"](-1)


def test_methods_are_made_when_a_class_is_first_used() -> None:
    kind = declared(lazy)["Derived"]
    names = ("__init__", "__repr__", "__eq__", "__setattr__")
    assert not any(isinstance(vars(kind)[name], FunctionType) for name in names)
    kind(1)
    assert all(isinstance(vars(kind)[name], FunctionType) for name in names)


def test_threads_that_use_a_class_first_all_get_values() -> None:
    for _ in range(20):
        kind = declared(lazy)["Derived"]
        together = threading.Barrier(4)
        found: list[Any] = []
        threads = [threading.Thread(target=_use, args=(kind, together, found)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert found == [kind(1)] * 4


def _use(kind: Any, together: threading.Barrier, found: list[Any]) -> None:
    together.wait(timeout=30)
    found.append(kind(1))


def test_a_wrong_declaration_is_reported_at_the_first_use() -> None:
    @lazy(frozen=True)
    class Mutable:
        things: list[str] = SHARED

    with pytest.raises(ValueError, match="mutable default"):
        Mutable()
