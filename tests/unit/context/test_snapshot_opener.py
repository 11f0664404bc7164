"""Opened code is closed exactly once, by its last user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

from cleveragents.context.code_index import CodePlace, IndexStatus
from cleveragents.context.pipeline.snapshot_opener import HeldSnapshot, PendingSnapshot
from cleveragents.context.pipeline.steps import Deadline, attempted
from cleveragents.core.errors import Closed
from cleveragents.testing.clock import FakeClock
from cleveragents.testing.code_index import FakeCodeIndex, MemorySnapshot
from tests.context_world import ROOT, TEXTS
from tests.races.hammer import hammer


class Never:
    is_cancelled = False


def held(index: FakeCodeIndex) -> HeldSnapshot:
    manager = index.open(ROOT)
    return HeldSnapshot(manager, manager.__enter__())


def test_it_is_closed_by_its_last_user_even_after_the_opener() -> None:
    index = FakeCodeIndex(TEXTS)
    snapshot = held(index)
    with snapshot.held() as code:
        snapshot.release_hold()
        snapshot.release_hold()
        assert (index.closed, len(code.files)) == (0, 3)
    assert index.closed == 1
    with pytest.raises(Closed), snapshot.held():
        pass
    assert index.closed == 1


def test_many_threads_that_use_it_and_an_opener_that_goes_close_it_once() -> None:
    for _ in range(30):
        index = FakeCodeIndex(TEXTS)
        snapshot = held(index)
        seen: list[int] = []
        use = partial(use_or_let_go, index, snapshot, seen)
        hammer(use, threads=4, seconds_limit=30.0)
        assert index.closed == 1
        assert not any(seen)


def use_or_let_go(index: FakeCodeIndex, snapshot: HeldSnapshot, seen: list[int], number: int) -> None:
    """The first thread is the opener; the others note whether it was closed during their use."""
    if number == 0:
        snapshot.release_hold()
        return
    with suppress(Closed), snapshot.held():
        seen.append(index.closed)


def test_code_opened_after_the_caller_gave_up_is_closed_at_once() -> None:
    index = FakeCodeIndex(TEXTS)
    opening = PendingSnapshot(index, ROOT, None)
    assert opening.take() is None
    assert opening.open(5.0, Never()) is None
    assert (index.opened, index.closed) == (1, 1)


def test_code_opened_in_time_is_taken_with_its_files() -> None:
    index = FakeCodeIndex(TEXTS)
    opening = PendingSnapshot(index, ROOT, None)
    opening.open(5.0, Never())
    taken = opening.take()
    assert taken is not None
    assert sorted(taken.files) == sorted(TEXTS)
    assert index.closed == 0


class Partly(FakeCodeIndex):
    """An index that indexes three of nine files and takes the given seconds."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__(TEXTS)
        self._clock = clock
        self._seconds = seconds

    @contextmanager
    def open(self, place: CodePlace, **options: Any) -> Iterator[Any]:
        self._clock.advance(self._seconds)
        yield Partial(TEXTS, place)


class Partial(MemorySnapshot):
    @property
    def status(self) -> IndexStatus:
        return IndexStatus(9, 3, ("6 left out, because they changed while they were read",))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (5.0, "only 3 of 9 files are indexed so far; ask again for more"),
        (4.9, "only 3 of 9 files are indexed"),
    ],
)
def test_asking_again_is_advised_only_if_time_ran_out(seconds: float, said: str) -> None:
    clock = FakeClock()
    opening = PendingSnapshot(Partly(clock, seconds), ROOT, None, clock=clock.monotonic)
    opening.open(5.0, Never())
    taken = opening.take()
    assert taken is not None
    assert taken.notes == ("6 left out, because they changed while they were read", said)


def test_a_list_of_files_without_an_end_is_given_up_and_closed() -> None:
    index = FakeCodeIndex(TEXTS)
    with pytest.raises(ValueError, match="more than 2 files"):
        PendingSnapshot(index, ROOT, None, most_files=2).open(5.0, Never())
    assert index.closed == 1


def test_a_deadline_counts_down_and_can_be_extended() -> None:
    now = [10.0]
    deadline = Deadline(lambda: now[0], 5.0)
    later = deadline.extended(3.0)
    now[0] = 14.0
    assert (deadline.left, later.left) == (1.0, 4.0)
    now[0] = 99.0
    assert (deadline.left, later.left) == (0.0, 0.0)


class Unspeakable(Exception):
    """An error whose text is foreign code."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_attempted_returns_a_result_or_a_problem_and_passes_interrupts() -> None:
    def fail(error: BaseException) -> Any:
        raise error

    assert attempted(lambda: 7).given == (7,)
    assert attempted(lambda: fail(ValueError("wrong"))).problem == "failed (ValueError: wrong)"
    assert attempted(lambda: fail(Unspeakable())).problem == "failed (Unspeakable)"
    with pytest.raises(KeyboardInterrupt):
        attempted(lambda: fail(KeyboardInterrupt()))
