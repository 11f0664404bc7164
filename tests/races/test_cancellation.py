"""Cancellation under every interleaving the explorers can find, and under real threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleveragents.jobs.worker.async_worker import CancellationToken
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.linearizability import Call, History, is_linearizable, run_programs
from tests.races.naive_cancellation import EventToken, LockedEventToken

NAIVE = (EventToken, LockedEventToken)
LONG = 60.0


class World:
    """A token, the view a run took at the start, and the workers' notes."""

    def __init__(self, kind: type[Any]) -> None:
        self.token = kind()
        self.view = self.token.view()
        self.notes: dict[str, Any] = {}
        self.runs: list[str] = []


Make = Callable[[type[Any]], Scenario[World]]


def note(name: str, act: Callable[[World], object]) -> Callable[[World], None]:
    def worker(world: World) -> None:
        world.notes[name] = act(world)

    return worker


def scenario(
    name: str,
    kind: type[Any],
    workers: Sequence[Callable[[World], object]],
    outcome: Callable[[World], Hashable],
    allowed: set[Hashable],
    setup: Callable[[World], object] = lambda world: None,
) -> Scenario[World]:
    """Return a scenario whose allowed outcomes must all be reached."""

    def build() -> World:
        world = World(kind)
        setup(world)
        return world

    return Scenario(name, build, workers, outcome, allowed.__contains__, frozenset(allowed))


# ── Generations ───────────────────────────────────────────────────────────────────────────────────


def a_run_keeps_its_cancel(kind: type[Any]) -> Scenario[World]:
    def cancel_and_reset(world: World) -> None:
        world.token.cancel("stop")
        world.token.reset()

    return scenario(
        "a run's cancel survives the reset that follows at once",
        kind,
        [cancel_and_reset, note("polled", lambda w: w.view.is_cancelled)],
        lambda w: (w.notes["polled"], w.view.is_cancelled, w.view.reason),
        {(False, True, "stop"), (True, True, "stop")},
    )


def a_waiter_gets_its_own_generations_cancel(kind: type[Any]) -> Scenario[World]:
    def cancel_reset_cancel(world: World) -> None:
        world.token.cancel("first")
        world.token.reset()
        world.token.cancel("second")  # so that a waiter that missed the first does not hang

    return scenario(
        "a waiter wakes by the cancel of the generation it waits for",
        kind,
        [note("woken", lambda w: (w.view.wait(None), w.view.reason)), cancel_reset_cancel],
        lambda w: w.notes["woken"],
        {(True, "first")},
    )


def one_cancel_wins(kind: type[Any]) -> Scenario[World]:
    return scenario(
        "of two cancels one wins, and its reason stays",
        kind,
        [note("a", lambda w: w.token.cancel("a")), note("b", lambda w: w.token.cancel("b"))],
        lambda w: (w.notes["a"], w.notes["b"], w.token.reason),
        {(True, False, "a"), (False, True, "b")},
    )


def one_reset_begins_a_generation(kind: type[Any]) -> Scenario[World]:
    return scenario(
        "of two resets one begins a generation, and a cancel after it is not swept away",
        kind,
        [
            note("r", lambda w: (w.token.reset(), w.token.cancel("again"))),
            note("s", lambda w: w.token.reset()),
        ],
        lambda w: (w.notes["r"], w.notes["s"], w.token.is_cancelled),
        {
            ((True, True), False, True),  # r alone
            ((True, True), True, False),  # r cancels, s resets once more
            ((False, True), True, True),  # s was first
        },
        lambda w: w.token.cancel("before"),
    )


# ── Children ──────────────────────────────────────────────────────────────────────────────────────


def a_child_born_during_a_cancel_is_cancelled(kind: type[Any]) -> Scenario[World]:
    return scenario(
        "a child made during a cancel is cancelled",
        kind,
        [note("won", lambda w: w.token.cancel("stop")), note("child", lambda w: w.token.child())],
        lambda w: (w.notes["won"], w.notes["child"].is_cancelled, w.notes["child"].reason),
        {(True, True, "stop")},
    )


