"""Code shared by a request and its stragglers: closed once, and never while in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cleveragents.context.code_index import CodePlace
from cleveragents.context.pipeline.snapshot_opener import HeldSnapshot, PendingSnapshot
from cleveragents.core.errors import Closed
from cleveragents.testing.code_index import FakeCodeIndex
from tests.races.explorers import Scenario, assert_caught, assert_holds


class Code:
    """A snapshot that counts its closes."""

    def __init__(self) -> None:
        self.closed = 0

    def __enter__(self) -> Code:
        return self

    def __exit__(self, *_: Any) -> None:
        self.closed += 1


class Ground:
    """Code with its holders, and the observations of two users."""

    def __init__(self, kind: Any) -> None:
        self.code = Code()
        self.held = kind(self.code, self.code)
        self.seen: list[int] = []

    def use(self) -> None:
        try:
            with self.held.held():
                self.seen.append(self.code.closed)
        except Closed:
            pass


class NaiveHolding:
    """Counts its users without a lock."""

    def __init__(self, manager: Any, code: Any) -> None:
        self._manager = manager
        self.code = code
        self._users = 1

    @contextmanager
    def held(self) -> Iterator[Any]:
        users = self._users
        if users == 0:
            raise Closed("the code")
        self._users = users + 1
        try:
            yield self.code
        finally:
            self.release_hold()

    def release_hold(self) -> None:
        users = self._users - 1
        self._users = users
        if users == 0:
            self._manager.__exit__(None, None, None)


def scenario(kind: Any) -> Scenario[Ground]:
    return Scenario(
        name=f"a user and the opener of {kind.__name__}",
        setup=lambda: Ground(kind),
        workers=[Ground.use, lambda ground: ground.held.release_hold()],
        outcome=lambda ground: (ground.code.closed, tuple(ground.seen)),
        allowed=lambda outcome: outcome in {(1, (0,)), (1, ())},
        reachable=frozenset({(1, (0,))}),
    )


def test_it_is_closed_once_and_never_during_a_use() -> None:
    assert_holds(scenario(HeldSnapshot))


def test_catches_a_count_without_a_lock() -> None:
    assert_caught(scenario(NaiveHolding))


class Arriving:
    """Code that is being opened, and a caller that takes it or gives up."""

    def __init__(self) -> None:
        self.index = FakeCodeIndex({})
        self.opening = PendingSnapshot(self.index, CodePlace(Path("/nowhere")), None)
        self.taken: Any = None

    def open(self) -> None:
        self.opening.open(5.0, Never())

    def take(self) -> None:
        self.taken = self.opening.take()


class Never:
    is_cancelled = False


def test_opened_code_is_either_taken_or_closed() -> None:
    assert_holds(
        Scenario(
            name="one opens, one takes or gives up",
            setup=Arriving,
            workers=[Arriving.open, Arriving.take],
            outcome=lambda state: (state.taken is not None, state.index.closed),
            allowed=lambda outcome: outcome in {(True, 0), (False, 1)},
        )
    )
