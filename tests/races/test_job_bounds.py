"""With concurrent claims, no more jobs of a kind run than their limit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.ports import JobStore
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_job_store import CountThenClaimJobStore
from tests.races.one_connection import content_of, in_memory_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS = [WorkerIdentity(name, "here", pid, 1) for pid, name in enumerate(("ann", "bob"), start=1)]


@dataclass
class Shared:
    """Two queued jobs of a kind of which one may run, and the claim of each worker."""

    store: type[SqlJobStore]
    got: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database = in_memory_database(_beginning(self.store))
        self.jobs = self.store(self.database, CountingIdentifiers("new"))

    def claim(self, who: int) -> None:
        self.got[who] = self.jobs.claim(WORKERS[who], ["tree"], now=NOW) is not None

    def outcome(self) -> Hashable:
        running = len(self.jobs.list(states=[JobState.RUNNING]))
        self.database.close()
        return (self.got[0], self.got[1], running)


@cache
def _beginning(store: type[SqlJobStore]) -> bytes:
    with in_memory_database() as database:
        jobs = store(database, CountingIdentifiers("old"))
        for _ in range(2):
            jobs.submit(NewJob("tree", at_most=1), now=NOW)
        return content_of(database)


def scenario(store: type[SqlJobStore]) -> Scenario[Shared]:
    outcomes: set[Hashable] = {(True, False, 1), (False, True, 1)}
    return Scenario(
        name="two claims of a kind with one place",
        setup=lambda: Shared(store),
        workers=[lambda shared: shared.claim(0), lambda shared: shared.claim(1)],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in outcomes,
        reachable=frozenset(outcomes),
    )


def test_of_two_that_claim_the_last_place_one_gets_it() -> None:
    assert_holds(scenario(SqlJobStore), effort=40)


def test_catches_a_store_that_counts_before_it_claims() -> None:
    assert_caught(scenario(CountThenClaimJobStore), effort=120)


ACTS = st.tuples(
    st.sampled_from(["submit", "submit", "submit", "claim", "claim", "claim", "claim", "end"]),
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.none() | st.integers(1, 3),
)


@given(acts=st.lists(ACTS, min_size=10, max_size=40))
@settings(max_examples=60)
def test_the_next_job_matches_a_simple_search_for_any_queue(
    acts: list[tuple[str, str, int, int | None]],
) -> None:
    """Every claim of the database equals a search through all jobs, for any mixture of limits and kinds."""
    with in_memory_database() as database:
        stores: list[JobStore] = [
            SqlJobStore(database, CountingIdentifiers("id")),
            InMemoryJobStore(CountingIdentifiers("id")),
        ]
        for act in acts:
            answers = [_done(store, *act) for store in stores]
            assert answers[0] == answers[1]


def _done(store: JobStore, act: str, kind: str, number: int, at_most: int | None) -> Hashable:
    if act == "submit":
        return store.submit(NewJob(kind, priority=number, at_most=at_most), now=NOW).id
    if act == "claim":
        kinds = {"a", "b", "c"} - ({kind} if number else set())
        job = store.claim(WORKERS[0], kinds, now=NOW)
        return None if job is None else (job.id, job.fence)
    running = store.list(states=[JobState.RUNNING])
    if not running:
        return None
    job = running[number % len(running)]
    state = JobState.QUEUED if at_most == 1 else JobState.SUCCEEDED
    return store.finish(job.id, job.fence, AttemptOutcome(state), now=NOW).state
