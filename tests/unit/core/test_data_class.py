"""Dataclasses that are quick to define behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from cleveragents.core import data_class

Decorator = Callable[..., Any]
BOTH = pytest.mark.parametrize(
    "dataclass", [dataclasses.dataclass, data_class.dataclass], ids=["std", "ours"]
)
OPTIONS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"slots": True},
        {"frozen": True},
        {"frozen": True, "slots": True},
        {"frozen": True, "slots": True, "kw_only": True},
        {"eq": False},
        {"frozen": True, "eq": False},
    ],
    ids=str,
)


def point(dataclass: Decorator, **options: bool) -> Any:
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        secret: str = field(default="s", repr=False)
        name: str = field(default="n", kw_only=True)
        total: int = field(default=0, init=False)
        seen: list[int] = field(default_factory=list, init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

        def __len__(self) -> int:
            return self.total

    return dataclass(**options)(Point)


def described(kind: Any) -> dict[str, Any]:
    """Return everything about a class and its objects that users of it can notice."""
    one, same, other = kind(x=1), kind(x=1), kind(x=1, y=3, name="other")
    return {
        "repr": repr(one),
        "equal": (one == same, one == other, one == (1, 2), one != same),
        "hash": None if kind.__hash__ is None else hash(one) == hash(same),
        "fields": [(each.name, each.type, each.init, each.kw_only) for each in dataclasses.fields(kind)],
        "plain": dataclasses.asdict(other),
        "replaced": repr(dataclasses.replace(one, y=9)),
        "copied": repr(copy.deepcopy(other)),
        "signature": str(inspect.signature(kind)),
        "name": kind.__init__.__qualname__,
        "module": kind.__init__.__module__,
        "match": kind.__match_args__,
        "params": repr(kind.__dataclass_params__),
        "slots": getattr(kind, "__slots__", None),
        "lists": one.tags is not same.tags and one.seen is not same.seen,
        "length": len(one),
        "doc": kind.__doc__,
    }


@OPTIONS
def test_a_class_is_like_one_of_the_standard_library(options: dict[str, bool]) -> None:
    expected = described(point(dataclasses.dataclass, **options))
    assert described(point(data_class.dataclass, **options)) == expected


@BOTH
def test_a_decorator_without_options_is_enough(dataclass: Decorator) -> None:
    @dataclass
    class Empty:
        """Nothing."""

    assert Empty() == Empty()
    assert repr(Empty()).endswith("Empty()")


@BOTH
@pytest.mark.parametrize("slots", [False, True])
def test_a_frozen_object_cannot_be_changed(dataclass: Decorator, slots: bool) -> None:
    one = point(dataclass, frozen=True, slots=slots)(x=1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        one.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del one.x
    assert one.x == 1


def test_a_frozen_object_gets_no_new_attributes() -> None:
    one = point(data_class.dataclass, frozen=True, slots=True)(x=1)
    with pytest.raises(FrozenInstanceError):
        one.unknown = 2
    with pytest.raises(FrozenInstanceError):
        del one.unknown


@BOTH
def test_methods_of_the_class_are_kept(dataclass: Decorator) -> None:
    @dataclass(frozen=True)
    class Word:
        """A word in any case."""

        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Word) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return "word"

    assert {Word("A"), Word("a")} == {Word("a")}
    assert repr(Word("a")) == "word"


@BOTH
def test_a_frozen_class_with_its_own_equality_has_a_hash(dataclass: Decorator) -> None:
    @dataclass(frozen=True)
    class Both:
        """Two values."""

        first: int
        second: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Both)

    assert hash(Both(1, 2)) == hash((1, 2))


@BOTH
def test_a_class_that_refuses_hashes_stays_so(dataclass: Decorator) -> None:
    @dataclass(frozen=True)
    class Bare:
        """One value."""

        first: int
        __hash__: ClassVar[None] = None

    with pytest.raises(TypeError, match="unhashable"):
        hash(Bare(1))


@pytest.mark.parametrize("parent", [dataclasses.dataclass, data_class.dataclass], ids=["std", "ours"])
@BOTH
def test_classes_inherit_from_either_kind(parent: Decorator, dataclass: Decorator) -> None:
    @parent(frozen=True, slots=True)
    class Parent:
        """A parent."""

        first: int

    @dataclass(frozen=True, slots=True)
    class Child(Parent):
        """A child."""

        second: int = 2

    assert Child(1) == Child(1, 2) != Child(2)
    with pytest.raises(FrozenInstanceError):
        Child(1).first = 2
    with pytest.raises(TypeError, match="frozen"):

        @dataclass
        class Changing(Parent):
            """A child that would not be frozen."""


@BOTH
def test_a_subclass_without_decorator_may_add_attributes(dataclass: Decorator) -> None:
    @dataclass(frozen=True)
    class Parent:
        """A parent."""

        first: int

    class Child(Parent):
        """A child with more state."""

    child = Child(1)
    child.more = 2
    assert child.more == 2
    del child.more
    with pytest.raises(FrozenInstanceError):
        child.first = 3
    with pytest.raises(FrozenInstanceError):
        del child.first


@BOTH
def test_objects_can_be_ordered(dataclass: Decorator) -> None:
    @dataclass(order=True, frozen=True, slots=True)
    class Version:
        """A version."""

        number: int

    assert sorted([Version(2), Version(1)]) == [Version(1), Version(2)]


@BOTH
def test_a_cycle_has_a_short_representation(dataclass: Decorator) -> None:
    @dataclass
    class Node:
        """A node."""

        next: Any = None

    node = Node()
    node.next = node
    assert repr(node).endswith("Node(next=...)")


@BOTH
def test_defaults_come_last(dataclass: Decorator) -> None:
    with pytest.raises(TypeError, match="default"):

        @dataclass
        class Wrong:
            """A required field after an optional one."""

            first: int = 1
            second: int


@data_class.dataclass(frozen=True, slots=True)
class Kept:
    """A class that pickles can find."""

    first: int
    second: tuple[str, ...] = ()


def test_pickles_and_copies_of_frozen_objects_are_equal() -> None:
    kept = Kept(1, ("a",))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(kept, protocol)) == kept
    assert copy.copy(kept) == copy.deepcopy(kept) == kept


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"Kept.__init__\(\) missing 1 required positional argument: 'first'"):
        Kept()
