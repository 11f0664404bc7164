"""What is done at once, under explored interleavings: each item is taken once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cleveragents.reactive.routes import _Crew
from tests.races.explorers import Scenario, assert_caught, assert_holds


class Counting:
    """An iterator as most are: of no use to two threads at once."""

    def __init__(self, last: int) -> None:
        self.at = 0
        self.last = last

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        at = self.at
        if at == self.last:
            raise StopIteration
        self.at = at + 1
        return at


class Taken:
    """A crew without threads of its own, and what was taken from its items."""

    def __init__(self, take: Any) -> None:
        observer: Any = None
        self.crew: _Crew[int, int] = _Crew(Counting(2), int, observer, 2)
        self.taken: list[Any] = []
        self._take = take

    def take(self) -> None:
        self.taken.append(self._take(self.crew))


def without_the_lock(crew: Any) -> Any:
    return (next(crew._items),)


def two_take(take: Any) -> Scenario[Taken]:
    return Scenario(
        name="two threads take an item",
        setup=lambda: Taken(take),
        workers=[Taken.take, Taken.take],
        outcome=lambda world: tuple(sorted(world.taken)),
        allowed=lambda outcome: outcome == ((0,), (1,)),
        reachable=frozenset({((0,), (1,))}),
    )


def test_no_item_is_taken_twice() -> None:
    assert_holds(two_take(_Crew._take), effort=60)


def test_without_the_lock_one_would_be() -> None:
    assert_caught(two_take(without_the_lock), effort=200)
