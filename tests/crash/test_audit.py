"""kill -9 of processes that write the audit log: acknowledged events are there, and the log verifies."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.core.event import AuditRecord
from cleveragents.events.audit import DurableAuditLog
from cleveragents.storage.database import Database, open_database
from tests.fork_server import Forked
from tests.ready_database import ready_database

PROGRAM = [sys.executable, "-m", "tests.crash.programs.audit_writer"]
POINTS = [
    "audit.sequence.before_commit",
    "audit.sequence.after_commit",
    "audit.head.before_rename",
    "audit.head.after_rename",
]


class Writers:
    """Processes that write one log."""

    def __init__(self, directory: Path) -> None:
        self.url = ready_database(directory / "store.db")
        self.data = directory / "data"
        self.database: Database = open_database(self.url)
        self.log = DurableAuditLog(self.database, self.data)
        self.running: list[subprocess.Popen[str]] = []

    def start(self, name: str, count: int, *fault: str) -> subprocess.Popen[str]:
        command = [*PROGRAM, self.url, str(self.data), name, str(count), *fault]
        process = Forked(command, stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> list[str]:
        """Wait for the end of a process, and return its last acknowledgements."""
        acknowledged = process.communicate(timeout=240)[0].split()
        self.running.remove(process)
        return acknowledged

    def everything(self) -> list[AuditRecord]:
        """Return the verified log."""
        report = self.log.verify()
        assert report.ok, report
        assert report.rows == report.attested
        return self.log.read(limit=1_000_000)

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.communicate()
        self.database.close()


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    writers = Writers(tmp_path)
    yield writers
    writers.close()


def assert_in_order(records: list[AuditRecord], names: list[str]) -> None:
    assert [record.position for record in records] == list(range(1, len(records) + 1))
    for name in names:
        own = [record.event.event_id for record in records if record.event.subject == name]
        assert own == [f"{name}-{n:05}" for n in range(len(own))], "no gap and no change of order"


@pytest.mark.parametrize("nth", ["1", "4"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_durable_step_loses_nothing_acknowledged(writers: Writers, point: str, nth: str) -> None:
    victim = writers.start("a", 40, point, nth)
    acknowledged = writers.end(victim)
    assert victim.returncode == -signal.SIGKILL
    kept = [record.event.event_id for record in writers.everything()]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(acknowledged) < 40
    successor = writers.start("b", 4)
    assert len(writers.end(successor)) == 4
    assert_in_order(writers.everything(), ["a", "b"])


def test_concurrent_writers_create_one_gapless_order(writers: Writers) -> None:
    processes = {name: writers.start(name, 100) for name in "abcd"}
    for name, process in processes.items():
        assert writers.end(process) == [f"{name}-{n:05}" for n in range(100)]
    records = writers.everything()
    assert len(records) == 400
    assert_in_order(records, list("abcd"))


def test_processes_killed_at_random_lose_nothing_acknowledged(writers: Writers) -> None:
    chance = random.Random(7)
    survivors = {name: writers.start(name, 200) for name in "ab"}
    victims = {name: writers.start(name, 100_000) for name in "cdef"}
    acknowledged: dict[str, list[str]] = {}
    for name, victim in victims.items():
        assert victim.stdout is not None
        acknowledged[name] = [victim.stdout.readline().strip() for _ in range(chance.randrange(1, 60))]
        victim.kill()
        acknowledged[name] += [line for line in writers.end(victim) if len(line) == 7]
    for name, survivor in survivors.items():
        acknowledged[name] = writers.end(survivor)
        assert survivor.returncode == 0
        assert len(acknowledged[name]) == 200
    records = writers.everything()
    assert_in_order(records, list("abcdef"))
    kept = {record.event.event_id for record in records}
    for name, ids in acknowledged.items():
        assert set(ids) <= kept, f"acknowledged to {name} and lost"
