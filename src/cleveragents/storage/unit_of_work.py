"""What is written in one transaction: units, each alone or joined with its like, each failing alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from cleveragents.core.event import DomainEvent
from cleveragents.core.identifiers import acting_as
from cleveragents.storage.outbox import take_appended

__all__ = ["Backend", "Savepoint", "TransactionLost", "Write", "WriteOutcome", "run_alone", "run_batch"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """Something to be written: `apply(connection, items)` gives one value per item, in order.

    One that `joins` may find itself in one `apply` with others of the same function. What it leaves in the
    outbox is said to be done `by` whoever wrote it, whichever thread runs it.
    """

    apply: Callable[[Connection, Sequence[Any]], Sequence[Any]]
    item: Any
    joins: bool
    by: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What came of a write, and the events it left in the outbox. An error failed this write alone."""

    value: Any = None
    error: Exception | None = None
    events: tuple[DomainEvent, ...] = ()


class TransactionLost(Exception):
    """Not one unit failed but the transaction around it; the cause says why."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Savepoint(Protocol):
    """Runs a part of a transaction so that it fails alone, or raises `TransactionLost`."""

    def __call__(self, work: Callable[[], T]) -> T: ...


class Backend(Protocol):
    """What `Database` asks of a database product; every method from any thread."""

    def read(self) -> AbstractContextManager[Connection]:
        """One consistent snapshot, in which nothing can be written."""
        ...

    def commit(self, write: Write) -> WriteOutcome:
        """Runs the write in a transaction and commits it, or raises and has written nothing."""
        ...

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        """Runs the migration in one transaction that excludes every other process's migration."""
        ...

    def close(self) -> None:
        """Gives back every connection."""
        ...


def run_alone(connection: Connection, write: Write) -> WriteOutcome:
    """The write by itself; raises what it raises."""
    return _run_group(connection, [write])[0]


def run_batch(connection: Connection, writes: Sequence[Write], savepoint: Savepoint) -> list[WriteOutcome]:
    """All of them in the transaction under way, each failing alone. `TransactionLost`."""
    groups = _groups(writes)

    def each(run: Callable[[Sequence[Write]], list[WriteOutcome]]) -> list[WriteOutcome]:
        answers: dict[int, WriteOutcome] = {}
        for numbers in groups:
            answers.update(zip(numbers, run([writes[n] for n in numbers]), strict=True))
        return [answers[n] for n in range(len(writes))]

    if len(groups) > 1:
        # Mostly nobody fails: then one savepoint does for all, where each would cost two statements more.
        try:
            return savepoint(lambda: each(lambda group: _run_group(connection, group)))
        except Exception as error:
            if isinstance(error, TransactionLost):
                raise
    return each(lambda group: _attempt(connection, group, savepoint))


def _groups(writes: Sequence[Write]) -> list[list[int]]:
    groups: dict[object, list[int]] = {}
    for number, write in enumerate(writes):
        groups.setdefault((write.apply, write.by) if write.joins else number, []).append(number)
    return list(groups.values())


def _attempt(connection: Connection, group: Sequence[Write], savepoint: Savepoint) -> list[WriteOutcome]:
    try:
        return savepoint(lambda: _run_group(connection, group))
    except Exception as error:
        if isinstance(error, TransactionLost):
            raise
        if len(group) == 1:
            return [WriteOutcome(error=error)]
    # Somebody in the group spoils it for the others: apart, each gets the answer that is its own.
    return [answer for write in group for answer in _attempt(connection, [write], savepoint)]


def _run_group(connection: Connection, group: Sequence[Write]) -> list[WriteOutcome]:
    take_appended(connection)  # what a failed unit left behind is not ours to tell
    with acting_as(group[0].by):  # who leads runs what others wrote, too
        values = group[0].apply(connection, [write.item for write in group])
    events = tuple(take_appended(connection))
    if len(values) != len(group):
        raise ValueError(f"{group[0].apply!r} gave {len(values)} values for {len(group)} items")
    return [WriteOutcome(value, events=events if n == 0 else ()) for n, value in enumerate(values)]
