"""Two independent explorers of thread interleavings behind one form of scenario.

A `Scenario` builds fresh state, runs its workers concurrently, and reduces the result to an *outcome*.
`explore` runs it under every explorer this interpreter has and collects the set of outcomes:

* frontrun's DPOR, over all orders of the workers, because its partial-order reduction is not symmetric
  in them, and its random opcode schedules, which see what DPOR's conflict model does not;
* interleave-test (CPython 3.12 and later): bounded-exhaustive depth-first search by line, and PCT by
  opcode.

Both replace what `threading` offers while a schedule runs, so code under test says `threading.Lock()`,
never `from threading import Lock`, and takes executors as parameters.
An exploration that did not reach the outcomes a scenario declares possible proved nothing: `reachable`
makes that an error.

`RACE_EXPLORERS` may name one of them, for a second interpreter beside the one that runs the other:
`frontrun` alone, or `interleave` first, and frontrun only for outcomes that are still unseen or uncaught.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Generic, TypeVar

import frontrun

from tests.races.quicker import quicker_frontrun, quicker_interleave

__all__ = ["Exploration", "Scenario", "assert_caught", "assert_holds", "explore"]

State = TypeVar("State")
# The number of schedules decides when an exploration is over; the clock of a busy machine would end it too
# early.
PATIENCE_SECONDS = 500.0
RUN_SECONDS = (
    120.0  # one schedule of workers that open a database; five seconds were too few on a busy machine
)


@dataclass(frozen=True)
class Scenario(Generic[State]):
    """Concurrent workers, and their allowed outcomes.

    `outcome` sees the state after all workers ended. `allowed` decides; `reachable` are outcomes that an
    exploration of correct code must reach, each at least once. If workers wait with a deadline, a "virtual"
    clock lets it expire; on the real one frontrun spins until it gives up. A random schedule has at most
    `operations`.
    """

    name: str
    setup: Callable[[], State]
    workers: Sequence[Callable[[State], object]]
    outcome: Callable[[State], Hashable]
    allowed: Callable[[Any], bool]
    reachable: frozenset[Hashable] = frozenset()
    clock: str = "real"
    operations: int = 300


@dataclass
class Exploration:
    """The result of an explorer."""

    explorer: str
    schedules: int = 0
    outcomes: set[Hashable] = field(default_factory=set)
    violation: str | None = None


def explore(scenario: Scenario[Any], *, effort: int = 400) -> Iterator[Exploration]:
    """Yield one exploration per explorer, lazily; each stops at its first violation."""
    wanted = os.environ.get("RACE_EXPLORERS", "")
    if sys.version_info < (3, 12) or wanted == "frontrun":
        yield from _by_frontrun(scenario, effort)
    elif wanted == "interleave":
        yield from _by_interleave(scenario, effort)
        yield from _by_frontrun(scenario, effort)
    else:
        yield from _by_frontrun(scenario, effort)
        yield from _by_interleave(scenario, effort)


def assert_holds(scenario: Scenario[Any], *, effort: int = 400) -> None:
    """Assert that no explorer finds a violation, and that together they reach every possible outcome."""
    met: set[Hashable] = set()
    for number, exploration in enumerate(explore(scenario, effort=effort), start=1):
        who = f"{scenario.name}, {exploration.explorer}"
        assert exploration.violation is None, f"{who}: {exploration.violation}"
        assert exploration.schedules > 1, f"{who}: explored nothing"
        met |= exploration.outcomes
        if _is_enough(number) and scenario.reachable <= met:
            return
    assert scenario.reachable <= met, (
        f"{scenario.name}: never reached {set(scenario.reachable) - met}; met only {met}"
    )


def _is_enough(explorations: int) -> bool:
    """Return whether both methods of the named explorer are done.

    The other explorer runs on another interpreter.
    """
    return explorations == 2 and os.environ.get("RACE_EXPLORERS") == "interleave"


def assert_caught(scenario: Scenario[Any], *, effort: int = 400) -> None:
    """Assert that some explorer finds a violation; the first is enough."""
    caught = any(exploration.violation is not None for exploration in explore(scenario, effort=effort))
    assert caught, f"{scenario.name}: no explorer caught it"


def _by_frontrun(scenario: Scenario[Any], effort: int) -> Iterator[Exploration]:
    with _cooperative_locks(), quicker_frontrun():
        found = _dpor(scenario, effort)
    yield found
    with _cooperative_locks(), quicker_frontrun():
        found = _random(scenario, max(20, effort // 2))
    yield found


def _by_interleave(scenario: Scenario[Any], effort: int) -> Iterator[Exploration]:
    yield _interleave(scenario, "dfs", "line", effort)
    yield _interleave(scenario, "pct", "opcode", max(20, effort // 2))


@contextmanager
def _cooperative_locks() -> Iterator[None]:
    """Replace `threading`'s locks by frontrun's for its explorations only.

    Its own pytest option patches them for the whole run, so that everything else would use them, too.
    """
    from frontrun._cooperative import patch_locks, unpatch_locks

    patch_locks()
    try:
        yield
    finally:
        unpatch_locks()


def _dpor(scenario: Scenario[Any], effort: int) -> Exploration:
    seen = Exploration("frontrun dpor")
    orders = list(permutations(range(len(scenario.workers))))
    for order in orders:
        result = frontrun.explore(
            setup=scenario.setup,
            workers=[scenario.workers[i] for i in order],
            invariant=_judge(scenario, seen),
            max_executions=max(20, effort // len(orders)),
            preemption_bound=2,
            detect_io=False,
            clock=scenario.clock,
            reproduce_on_failure=0,
            total_timeout=PATIENCE_SECONDS,
            timeout_per_run=RUN_SECONDS,
        )
        if _note(seen, result):
            return seen
    return seen


def _random(scenario: Scenario[Any], attempts: int) -> Exploration:
    seen = Exploration("frontrun random")
    result = frontrun.explore(
        setup=scenario.setup,
        workers=list(scenario.workers),
        invariant=_judge(scenario, seen),
        strategy="random",
        max_attempts=attempts,
        max_ops=scenario.operations,
        seed=7,
        detect_io=False,
        clock=scenario.clock,
        reproduce_on_failure=0,
        total_timeout=PATIENCE_SECONDS,
        timeout_per_run=RUN_SECONDS,
    )
    _note(seen, result)
    return seen


def _judge(scenario: Scenario[Any], seen: Exploration) -> Callable[[Any], bool]:
    def invariant(state: Any) -> bool:
        outcome = scenario.outcome(state)
        seen.outcomes.add(outcome)
        return bool(scenario.allowed(outcome))

    return invariant


def _note(seen: Exploration, result: Any) -> bool:
    seen.schedules += result.num_explored
    if result.property_holds is False:
        seen.violation = result.explanation or f"outcomes {seen.outcomes}"
        return True
    assert result.property_holds is True, f"{seen.explorer}: inconclusive: {result.inconclusive_reason}"
    return False


def _interleave(scenario: Scenario[Any], strategy: str, granularity: str, iterations: int) -> Exploration:
    import interleave_test

    seen = Exploration(f"interleave-test {strategy}")

    def model() -> None:
        state = scenario.setup()
        threads = [threading.Thread(target=worker, args=(state,)) for worker in scenario.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with interleave_test.no_interleave():
            outcome = scenario.outcome(state)
            seen.outcomes.add(outcome)
            assert scenario.allowed(outcome), f"outcome {outcome!r}"

    with quicker_interleave():
        result = interleave_test.explore(
            model,
            iterations=iterations,
            seed=7,
            strategy=strategy,
            granularity=granularity,
            raise_on_failure=False,
        )
    seen.schedules = result.schedules_run
    if result.failure is not None:
        seen.violation = str(result.failure)
    return seen
