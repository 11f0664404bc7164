"""Cgroups of commands: when they end, and commands without cgroups."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes import cgroup, guard_process
from cleveragents.processes.cgroup import (
    end_cgroup,
    end_stale_cgroups,
    make_cgroup,
    own_cgroup,
)
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.passthrough import make_directory
from cleveragents.processes.ports import Command
from cleveragents.processes.stdio_process import ProgramEnvironment, StdioProcess, stdio_program
from tests.command_trees import wait_none_alive

HERE = own_cgroup()
needs_cgroup = pytest.mark.skipif(
    HERE is None or not os.access(HERE, os.W_OK), reason="needs a cgroup that this user may divide"
)
_tokens = itertools.count(os.getpid() * 10_000 + 8_001)
ESCAPE = (
    "mkfifo up; setsid env -i /bin/sh -c 'echo > up; sleep 1000.{token}; :' <&- >&- 2>&- &"
    " read up < up; kill -9 $PPID"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def made(attempt: str, *inside: subprocess.Popen[bytes]) -> Path:
    found = make_cgroup(attempt)
    assert found is not None
    for process in inside:
        (found / "cgroup.procs").write_text(str(process.pid))
    return found


@needs_cgroup
def test_the_end_of_an_attempt_ends_its_cgroups_and_no_others(sleeper: subprocess.Popen[bytes]) -> None:
    mine, other = made("job:1", sleeper), made("job:2")
    PsutilProcessSupervisor().end("job:1", grace_seconds=0)
    assert sleeper.wait(60) == -9
    assert not mine.exists()
    assert other.exists()
    assert end_cgroup(other)


@needs_cgroup
def test_cgroups_of_living_processes_are_not_stale() -> None:
    mine = made("job:1")
    end_stale_cgroups()
    assert mine.exists()
    assert end_cgroup(mine)


@needs_cgroup
def test_nested_cgroups_are_removed_too(sleeper: subprocess.Popen[bytes]) -> None:
    mine = made("job:1")
    (mine / "inner" / "most").mkdir(parents=True)
    (mine / "inner" / "most" / "cgroup.procs").write_text(str(sleeper.pid))
    assert end_cgroup(mine)
    assert sleeper.wait(60) == -9
    assert end_cgroup(mine), "twice is harmless"


@needs_cgroup
def test_a_kernel_without_cgroup_kill_ends_processes_one_by_one(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = made("job:1", sleeper)

    def refuse(file: Path, text: str) -> None:
        raise FileNotFoundError(file)

    monkeypatch.setattr(cgroup, "_write", refuse)
    assert end_cgroup(mine)
    assert sleeper.wait(60) == -9


@needs_cgroup
def test_a_talking_program_leaves_no_process_behind(tmp_path: Path) -> None:
    token = next(_tokens)
    command = Command(("/bin/sh", "-c", ESCAPE.format(token=token)), tmp_path, tmp_path)
    place = ProgramEnvironment(root=tmp_path, directory=tmp_path, isolation="off")

    async def talk() -> None:
        process = StdioProcess(stdio_program(command, place, make_directory(), None))
        async with asyncio.timeout(60):
            await process.over.wait()
        await process.end()

    asyncio.run(talk())
    assert wait_none_alive(token, timeout=60) == []


def test_a_command_runs_without_a_cgroup_if_none_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = Command(("/bin/sh", "-c", "sleep 1000 & echo said"), tmp_path, tmp_path)
    nowhere = str(tmp_path / "no-cgroup")
    for make in (lambda attempt: None, lambda attempt: Path(nowhere)):
        monkeypatch.setattr(guard_process, "make_cgroup", make)
        result = GuardedCommandRunner(isolation="off").run(command, CancellationToken())
        assert (result.exit_code, result.output) == (0, "said\n")


def test_a_machine_without_cgroup_v2_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_root", lambda: None)
    assert own_cgroup() is None
    assert make_cgroup("job:1") is None
    end_stale_cgroups()
