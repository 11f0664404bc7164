"""Plans of a tree that begin at the same time count their calls together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from cleveragents.models.calls import OpenCalls, OpenCallsOfTrees
from tests.races.explorers import Scenario, assert_caught, assert_holds


class LookThenMake:
    """What two threads can both find missing."""

    def __init__(self) -> None:
        self._known: dict[str, OpenCalls] = {}

    def of(self, root_id: str) -> OpenCalls:
        if root_id not in self._known:
            self._known[root_id] = OpenCalls()
        return self._known[root_id]


@dataclass
class Shared:
    """The counts of trees, and what two plans of one were given."""

    trees: OpenCallsOfTrees | LookThenMake
    given: dict[int, OpenCalls] = field(default_factory=dict)

    def begin(self, who: int) -> None:
        self.given[who] = self.trees.of("root")

    def outcome(self) -> Hashable:
        return self.given[0] is self.given[1]


def scenario(trees: type[OpenCallsOfTrees] | type[LookThenMake]) -> Scenario[Shared]:
    return Scenario(
        name="two plans of a tree begin",
        setup=lambda: Shared(trees()),
        workers=[lambda shared: shared.begin(0), lambda shared: shared.begin(1)],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome is True,
        reachable=frozenset({True}),
    )


@dataclass
class Counted:
    """A count with one call under way, and what was seen of it."""

    calls: OpenCalls = field(default_factory=OpenCalls)
    seen: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.calls.begin()

    def come_and_go(self) -> None:
        self.calls.begin()
        self.calls.end()

    def look(self) -> None:
        traffic = self.calls.look()
        self.seen = (traffic.open, traffic.ended)

    def left(self) -> Hashable:
        traffic = self.calls.look()
        return traffic.open, traffic.ended


def test_no_call_that_comes_or_goes_is_miscounted() -> None:
    assert_holds(
        Scenario(
            name="calls come and go at once",
            setup=Counted,
            workers=[Counted.come_and_go, Counted.come_and_go],
            outcome=Counted.left,
            allowed=lambda outcome: outcome == (1, 2),
            reachable=frozenset({(1, 2)}),
        ),
        effort=60,
    )


def test_an_end_is_seen_as_an_end_or_not_yet() -> None:
    """Neither under way nor ended would be a reason to give up."""
    seen: set[Hashable] = {(1, 0), (0, 1)}
    assert_holds(
        Scenario(
            name="a look while a call ends",
            setup=Counted,
            workers=[lambda shared: shared.calls.end(), Counted.look],
            outcome=lambda shared: shared.seen,
            allowed=lambda outcome: outcome in seen,
            reachable=frozenset(seen),
        ),
        effort=60,
    )


def test_two_plans_that_begin_at_once_share_one_count() -> None:
    assert_holds(scenario(OpenCallsOfTrees), effort=40)


def test_a_count_that_is_looked_for_and_then_made_is_caught() -> None:
    assert_caught(scenario(LookThenMake), effort=120)