def the_whole_tree_falls_at_once(kind: type[Any]) -> Scenario[World]:
    def plant(world: World) -> None:
        world.notes["middle"] = world.token.child()
        world.notes["leaf"] = world.notes["middle"].child()

    return scenario(
        "whoever sees a token cancelled sees all below it cancelled",
        kind,
        [
            lambda w: w.token.cancel("stop"),
            note("seen", lambda w: (w.token.is_cancelled, w.notes["leaf"].is_cancelled)),
        ],
        lambda w: w.notes["seen"],
        {(False, False), (False, True), (True, True)},
        plant,
    )


def a_childs_reset_does_not_escape_its_parent(kind: type[Any]) -> Scenario[World]:
    def plant(world: World) -> None:
        world.notes["child"] = world.token.child()
        world.notes["child"].cancel("own")

    return scenario(
        "a child that resets while its parent is cancelled ends up cancelled",
        kind,
        [lambda w: w.token.cancel("stop"), note("reset", lambda w: w.notes["child"].reset())],
        lambda w: (w.notes["reset"], w.notes["child"].is_cancelled, w.notes["child"].reason),
        {(True, True, "stop"), (False, True, "stop")},
        plant,
    )


def a_closed_child_is_out_of_reach(kind: type[Any]) -> Scenario[World]:
    def plant(world: World) -> None:
        world.notes["child"] = world.token.child()
        world.notes["child"].cancel("own")

    def reached(world: World) -> Hashable:
        world.token.cancel("stop")
        return world.notes["child"].is_cancelled

    return scenario(
        "closing and resetting a child at once leaves it out of the parent's reach",
        kind,
        [lambda w: w.notes["child"].close(), lambda w: w.notes["child"].reset()],
        reached,
        {False},
        plant,
    )


# ── Callbacks ─────────────────────────────────────────────────────────────────────────────────────


def a_callback_runs_once(kind: type[Any]) -> Scenario[World]:
    return scenario(
        "a callback registered during a cancel runs exactly once",
        kind,
        [
            lambda w: w.token.cancel(),
            lambda w: w.token.on_cancel(lambda: w.runs.append("a")),
            lambda w: w.token.on_cancel(lambda: w.runs.append("b")),
        ],
        lambda w: tuple(w.runs),
        {("a", "b"), ("b", "a")},
    )


def a_callback_runs_or_was_prevented(kind: type[Any]) -> Scenario[World]:
    def register(world: World) -> None:
        world.notes["registration"] = world.token.on_cancel(lambda: world.runs.append("run"))

    return scenario(
        "a callback runs exactly once, or exactly one close prevented it",
        kind,
        [
            lambda w: w.token.cancel(),
            note("a", lambda w: w.notes["registration"].close()),
            note("b", lambda w: w.notes["registration"].close()),
        ],
        lambda w: (len(w.runs), w.notes["a"], w.notes["b"]),
        {(1, False, False), (0, True, False), (0, False, True)},
        register,
    )


def callbacks_may_use_the_token(kind: type[Any]) -> Scenario[World]:
    def register(world: World) -> None:
        def callback() -> None:
            world.notes["again"] = world.token.cancel("again")
            world.notes["child"] = world.token.child().is_cancelled
            world.token.on_cancel(lambda: world.runs.append("inner"))
            world.notes["reset"] = world.token.reset()

        world.token.on_cancel(callback)

    return scenario(
        "a callback may cancel, reset, register and make children",
        kind,
        [note("won", lambda w: w.token.cancel("stop")), lambda w: w.view.reason],
        lambda w: (w.notes["won"], w.notes["again"], w.notes["child"], w.notes["reset"], tuple(w.runs)),
        {(True, False, True, True, ("inner",))},
        register,
    )


SCENARIOS: dict[Make, tuple[type[Any], ...]] = {
    a_run_keeps_its_cancel: NAIVE,
    a_waiter_gets_its_own_generations_cancel: NAIVE,
    one_cancel_wins: (EventToken,),
    one_reset_begins_a_generation: (EventToken,),
    a_child_born_during_a_cancel_is_cancelled: NAIVE,
    the_whole_tree_falls_at_once: NAIVE,
    a_childs_reset_does_not_escape_its_parent: NAIVE,
    a_closed_child_is_out_of_reach: NAIVE,
    a_callback_runs_once: NAIVE,
    a_callback_runs_or_was_prevented: NAIVE,
    callbacks_may_use_the_token: (),
}
"""Each scenario, and the naive tokens it catches. The lock does make single moves atomic."""


