"""Places of a provider in every order of threads: none is lost, none assigned twice; and a script counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleveragents.models.model_wrappers import FairSemaphore, _Waiter
from cleveragents.models.script import ScriptRunner
from cleveragents.models.script_document import read_script
from tests.races.explorers import Scenario, assert_holds

EFFORT = 60


class Turn:
    """A future that is never awaited."""

    def __init__(self) -> None:
        self.came = False

    def done(self) -> bool:
        return self.came

    def set_result(self, result: None) -> None:
        self.came = True


class Loop:
    """A loop that calls immediately."""

    def call_soon_threadsafe(self, call: object) -> None:
        call()


@dataclass
class World:
    """Places, and two callers. The waiters are the real ones, on a loop without a thread."""

    places: FairSemaphore = field(default_factory=lambda: FairSemaphore(1))
    waiters: list[_Waiter] = field(default_factory=lambda: [_Waiter(Loop(), Turn()) for _ in range(2)])
    took: list[int] = field(default_factory=list)

    def take(self, number: int) -> None:
        if self.places._take(self.waiters[number]):
            self.took.append(number)

    @property
    def holders(self) -> int:
        return len(self.took) + sum(waiter.granted for waiter in self.waiters)


def held() -> World:
    """Another caller holds the place."""
    world = World()
    world.places._take(_Waiter(Loop(), Turn()))
    return world


def queued() -> World:
    """One more caller waits for it."""
    world = held()
    world.take(0)
    return world


def seen(world: World) -> tuple[int, int, int]:
    return world.holders, world.places.free, world.places.waiting


def test_two_concurrent_callers_do_not_both_get_the_last_place() -> None:
    assert_holds(
        Scenario(
            "two ask for one place",
            World,
            [lambda world: world.take(0), lambda world: world.take(1)],
            seen,
            {(1, 0, 1)}.__contains__,
            frozenset({(1, 0, 1)}),
        ),
        effort=EFFORT,
    )


def test_a_caller_gets_a_free_place_immediately() -> None:
    assert_holds(
        Scenario(
            "one asks, one leaves",
            held,
            [lambda world: world.take(0), lambda world: world.places._leave()],
            seen,
            {(1, 0, 0)}.__contains__,
            frozenset({(1, 0, 0)}),
        ),
        effort=EFFORT,
    )


def test_a_cancelled_waiter_frees_a_place_it_was_granted() -> None:
    assert_holds(
        Scenario(
            "one gives up, one leaves",
            queued,
            [lambda world: world.places._give_up(world.waiters[0]), lambda world: world.places._leave()],
            lambda world: (world.places.free, world.places.waiting),
            {(1, 0)}.__contains__,
            frozenset({(1, 0)}),
        ),
        effort=EFFORT,
    )


def test_two_concurrent_releases_free_two_places() -> None:
    def two_held() -> World:
        world = World(FairSemaphore(2))
        for _ in range(2):
            world.places._take(_Waiter(Loop(), Turn()))
        return world

    assert_holds(
        Scenario(
            "two leave",
            two_held,
            [lambda world: world.places._leave()] * 2,
            lambda world: world.places.free,
            {2}.__contains__,
            frozenset({2}),
        ),
        effort=EFFORT,
    )


def test_a_rule_for_one_request_answers_one_of_two() -> None:
    script = read_script("rules: [{times: 1, reply: {text: once}}, {reply: {text: else}}]", "s")

    @dataclass
    class Asked:
        scripting: ScriptRunner = field(default_factory=lambda: ScriptRunner(script))
        answers: list[bool] = field(default_factory=list)

        def ask(self) -> None:
            self.answers.append(self.scripting._due(0, script.rules[0]))

    assert_holds(
        Scenario(
            "two requests, one answer",
            Asked,
            [lambda asked: asked.ask()] * 2,
            lambda asked: tuple(sorted(asked.answers)),
            {(False, True)}.__contains__,
            frozenset({(False, True)}),
        ),
        effort=EFFORT,
    )
