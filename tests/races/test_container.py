"""A part is built once and closed once, with concurrent requests and closes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from cleveragents.app.scope import Part, Scope
from cleveragents.core.errors import Closed
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.naive_container import NaivePart, NaiveScope


@dataclass
class World:
    """A scope with two parts, the upper one built from the lower, and their history."""

    scope: Any
    log: list[str] = field(default_factory=list)
    got: dict[str, Any] = field(default_factory=dict)
    lower: Any = None
    upper: Any = None

    def build(self, name: str) -> str:
        if name == "upper":
            self.lower.get()
        self.log.append(f"build {name}")
        return f"{name} {self.log.count(f'build {name}')}"

    def close(self, part: str) -> None:
        self.log.append(f"close {part}")

    def ask(self, who: str, part: Any) -> None:
        try:
            self.got[who] = part.get()
        except Closed:
            self.got[who] = "closed"


def world(scope_type: Any, part_type: Any) -> World:
    made = World(scope_type("the scope"))
    made.lower = part_type(made.scope, lambda: made.build("lower"), made.close)
    made.upper = part_type(made.scope, lambda: made.build("upper"), made.close)
    return made


def settled(state: World) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
    return tuple(sorted(state.got.items())), tuple(state.log)


def sound(outcome: tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]) -> bool:
    """Return whether everything was built at most once, closed exactly once if built, upper before lower."""
    got, log = outcome
    built = [entry.removeprefix("build ") for entry in log if entry.startswith("build")]
    closed = [entry.removeprefix("close ").split()[0] for entry in log if entry.startswith("close")]
    once = len(built) == len(set(built)) and all(part in ("lower 1", "upper 1", "closed") for _, part in got)
    return once and (not closed or closed == built[::-1])


def two_ask(scope_type: Any, part_type: Any) -> Scenario[World]:
    return Scenario(
        name="two threads ask for the same part",
        setup=lambda: world(scope_type, part_type),
        workers=[lambda w: w.ask("a", w.upper), lambda w: w.ask("b", w.upper)],
        outcome=settled,
        allowed=sound,
    )


def one_asks_one_closes(scope_type: Any, part_type: Any) -> Scenario[World]:
    ends = ("build lower", "build upper", "close upper 1", "close lower 1")
    return Scenario(
        name="one asks while another closes",
        setup=lambda: world(scope_type, part_type),
        workers=[lambda w: w.ask("a", w.upper), lambda w: w.scope.close()],
        outcome=settled,
        allowed=lambda outcome: (
            sound(outcome)
            and outcome[1].count("build lower") == sum("close lower" in entry for entry in outcome[1])
        ),
        reachable=frozenset({((("a", "closed"),), ()), ((("a", "upper 1"),), ends)}),
    )


def two_close(scope_type: Any, part_type: Any) -> Scenario[World]:
    def setup() -> World:
        made = world(scope_type, part_type)
        made.upper.get()
        return made

    return Scenario(
        name="two threads close",
        setup=setup,
        workers=[lambda w: w.scope.close(), lambda w: w.scope.close()],
        outcome=settled,
        allowed=sound,
    )


SCENARIOS = [two_ask, one_asks_one_closes, two_close]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_parts_are_built_and_closed_once_in_any_schedule(scenario: Any) -> None:
    assert_holds(scenario(Scope, Part), effort=200)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_scenarios_catch_the_usual_way(scenario: Any) -> None:
    assert_caught(scenario(NaiveScope, NaivePart), effort=200)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_many_threads_get_one_part_each_time(interval: float) -> None:
    with switch_interval(interval):
        for _ in range(50):
            made = world(Scope, Part)

            def use(number: int, made: World = made) -> None:
                made.ask(str(number), made.upper if number % 2 else made.lower)
                made.scope.close()

            hammer(use, threads=4)
            assert sound(settled(made))
            assert made.log.count("close lower 1") == made.log.count("build lower")


def test_a_build_that_fails_leaves_nothing_and_is_tried_again() -> None:
    tries: list[int] = []
    closed: list[int] = []

    def build() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return len(tries)

    scope = Scope("the scope")
    part = Part(scope, build, closed.append)
    with pytest.raises(ValueError, match="not yet"):
        part.get()
    assert part.get() == 2
    scope.close()
    assert closed == [2]
    with pytest.raises(Closed):
        part.get()


def test_closes_all_parts_even_if_one_fails() -> None:
    log: list[str] = []

    def refuse(part: str) -> None:
        log.append(part)
        raise OSError(part)

    scope = Scope("the scope")
    for name in ("first", "second", "third"):
        Part(scope, lambda name=name: name, refuse).get()
    with pytest.raises(OSError, match="first"):
        scope.close()
    assert log == ["third", "second", "first"]