@pytest.mark.parametrize("make", SCENARIOS, ids=lambda make: make.__name__)
def test_the_token_holds(make: Make) -> None:
    assert_holds(make(CancellationToken), effort=60)


@pytest.mark.parametrize(
    ("make", "kind"), [(make, kind) for make, kinds in SCENARIOS.items() for kind in kinds]
)
def test_the_same_scenario_catches(make: Make, kind: type[Any]) -> None:
    assert_caught(make(kind), effort=120)


# ── Linearizability ───────────────────────────────────────────────────────────────────────────────

Causes = tuple[str | None, ...]
"""The reason of each generation's cancel, if any; the last one is the current generation."""


def model(state: tuple[Causes, tuple[int, ...]], call: Call) -> tuple[Any, Any]:
    """The token, and the generation of each thread's view, one call at a time."""
    causes, held = state
    match call:
        case Call("cancel", (reason,)):
            won = causes[-1] is None
            return ((*causes[:-1], reason) if won else causes, held), won
        case Call("reset"):
            began = causes[-1] is not None
            return ((*causes, None) if began else causes, held), began
        case Call("reason"):
            return state, causes[-1]
        case Call("hold", (thread,)):
            return (causes, (*held[:thread], len(causes) - 1, *held[thread + 1 :])), None
        case Call("held reason", (thread,)):
            return state, causes[held[thread]]
    raise AssertionError(call)


class Held:
    """A token and each thread's view of it."""

    def __init__(self, kind: type[Any], threads: int) -> None:
        self.token = kind()
        self.views = [self.token.view()] * threads


def perform(subject: Held, call: Call) -> object:
    match call:
        case Call("cancel", (reason,)):
            return subject.token.cancel(reason)
        case Call("reset"):
            return subject.token.reset()
        case Call("reason"):
            return subject.token.reason
        case Call("hold", (thread,)):
            subject.views[thread] = subject.token.view()
            return None
        case Call("held reason", (thread,)):
            return subject.views[thread].reason
    raise AssertionError(call)


def calls_of(thread: int) -> st.SearchStrategy[Call]:
    moves = st.sampled_from([Call("cancel", (f"by {thread}",)), Call("reset")])
    looks = st.sampled_from([Call("held reason", (thread,)), Call("reason"), Call("hold", (thread,))])
    return st.one_of(moves, looks)


def programs() -> st.SearchStrategy[tuple[list[Call], ...]]:
    def of(threads: int, *lengths: int) -> st.SearchStrategy[tuple[list[Call], ...]]:
        shortest, longest = lengths
        return st.tuples(
            *(st.lists(calls_of(n), min_size=shortest, max_size=longest) for n in range(threads))
        )

    return st.one_of(of(2, 1, 3), of(3, 1, 1))


def linearizable(kind: type[Any], workers: Sequence[Sequence[Call]]) -> Scenario[tuple[Held, History]]:
    return Scenario(
        f"programs {workers}",
        lambda: (Held(kind, len(workers)), History()),
        run_programs(workers, perform),
        lambda state: is_linearizable(state[1].operations, ((None,), (0,) * len(workers)), model),
        bool,
    )


TWO_CANCELS = ([Call("cancel", ("by 0",))], [Call("cancel", ("by 1",))])
RESET_UNDER_A_RUN = ([Call("cancel", ("by 0",)), Call("reset")], [Call("held reason", (1,))])
"""Short programs that distinguish the naive tokens from a correct one."""


@settings(max_examples=5, deadline=None, derandomize=True)
@example(TWO_CANCELS)
@example(RESET_UNDER_A_RUN)
@given(programs())
def test_every_program_is_linearizable(workers: tuple[list[Call], ...]) -> None:
    assert_holds(linearizable(CancellationToken, workers), effort=20)


