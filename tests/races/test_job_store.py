"""A job moves in one step, with concurrent moves of other workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.errors import Conflict
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import hammer
from tests.races.naive_job_store import LockedStepsJobStore, NaiveJobStore, SelectThenUpdateJobStore
from tests.ready_database import ready_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANN = WorkerIdentity("ann", "here", 1, 1)
BOB = WorkerIdentity("bob", "here", 2, 1)
DONE = AttemptOutcome(JobState.SUCCEEDED)

Act = Callable[[Any, str], object]


@dataclass
class Shared:
    """A store with one job, and the answer to each worker."""

    store: Any
    job_id: str
    answers: dict[int, Hashable] = field(default_factory=dict)

    def note(self, who: int, act: Act) -> None:
        try:
            self.answers[who] = _short(act(self.store, self.job_id))
        except Conflict as error:
            self.answers[who] = type(error).__name__

    def outcome(self) -> Hashable:
        job = self.store.get(self.job_id)
        return (self.answers[0], self.answers[1], job.state.value, job.beat, len(self.store.events()))


def _short(answer: Any) -> Hashable:
    if hasattr(answer, "owner"):
        return (answer.state.value, answer.fence)
    return getattr(answer, "beat", answer)


def claim(worker: WorkerIdentity) -> Act:
    return lambda store, job_id: store.claim(worker, ["build"], now=NOW)


def heartbeat(store: Any, job_id: str) -> object:
    heard = store.heartbeats({job_id: 1}, now=NOW)
    return heard[job_id] if heard else STALE


def finish(store: Any, job_id: str) -> object:
    return store.finish(job_id, 1, DONE, now=NOW)


def retry(store: Any, job_id: str) -> object:
    return store.finish(job_id, 1, AttemptOutcome(JobState.QUEUED, error="no"), now=NOW)


def reclaim(store: Any, job_id: str) -> object:
    return store.reclaim(job_id, 1, 0, error="silent", now=NOW)


def cancel(store: Any, job_id: str) -> object:
    return store.request_cancel(job_id, "enough", now=NOW)


def submit(store: Any, job_id: str) -> object:
    return store.submit(NewJob("other", key="once"), now=NOW).id


STALE = "StaleFence"

# The possible results of two concurrent moves: both answers, then state, beat, events so far.
PAIRS: dict[str, tuple[bool, Act, Act, set[Hashable]]] = {
    "two claims": (False, claim(ANN), claim(BOB), {
        (("running", 1), None, "running", 0, 2),
        (None, ("running", 1), "running", 0, 2),
    }),
    "an end and a reclaim": (True, finish, reclaim, {
        (("succeeded", 1), STALE, "succeeded", 0, 3),
        (STALE, ("queued", 1), "queued", 0, 3),
    }),
    "a sign of life and a reclaim": (True, heartbeat, reclaim, {
        (1, STALE, "running", 1, 2),
        (STALE, ("queued", 1), "queued", 0, 3),
    }),
    "a cancel and a retry": (True, cancel, retry, {
        (("running", 1), ("cancelled", 1), "cancelled", 0, 4),
        (("cancelled", 1), ("queued", 1), "cancelled", 0, 4),
    }),
    "two submissions of one key": (False, submit, submit, {
        ("id-000003", "id-000003", "queued", 0, 2),
        ("id-000004", "id-000004", "queued", 0, 2),
    }),
}  # fmt: skip


def scenario(name: str, build: Callable[[], Any]) -> Scenario[Shared]:
    is_running, first, second, outcomes = PAIRS[name]

    def setup() -> Shared:
        store = build()
        shared = Shared(store, store.submit(NewJob("build"), now=NOW).id)
        if is_running:
            store.claim(ANN, ["build"], now=NOW)
        return shared

    return Scenario(
        name=name,
        setup=setup,
        workers=[lambda shared: shared.note(0, first), lambda shared: shared.note(1, second)],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in outcomes,
        reachable=frozenset(outcomes),
    )


def in_memory() -> InMemoryJobStore:
    return InMemoryJobStore(CountingIdentifiers("id"))


@pytest.mark.parametrize("name", PAIRS)
def test_of_two_moves_at_once_each_sees_the_other_whole_or_not_at_all(name: str) -> None:
    assert_holds(scenario(name, in_memory), effort=40)


@pytest.mark.parametrize("naive", [NaiveJobStore, LockedStepsJobStore])
@pytest.mark.parametrize("name", PAIRS)
def test_catches_stores_that_check_before_they_write(name: str, naive: Callable[[], Any]) -> None:
    assert_caught(scenario(name, naive), effort=120)


def test_catches_a_select_then_update_that_claims_a_job_twice(tmp_path: Path) -> None:
    """`tests/contracts/test_job_store.py` requires this of every store, and this one fails it."""
    both_looked = threading.Barrier(2)
    got: list[tuple[str, int]] = []
    with open_database(ready_database(tmp_path / "jobs.db")) as database:
        store = SelectThenUpdateJobStore(database, lambda: both_looked.wait(30))
        store.submit(NewJob("build"), now=NOW)

        def work(number: int) -> None:
            job = store.claim((ANN, BOB)[number], ["build"], now=NOW)
            assert job is not None
            got.append((job.id, job.fence))

        hammer(work, threads=2)
    assert got[0] == got[1]
