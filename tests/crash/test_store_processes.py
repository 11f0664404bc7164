"""G12: many processes write concurrently; nothing acknowledged is lost, and no lock error shows, even with
kill -9.
"""

from __future__ import annotations

import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cleveragents.storage.database import open_database
from tests.contracts.databases import Child, changeset_ids, start_child
from tests.postgres import PostgresServer, postgres_server
from tests.ready_database import ready_database


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


# More than it can write before the listener kills it.
ENDLESS = 9_999


def run_writers(url: str, *, writes: int, victims: int, kill_after: int) -> dict[str, list[str]]:
    """Run eight processes; the first `victims` are killed at an acknowledgement.
    Return all acknowledgements.
    """
    names = [f"p{n}" for n in range(8)]
    counts = {name: ENDLESS if number < victims else writes for number, name in enumerate(names)}
    children = {name: start_child("keep_many", url, f"{name}:{counts[name]}") for name in names}
    for child in children.values():
        child.wait_ready()
    told: dict[str, list[str]] = {name: [] for name in names}

    def follow(name: str, child: Child, kill: bool) -> None:
        while line := child.line():
            told[name].append(line)
            if kill and len(told[name]) == kill_after:
                child.process.kill()
        child.wait_end(-signal.SIGKILL if kill else 0)

    followers = [
        threading.Thread(target=follow, args=(name, child, number < victims))
        for number, (name, child) in enumerate(children.items())
    ]
    for child in children.values():
        child.go()
    for thread in followers:
        thread.start()
    for thread in followers:
        thread.join(240)
    assert not any(thread.is_alive() for thread in followers)
    assert all(child.process.returncode is not None for child in children.values())
    return told


def check(url: str, told: dict[str, list[str]], *, writes: int, victims: int) -> None:
    """Check that survivors wrote everything, and victims everything acknowledged and at most one more."""
    with open_database(url) as database:
        kept = changeset_ids(database)
    assert len(set(kept)) == len(kept)
    for number, (name, lines) in enumerate(told.items()):
        rows = [row for row in kept if row.startswith(f"{name}-")]
        assert rows[: len(lines)] == lines
        if number < victims:
            assert len(lines) <= len(rows) <= len(lines) + 1
            assert len(lines) < ENDLESS
        else:
            assert len(rows) == len(lines) == writes


@pytest.mark.parametrize(("victims", "writes"), [(0, 1000), (4, 400)])
def test_eight_processes_with_up_to_a_thousand_writes_each_lose_nothing_on_sqlite(
    tmp_path: Path, victims: int, writes: int
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    told = run_writers(url, writes=writes, victims=victims, kill_after=100)
    check(url, told, writes=writes, victims=victims)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.postgres
def test_eight_processes_lose_nothing_on_postgresql_when_half_are_killed(postgres: PostgresServer) -> None:
    url = postgres.url()
    told = run_writers(url, writes=200, victims=4, kill_after=50)
    check(url, told, writes=200, victims=4)
    postgres.drop(url)


@pytest.mark.parametrize(
    ("point", "kept"),
    [("store.write.before_commit", ["first"]), ("store.write.after_commit", ["first", "second"])],
)
@pytest.mark.parametrize("product", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_a_kill_at_the_commit_leaves_a_complete_write_or_none(
    tmp_path: Path, postgres: PostgresServer, product: str, point: str, kept: list[str]
) -> None:
    url = ready_database(tmp_path / "store.db") if product == "sqlite" else postgres.ready_url()
    child = start_child("crash", url, point)
    child.wait_ready()
    child.go()
    assert child.wait_end(-signal.SIGKILL).splitlines() == ["first"]
    with open_database(url) as database:
        assert changeset_ids(database) == kept
