"""`Database`: concurrent changes lose no listener and keep no removed one; it is closed once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import make_url

from cleveragents.storage.database import Database
from tests.races.explorers import Scenario, assert_holds


@dataclass
class Shared:
    """A database with a fake backend, and the number of its closes."""

    closed: int = 0
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = Database(self, make_url("sqlite:///nowhere"))  # only `close` is ever called
        self.remove = self.database.add_commit_listener(self.listener("old"))

    def listener(self, name: str) -> Any:
        return lambda events: self.heard.append(name)

    def add(self, name: str) -> None:
        self.database.add_commit_listener(self.listener(name))

    def close(self) -> None:
        self.closed += 1

    def outcome(self) -> Hashable:
        self.database._tell(())
        return tuple(sorted(self.heard)), self.closed


def scenario(name: str, workers: list[Any], wanted: Hashable) -> Scenario[Shared]:
    return Scenario(
        name=name,
        setup=Shared,
        workers=workers,
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome == wanted,
        reachable=frozenset({wanted}),
    )


@pytest.mark.parametrize(
    "case",
    [
        scenario("two adders", [lambda s: s.add("a"), lambda s: s.add("b")], (("a", "b", "old"), 0)),
        scenario("add and remove", [lambda s: s.add("a"), lambda s: s.remove()], (("a",), 0)),
        scenario("two closers", [lambda s: s.database.close(), lambda s: s.database.close()], (("old",), 1)),
    ],
    ids=lambda case: case.name,
)
def test_two_concurrent_writes_to_a_database_happen_once_each(case: Scenario[Shared]) -> None:
    assert_holds(case, effort=60)
