"""Lists of jobs, on each database: of one plan and of no other, from either end."""

from __future__ import annotations

from datetime import UTC, datetime

from cleveragents.api.jobs import job_ids_of, listed_jobs
from cleveragents.jobs.model.job import JobState, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database
from cleveragents.testing.clock import CountingIdentifiers

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = (
    "P1@1",
    "P1@2",
    "apply:P1@3#0",
    "undo:P1@4#0",
    "P11@1",
    "p1@1",
    "apply:P11@1#0",
    "xP1@1",
    "P1A@1",
    None,
)


def test_jobs_of_a_plan_are_those_with_its_keys_whatever_others_are_called(database: Database) -> None:
    store = SqlJobStore(database, CountingIdentifiers("id"))
    made = [store.submit(NewJob("demo", {}, key=key), now=NOW).id for key in KEYS]
    assert sorted(job_ids_of(database, "P1")) == made[:4]
    assert [job.id for job in listed_jobs(database, plan_id="P1", limit=9)] == made[:4]
    newest = listed_jobs(database, plan_id="P1", limit=2, newest_first=True)
    assert [job.id for job in newest] == [made[3], made[2]]
    rest = listed_jobs(database, plan_id="P1", limit=9, newest_first=True, after=newest[-1].id)
    assert [job.id for job in rest] == [made[1], made[0]]
    assert listed_jobs(database, plan_id="P1", states=(JobState.RUNNING,), limit=9) == []
    assert [job.id for job in listed_jobs(database, limit=2, after=made[-3])] == made[-2:]
