"""Plans of a tree that start at the same time count their calls together."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from cleveragents.models.calls import OpenCalls, OpenCallsOfTrees
from tests.races.explorers import Scenario, assert_caught, assert_holds


class LookThenMake:
    """The count that two threads can both find missing."""

    def __init__(self) -> None:
        self._known: dict[str, OpenCalls] = {}

    def of(self, root_id: str) -> OpenCalls:
        if root_id not in self._known:
            self._known[root_id] = OpenCalls()
        return self._known[root_id]


@dataclass
class Shared:
    """The counts of trees, and those that two plans of one tree got."""

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
    """A count with one running call, and the readings of it."""

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


def test_counts_starting_and_ending_calls_correctly() -> None:
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


def test_an_end_is_seen_completely_or_not_yet() -> None:
    """A call that is neither running nor ended would be a reason to give up."""
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


def test_two_plans_that_start_together_share_one_count() -> None:
    assert_holds(scenario(OpenCallsOfTrees), effort=40)


def test_a_naive_count_is_caught() -> None:
    assert_caught(scenario(LookThenMake), effort=120)
