"""With concurrent claims in several processes, no shared limit is exceeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.core.errors import QueueFull
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, Lane, NewJob
from cleveragents.jobs.ports import JobClaim, JobStore
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.testing.clock import CountingIdentifiers
from cleveragents.testing.job_store import InMemoryJobStore
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_job_store import CountInEachProcessJobStore, CountLanesThenClaimJobStore
from tests.races.one_connection import content_of, in_memory_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS = [WorkerIdentity(name, "here", pid, 1) for pid, name in enumerate(("ann", "bob"), start=1)]
DONE = AttemptOutcome(JobState.SUCCEEDED)
LANES = (Lane("project:a", 1), Lane("provider", 5))


@dataclass
class Shared:
    """Two queued jobs with a shared limit of one, and two processes, each with its own store."""

    store: type[SqlJobStore]
    got: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database = in_memory_database(_beginning(self.store))
        self.jobs = [self.store(self.database, CountingIdentifiers(f"new{who}-")) for who in range(2)]

    def claim(self, who: int) -> None:
        job = self.jobs[who].claim(WORKERS[who], ["plan"], now=NOW, queues=["plans"])
        self.got[who] = job is not None

    def outcome(self) -> Hashable:
        running = len(self.jobs[0].list(states=[JobState.RUNNING]))
        self.database.close()
        return (self.got[0], self.got[1], running)


@cache
def _beginning(store: type[SqlJobStore]) -> bytes:
    with in_memory_database() as database:
        jobs = store(database, CountingIdentifiers("old"))
        for number in range(2):
            jobs.submit(NewJob(f"plan:{number}", queue="plans", lanes=LANES), now=NOW)
        return content_of(database)


def scenario(store: type[SqlJobStore]) -> Scenario[Shared]:
    outcomes: set[Hashable] = {(True, False, 1), (False, True, 1)}
    return Scenario(
        name="two processes claim under a shared limit of one",
        setup=lambda: Shared(store),
        workers=[lambda shared: shared.claim(0), lambda shared: shared.claim(1)],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in outcomes,
        reachable=frozenset(outcomes),
    )


def test_one_of_two_claims_gets_the_last_place_of_a_shared_limit() -> None:
    assert_holds(scenario(SqlJobStore), effort=12)


def test_catches_a_store_that_counts_shared_limits_before_it_claims() -> None:
    assert_caught(scenario(CountLanesThenClaimJobStore), effort=120)


def test_catches_a_store_that_counts_only_its_own_process() -> None:
    assert_caught(scenario(CountInEachProcessJobStore), effort=120)


ACTS = st.tuples(
    st.sampled_from(["submit", "submit", "submit", "claim", "claim", "claim", "end", "turn"]),
    st.sampled_from(["a", "a:1", "b:1", "b"]),
    st.integers(0, 2),
    st.none() | st.integers(1, 3),
    st.sampled_from(["", "plans", "plans", "others"]),
    st.dictionaries(st.sampled_from("xyz"), st.integers(1, 2), max_size=2),
)


@given(acts=st.lists(ACTS, min_size=10, max_size=40))
@settings(max_examples=60)
def test_the_next_job_matches_a_simple_search_and_no_shared_limit_is_exceeded(
    acts: list[tuple[str, str, int, int | None, str, dict[str, int]]],
) -> None:
    """Every claim of the database equals a search through all jobs.

    This holds for any mixture of kinds, queues, limits and lanes. A claim never takes a place that does not
    exist.
    """
    with in_memory_database() as database:
        stores: list[JobStore] = [
            SqlJobStore(database, CountingIdentifiers("id")),
            InMemoryJobStore(CountingIdentifiers("id")),
        ]
        for act in acts:
            answers = [_done(store, *act) for store in stores]
            assert answers[0] == answers[1]


def _done(
    store: JobStore,
    act: str,
    kind: str,
    number: int,
    at_most: int | None,
    queue: str,
    lanes: dict[str, int],
) -> Hashable:
    if act == "submit":
        wanted = tuple(Lane(*lane) for lane in lanes.items())
        new = NewJob(kind, priority=number, at_most=at_most, queue=queue, lanes=wanted)
        try:
            return store.submit(new, now=NOW, queue_bound=at_most and at_most + 1).id
        except QueueFull as full:
            return str(full)
    if act == "claim":
        before = Counter(lane.name for job in store.list(states=[JobState.RUNNING]) for lane in job.lanes)
        job = store.claim(WORKERS[0], {"a", kind}, now=NOW, queues=[queue] if queue else [])
        assert job is None or all(before[lane.name] < lane.at_most for lane in job.lanes)
        return None if job is None else (job.id, job.fence)
    running = store.list(states=[JobState.RUNNING])
    if not running:
        return None
    job = running[number % len(running)]
    if act == "turn":
        claim = JobClaim(WORKERS[0], frozenset({"a", kind}), (queue,) if queue else ())
        following = store.finish_and_claim(job.id, job.fence, DONE, claim, now=NOW).following
        return None if following is None else (following.id, following.fence)
    state = JobState.QUEUED if at_most == 1 else JobState.SUCCEEDED
    return store.finish(job.id, job.fence, AttemptOutcome(state), now=NOW).state