@pytest.mark.parametrize(
    ("kind", "workers"), [(EventToken, TWO_CANCELS), *((kind, RESET_UNDER_A_RUN) for kind in NAIVE)]
)
def test_the_same_program_is_not_linearizable(kind: type[Any], workers: tuple[list[Call], ...]) -> None:
    assert_caught(linearizable(kind, workers), effort=20)


# ── Real threads, exact totals ────────────────────────────────────────────────────────────────────

ROUNDS = 3000


def cancels_and_resets(kind: type[Any]) -> None:
    """Every generation has one winner, every reset ends one generation, and no view forgets its cancel."""
    token = kind()
    won: list[bool] = []
    reset: list[bool] = []

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            view = token.view()
            won.append(token.cancel(f"by {number}"))
            reset.append(token.reset())
            assert view.is_cancelled
            assert view.wait(0)

    hammer(work)
    assert sum(won) == sum(reset) + token.is_cancelled


def callbacks_and_closes(kind: type[Any]) -> None:
    """Each callback runs once, or was closed in time: never both, never neither."""
    token = kind()
    runs: list[int] = []
    prevented: list[bool] = []

    def work(number: int) -> None:
        for _ in range(ROUNDS // 4):
            registration = token.on_cancel(lambda: runs.append(number))
            if number % 2:
                prevented.append(registration.close())
            else:
                token.cancel()
                token.reset()

    hammer(work)
    token.cancel()
    assert len(runs) + sum(prevented) == 8 * (ROUNDS // 4)


def children_of_each_generation(kind: type[Any]) -> None:
    """A child of a cancelled generation is cancelled, in whatever order the two happen."""
    token = kind()

    def work(number: int) -> None:
        for _ in range(ROUNDS // 4):
            child = token.child()
            if number % 2:
                token.cancel()
                assert child.is_cancelled
            token.reset()

    hammer(work)


TOTALS = (cancels_and_resets, callbacks_and_closes, children_of_each_generation)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
@pytest.mark.parametrize("totals", TOTALS)
def test_the_totals_are_exact(totals: Callable[[type[Any]], None], interval: float) -> None:
    with switch_interval(interval):
        totals(CancellationToken)


@pytest.mark.parametrize("kind", NAIVE)
def test_the_same_totals_catch(kind: type[Any]) -> None:
    with switch_interval(min(SWITCH_INTERVALS)), pytest.raises(AssertionError):
        cancels_and_resets(kind)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_every_waiter_gets_its_generations_cancel(interval: float) -> None:
    token = CancellationToken()
    finished: list[int] = []

    def work(number: int) -> None:
        if number < 4:
            while len(finished) < 4:
                token.cancel(f"by {number}")
                token.reset()
        else:
            for _ in range(100):
                view = token.view()
                assert view.wait(LONG)
                assert view.reason is not None
            finished.append(number)

    with switch_interval(interval):
        hammer(work)
    assert not token.view()._wakers


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_every_task_on_every_loop_gets_its_generations_cancel(interval: float) -> None:
    token = CancellationToken()
    loops, tasks, turns = 3, 20, 5
    finished: list[int] = []
    complaints: list[object] = []

    async def wait_for_generations() -> int:
        for _ in range(turns):
            view = token.view()
            await view.wait_async()
            assert view.reason is not None
        return turns

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        waiting = [asyncio.create_task(wait_for_generations()) for _ in range(tasks)]
        given_up = [asyncio.create_task(token.wait_async()) for _ in range(tasks)]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()  # while other threads wake it
        await asyncio.gather(*given_up, return_exceptions=True)
        finished.extend(await asyncio.gather(*waiting))

    def work(number: int) -> None:
        if number < loops:
            asyncio.run(asyncio.wait_for(main(), LONG))
        else:
            while len(finished) < loops * tasks:
                token.cancel(f"by {number}")
                token.reset()

    with switch_interval(interval):
        hammer(work, threads=loops + 2)
    assert finished == [turns] * (loops * tasks)
    assert not complaints
    assert not token.view()._wakers
