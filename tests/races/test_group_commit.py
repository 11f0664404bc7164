"""Writers that share a commit: each is committed once, alone or with others, and gets its own answer."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cleveragents.core.errors import Closed, OutcomeUnknown, StoreBusy
from cleveragents.storage.group_commit import GroupCommit, _Ticket
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval


@dataclass
class Log:
    """The committed batches, and the answers to the writers."""

    group: Any = None
    batches: list[tuple[int, ...]] = field(default_factory=list)
    inside: int = 0
    overlapped: bool = False
    answers: dict[int, Hashable] = field(default_factory=dict)
    committed_at_close: int | None = None
    ticket: Any = None

    def commit(self, items: Sequence[int]) -> list[int]:
        self.inside += 1
        if self.inside > 1:
            self.overlapped = True
        self.batches.append(tuple(items))
        self.inside -= 1
        return [item * 10 for item in items]

    def write(self, item: int) -> None:
        try:
            self.answers[item] = self.group.run(item)
        except Closed:
            self.answers[item] = "closed"

    def close(self) -> None:
        self.group.close()
        self.committed_at_close = len(self.committed())

    def committed(self) -> list[int]:
        return [item for batch in self.batches for item in batch]


def log(group_class: Any = GroupCommit) -> Log:
    made = Log()
    made.group = group_class(made.commit, location="here", patience_seconds=None)
    return made


def writers(count: int, group_class: Any = GroupCommit) -> Scenario[Log]:
    def outcome(made: Log) -> Hashable:
        right = all(made.answers.get(n) == n * 10 for n in range(count))
        once = sorted(made.committed()) == list(range(count))
        return right and once and not made.overlapped, tuple(len(batch) for batch in made.batches)

    alone = (1,) * count
    return Scenario(
        name=f"{count} writers",
        setup=lambda: log(group_class),
        workers=[lambda made, n=n: made.write(n) for n in range(count)],
        outcome=outcome,
        allowed=lambda outcome: outcome[0],
        reachable=frozenset({(True, alone), (True, (1, count - 1))} if count > 2 else {(True, alone)}),
    )


def closing() -> Scenario[Log]:
    def outcome(made: Log) -> Hashable:
        return made.answers.get(1), made.committed_at_close, len(made.committed())

    return Scenario(
        name="a write and a close",
        setup=log,
        workers=[lambda made: made.write(1), Log.close],
        outcome=outcome,
        allowed=lambda outcome: outcome in {(10, 1, 1), ("closed", 0, 0)},
        reachable=frozenset({(10, 1, 1), ("closed", 0, 0)}),
    )


def giving_up() -> Scenario[Log]:
    """A writer that times out while a leader takes the queue is withdrawn or taken, never both."""

    def setup() -> Log:
        made = log()
        made.ticket = _Ticket(1)
        made.group._leading = True
        made.group._enqueue(made.ticket)
        return made

    def withdraw(made: Log) -> None:
        made.answers[0] = made.group._withdraw(made.ticket)

    def take(made: Log) -> None:
        batch: list[Any] = []
        made.group._take(batch)
        made.answers[1] = len(batch)

    return Scenario(
        name="a writer gives up",
        setup=setup,
        workers=[withdraw, take],
        outcome=lambda made: (made.answers.get(0), made.answers.get(1)),
        allowed=lambda outcome: outcome in {(True, 0), (False, 1)},
        reachable=frozenset({(True, 0), (False, 1)}),
    )


class NaiveGroupCommit:
    """Leader and followers without a lock: check whether another thread leads, then lead."""

    def __init__(self, commit: Callable[[Sequence[int]], Sequence[int]], **limits: object) -> None:
        self._commit = commit
        self._queue: list[tuple[int, dict[str, int], threading.Event]] = []
        self._leading = False

    def run(self, item: int) -> int | None:
        answer: dict[str, int] = {}
        done = threading.Event()
        self._queue.append((item, answer, done))
        if self._leading:
            done.wait(1.0)
            return answer.get("answer")
        self._leading = True
        while self._queue:
            batch, self._queue = self._queue, []
            for entry, value in zip(batch, self._commit([one[0] for one in batch]), strict=True):
                entry[1]["answer"] = value
                entry[2].set()
        self._leading = False
        return answer.get("answer")


@pytest.mark.parametrize(
    "scenario", [writers(2), writers(3), closing(), giving_up()], ids=lambda scenario: scenario.name
)
def test_each_writer_is_committed_once_and_gets_its_own_answer(scenario: Scenario[Log]) -> None:
    assert_holds(scenario, effort=140)


def test_catches_leading_without_a_lock() -> None:
    assert_caught(writers(2, NaiveGroupCommit), effort=300)


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_many_writers_lose_nothing(interval: float) -> None:
    made = log()

    def work(number: int) -> None:
        for turn in range(300):
            item = number * 1000 + turn
            assert made.group.run(item) == item * 10

    with switch_interval(interval):
        hammer(work)
    assert sorted(made.committed()) == sorted(n * 1000 + turn for n in range(8) for turn in range(300))
    assert not made.overlapped


# ── Timeouts and interrupts ───────────────────────────────────────────────────────────────────────


class Stage:
    """A group whose every commit runs the action that the test has set for its first item."""

    def __init__(self, patience_seconds: float = 60.0) -> None:
        self.acts: dict[int, Callable[[], object]] = {}
        self.batches: list[list[int]] = []
        self.answers: dict[int, object] = {}
        self.group: GroupCommit[int, int] = GroupCommit(
            self._commit, location="here", patience_seconds=patience_seconds
        )

    def _commit(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        self.acts.get(items[0], lambda: None)()
        return items

    def write(self, item: int) -> None:
        try:
            self.answers[item] = self.group.run(item)
        except BaseException as error:
            self.answers[item] = error

    def wait_queued(self, count: int) -> None:
        """Return when this many writers are queued behind the leader."""
        while len(self.group._queue) < count:
            threading.Event().wait(0.001)

    def start(self, *items: int) -> list[threading.Thread]:
        """Start a writer for each item; the first one leads, the others are queued in their order."""
        threads = []
        for number, item in enumerate(items):
            threads.append(threading.Thread(target=self.write, args=(item,)))
            threads[-1].start()
            # A second batch means that the queue was there, and is gone again.
            while not self.batches or (len(self.group._queue) < number and len(self.batches) == 1):
                threading.Event().wait(0.001)
        return threads


def join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_writer_that_timed_out_is_never_committed() -> None:
    stage = Stage(patience_seconds=0.05)
    go_on = threading.Event()
    stage.acts[1] = lambda: go_on.wait(30)
    threads = stage.start(1)
    with pytest.raises(StoreBusy):
        stage.group.run(2)
    with pytest.raises(StoreBusy):
        stage.group.close()
    go_on.set()
    join(threads)
    stage.group.close()
    with pytest.raises(Closed):
        stage.group.run(3)
    assert stage.batches == [[1]]


def test_a_writer_whose_commit_does_not_return_gets_outcome_unknown() -> None:
    stage = Stage(patience_seconds=1.0)
    go_on = threading.Event()
    stage.acts[1] = lambda: stage.wait_queued(2)
    stage.acts[2] = lambda: go_on.wait(30)
    leaders = stage.start(1, 2)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        stage.group.run(3)
    go_on.set()
    join(leaders)
    assert stage.batches == [[1], [2, 3]]


def test_an_interrupted_leader_gives_its_followers_outcome_unknown() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    stage = Stage()
    stage.acts[1] = lambda: stage.wait_queued(2)
    stage.acts[2] = interrupt
    join(stage.start(1, 2, 3))
    assert stage.answers[1] == 1
    assert isinstance(stage.answers[2], KeyboardInterrupt)
    assert isinstance(stage.answers[3], OutcomeUnknown)
    assert stage.group.run(4) == 4


def test_an_error_of_the_commit_reaches_the_whole_batch() -> None:
    def fail() -> None:
        raise LookupError("commit")

    stage = Stage()
    stage.acts[1] = lambda: stage.wait_queued(2)
    stage.acts[2] = fail
    join(stage.start(1, 2, 3))
    assert isinstance(stage.answers[2], LookupError)
    assert isinstance(stage.answers[3], LookupError)
    assert stage.group.run(4) == 4


def test_a_waiting_writer_that_is_interrupted_leaves_the_queue() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise InterruptedError("signal")

    stage = Stage()
    go_on = threading.Event()
    stage.acts[1] = lambda: go_on.wait(30)
    threads = stage.start(1)
    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None

    def disturb() -> None:
        stage.wait_queued(1)
        signal.pthread_kill(main, signal.SIGUSR1)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        with pytest.raises(InterruptedError):
            stage.group.run(2)
    finally:
        signal.signal(signal.SIGUSR1, before)
        go_on.set()
    join([*threads, disturber])
    assert stage.group.run(3) == 3
    assert stage.batches == [[1], [3]]


def test_a_leader_interrupted_before_it_took_anything_passes_the_leadership_on() -> None:
    stage = Stage(patience_seconds=0.2)

    def strike(frame: Any, what: str, value: object) -> None:
        if frame.f_code.co_name == "_take":
            raise InterruptedError("struck")

    def write() -> None:
        sys.settrace(strike)
        stage.write(1)

    thread = threading.Thread(target=write)
    thread.start()
    join([thread])
    assert isinstance(stage.answers[1], InterruptedError)
    assert stage.group.run(2) == 2
    assert stage.batches == [[2]]


def test_a_leader_interrupted_when_it_had_taken_its_batch_passes_the_leadership_on() -> None:
    stage = Stage(patience_seconds=0.2)

    def follow(frame: Any, what: str, value: object) -> Any:
        return strike if frame.f_code.co_name == "_take" else None

    def strike(frame: Any, what: str, value: object) -> Any:
        if what == "return":
            sys.settrace(None)
            raise KeyboardInterrupt
        return strike

    def write() -> None:
        sys.settrace(follow)
        stage.write(1)

    thread = threading.Thread(target=write)
    thread.start()
    join([thread])
    assert isinstance(stage.answers[1], KeyboardInterrupt)
    assert stage.group.run(2) == 2
    assert stage.batches == [[2]]


def test_a_nested_write_raises_instead_of_deadlocking() -> None:
    stage = Stage(patience_seconds=0.2)
    stage.acts[1] = lambda: stage.group.run(2)
    with pytest.raises(RuntimeError, match="nested write"):
        stage.group.run(1)
    assert stage.group.run(3) == 3
