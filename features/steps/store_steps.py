"""Steps about the store."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from behave import given, then, when

from cleveragents.core.errors import DatabaseUnusable, StaleFence
from cleveragents.core.identifiers import UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import Database, open_database
from tests.contracts.databases import changeset_ids, start_child

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def worker(name: str) -> WorkerIdentity:
    return WorkerIdentity(name, "here", 1, 1)


def place(context: Any) -> Path:
    """A path of the scenario's own, gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="store-"))
    context.add_cleanup(shutil.rmtree, home, ignore_errors=True)
    context.store_path = home / "store.db"
    context.store_url = f"sqlite:///{context.store_path}"
    return context.store_path


def opened(context: Any) -> Database:
    database = open_database(context.store_url)
    context.add_cleanup(database.close)
    return database


@given("the store is a fresh database")
def fresh(context: Any) -> None:
    place(context)
    open_database(context.store_url).close()


@when("{processes:d} store processes write {rows:d} rows each at once")
def write_at_once(context: Any, processes: int, rows: int) -> None:
    children = [start_child("keep_many", context.store_url, f"p{n}:{rows}") for n in range(processes)]
    for child in children:
        child.wait_ready()
    for child in children:
        child.go()
    context.store_told = [line for child in children for line in child.wait_end().splitlines()]


@then("the store holds all {count:d} rows")
def holds_all(context: Any, count: int) -> None:
    assert len(context.store_told) == count
    assert changeset_ids(opened(context)) == sorted(context.store_told)


@when("a store process is killed right after it was told that its row is kept")
def killed(context: Any) -> None:
    child = start_child("crash", context.store_url, "store.write.before_commit")
    child.wait_ready()
    child.go()
    context.store_told = child.wait_end(-signal.SIGKILL).splitlines()


@then("the store holds that row")
def holds_row(context: Any) -> None:
    assert changeset_ids(opened(context)) == context.store_told == ["first"]


@given('the store has a job that worker "{name}" has claimed')
def claimed_job(context: Any, name: str) -> None:
    context.store = SqlJobStore(opened(context), UlidSource())
    context.store.submit(NewJob("build"), now=NOW)
    context.store_claims = {name: context.store.claim(worker(name), ["build"], now=NOW)}


@when('the store takes the job back because "{name}" is silent')
def take_back(context: Any, name: str) -> None:
    job = context.store_claims[name]
    context.store.reclaim(job.id, job.fence, job.beat, error=f"{name} is silent", now=NOW)


@when('worker "{name}" claims the store\'s job')
def claim_again(context: Any, name: str) -> None:
    context.store_claims[name] = context.store.claim(worker(name), ["build"], now=NOW)


@then('the store refuses what "{name}" writes under her old fence')
def refuses(context: Any, name: str) -> None:
    job = context.store_claims[name]
    before = context.store.get(job.id)
    assert context.store.heartbeats({job.id: job.fence}, now=NOW) == {}
    said = ""
    try:
        context.store.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    except StaleFence as error:
        said = str(error)
    assert "another worker owns the job" in said
    assert context.store.get(job.id) == before


@then('the store accepts the end of the job from "{name}"')
def accepts(context: Any, name: str) -> None:
    job = context.store_claims[name]
    done = context.store.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
    assert (done.state, done.attempt, done.fence) == (JobState.SUCCEEDED, 2, 2)


@given("the store's path is {what}")
def odd_path(context: Any, what: str) -> None:
    path = place(context)
    if what == "a text file":
        path.write_text("hello\n")
    elif what == "a directory":
        path.mkdir()
    else:
        if what == "a database of a newer kind":
            open_database(context.store_url).close()
        statement = (
            "UPDATE alembic_version SET version_num = '9999'" if path.exists() else "CREATE TABLE theirs (x)"
        )
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)


@when("the store is opened")
def open_it(context: Any) -> None:
    try:
        opened(context)
    except DatabaseUnusable as error:
        context.store_said = str(error)


@then('the store says "{words}"')
def says(context: Any, words: str) -> None:
    assert words in context.store_said
    assert str(context.store_path) in context.store_said
