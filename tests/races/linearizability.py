"""A check whether some sequential order explains a concurrent history (Wing and Gong's search, with memory).

A `History` records when each operation began and ended. The check searches for an order that respects real
time (an operation that ended before another began comes first) and in which a sequential `Model` gives the
same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

__all__ = ["Call", "History", "Operation", "is_linearizable", "run_programs"]

Model = Callable[[Any, "Call"], tuple[Any, Any]]
"""`(state, call) -> (next state, answer)`; states are hashable."""


@dataclass(frozen=True)
class Call:
    """The name and arguments of a call."""

    name: str
    args: tuple[Hashable, ...] = ()


@dataclass
class Operation:
    """A call, and the times between which it took effect."""

    call: Call
    began: int
    ended: int = 0
    answer: Any = None


@dataclass
class History:
    """Operations in real-time order.

    It has no lock, so that an explorer spends its schedules on the code under test: drawing the next time and
    appending are one call of the interpreter each.
    """

    operations: list[Operation] = field(default_factory=list)
    _moments: Iterator[int] = field(default_factory=lambda: count(1))

    def run(self, call: Call, act: Callable[[], Any]) -> None:
        """Run `act` and record it as an operation."""
        operation = Operation(call, next(self._moments))
        operation.answer = act()
        operation.ended = next(self._moments)
        self.operations.append(operation)


def is_linearizable(history: Iterable[Operation], initial: Hashable, model: Model) -> bool:
    """Return whether the model gives the same answers in some order that respects real time."""
    operations = tuple(sorted(history, key=lambda o: o.began))
    hopeless: set[tuple[frozenset[int], Hashable]] = set()

    def search(left: frozenset[int], state: Hashable) -> bool:
        if not left:
            return True
        if (left, state) in hopeless:
            return False
        first_end = min(operations[i].ended for i in left)
        for i in sorted(left):
            if operations[i].began > first_end:
                break
            next_state, answer = model(state, operations[i].call)
            if answer == operations[i].answer and search(left - {i}, next_state):
                return True
        hopeless.add((left, state))
        return False

    return search(frozenset(range(len(operations))), initial)


def run_programs(
    programs: Sequence[Sequence[Call]], perform: Callable[[Any, Call], Any]
) -> list[Callable[[tuple[Any, History]], None]]:
    """Return one worker per program, for a `Scenario` whose state is `(object, History)`."""

    def worker(program: Sequence[Call]) -> Callable[[tuple[Any, History]], None]:
        def run(state: tuple[Any, History]) -> None:
            subject, history = state
            for call in program:
                history.run(call, lambda call=call: perform(subject, call))

        return run

    return [worker(program) for program in programs]
