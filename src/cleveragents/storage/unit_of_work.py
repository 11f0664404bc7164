"""Writes that share one transaction: each runs alone or joined with similar writes, and each fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from sqlalchemy import Connection

from cleveragents.core.event import DomainEvent
from cleveragents.core.identifiers import acting_as
from cleveragents.storage.outbox import take_appended

__all__ = ["Backend", "Savepoint", "TransactionLost", "Write", "WriteOutcome", "run_alone", "run_batch"]

T = TypeVar("T")


class Write(Struct, frozen=True):
    """A write: `apply(connection, items)` returns one value per item, in order.

    With `joins`, the write may share one call of `apply` with other writes that have the same `apply`. Its
    events in the outbox are attributed to `by`, whichever thread runs it.
    """

    apply: Callable[[Connection, Sequence[Any]], Sequence[Any]]
    item: Any
    joins: bool
    by: str | None = None


class WriteOutcome(Struct, frozen=True):
    """The result of a write and its events in the outbox. An error means that this write alone failed."""

    value: Any = None
    error: Exception | None = None
    events: tuple[DomainEvent, ...] = ()


class TransactionLost(Exception):
    """The whole transaction failed, not only one of its writes; `cause` is the reason."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Savepoint(Protocol):
    """Runs a part of a transaction. A failure undoes only this part; if the whole transaction fails, raises
    `TransactionLost`.
    """

    def __call__(self, work: Callable[[], T]) -> T: ...


class Backend(Protocol):
    """A database product as `Database` uses it; every method is safe in any thread."""

    def read(self) -> AbstractContextManager[Connection]:
        """Open one consistent, read-only snapshot."""
        ...

    def commit(self, write: Write) -> WriteOutcome:
        """Run the write in a transaction and commit it; if it raises, nothing is written."""
        ...

    def migrate(self, migration: Callable[[Connection], None]) -> None:
        """Run the migration in one transaction that excludes the migrations of all other processes."""
        ...

    def close(self) -> None:
        """Release all connections."""
        ...


def run_alone(connection: Connection, write: Write) -> WriteOutcome:
    """Run one write alone and propagate its exceptions."""
    return _run_group(connection, [write])[0]


def run_batch(connection: Connection, writes: Sequence[Write], savepoint: Savepoint) -> list[WriteOutcome]:
    """Run all writes in the current transaction, each failing alone. Raises `TransactionLost`."""
    groups = _groups(writes)

    def each(run: Callable[[Sequence[Write]], list[WriteOutcome]]) -> list[WriteOutcome]:
        answers: dict[int, WriteOutcome] = {}
        for numbers in groups:
            answers.update(zip(numbers, run([writes[n] for n in numbers]), strict=True))
        return [answers[n] for n in range(len(writes))]

    if len(groups) > 1:
        # Failures are rare: one savepoint for all saves two statements per write.
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
    # One failing write fails the whole group, so run each alone to give each its own answer.
    return [answer for write in group for answer in _attempt(connection, [write], savepoint)]


def _run_group(connection: Connection, group: Sequence[Write]) -> list[WriteOutcome]:
    take_appended(connection)  # events of a failed unit are dropped
    with acting_as(group[0].by):  # the leader also runs the writes of other callers
        values = group[0].apply(connection, [write.item for write in group])
    events = tuple(take_appended(connection))
    if len(values) != len(group):
        raise ValueError(f"{group[0].apply!r} returned {len(values)} values for {len(group)} items")
    return [WriteOutcome(value, events=events if n == 0 else ()) for n, value in enumerate(values)]
