"""What a `ProcessSupervisor` promises, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from cleveragents.core.clock import SystemClock
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.jobs.process.supervisor import (
    JobProcess,
    JobProgram,
    PsutilProcessSupervisor,
    Raised,
    Returned,
)
from cleveragents.processes.process_tree import descendants
from tests.crash.programs.job_handlers import WAYS_OUT, escape
from tests.processes import PidPipe, lives, wait_gone

HANDLERS = "tests.crash.programs.job_handlers"
WAITED = "(something that the handler waited for was cancelled)"
Launch = Callable[..., JobProcess]


@pytest.fixture
def supervisor() -> PsutilProcessSupervisor:
    return PsutilProcessSupervisor()


@pytest.fixture
def marker(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}-{os.getpid()}:1"


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[PidPipe]:
    pipe = PidPipe(tmp_path)
    yield pipe
    pipe.close()


@pytest.fixture
def launch(supervisor: PsutilProcessSupervisor, marker: str) -> Iterator[Launch]:
    launched: list[JobProcess] = []

    def start(function: str, *, lease: float = 60.0, **payload: str) -> JobProcess:
        now = datetime.now(UTC)
        job = Job("job", "kind", payload, JobState.RUNNING, 0, 1, 3, 1, 0, now, now, now)
        program = JobProgram(job, f"{HANDLERS}:{function}", SystemClock().monotonic() + lease)
        process = supervisor.launch(marker, program)
        launched.append(process)
        return process

    yield start
    for process in launched:
        process.close()


OUTLIVES_ITS_FIRST_THREAD = """
import ctypes, os, platform, signal, sys, threading, time
first = threading.get_native_id()

def go_on():
    while open(f"/proc/self/task/{first}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)
    with open(sys.argv[1], "w") as pipe:
        pipe.write(f"{os.getpid()}\\n")
    time.sleep(1000)

signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)  # exit, of this thread alone
"""


def report(process: JobProcess) -> Returned | Raised:
    for _ in range(60):
        verdict = process.wait(1.0)
        if verdict is not None:
            return verdict
    raise AssertionError("no report")


def test_a_process_knows_itself_and_sees_who_is_gone(supervisor: PsutilProcessSupervisor) -> None:
    me = supervisor.identity("me")
    assert me.id == "me"
    assert supervisor.is_alive(me) is True
    assert supervisor.is_alive(replace(me, started_ticks=me.started_ticks + 1)) is False
    assert supervisor.is_alive(replace(me, host="elsewhere")) is None
    program = (
        "from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor as S;"
        "i = S().identity('child'); print(i.host, i.pid, i.started_ticks, flush=True); input()"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True)
    assert child.stdout is not None
    host, pid, ticks = child.stdout.readline().split()
    identity = replace(me, host=host, pid=int(pid), started_ticks=int(ticks))
    assert supervisor.is_alive(identity) is True
    child.kill()
    # Not reaped yet: a zombie runs nothing any more.
    assert wait_gone([child.pid]) == []
    assert supervisor.is_alive(identity) is False
    child.communicate()
    assert supervisor.is_alive(identity) is False


@pytest.mark.parametrize("way", [way for way in WAYS_OUT if "empty" not in way])
def test_marked_processes_are_found_and_ended_however_they_detach(
    supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe, way: str
) -> None:
    child = escape(way, str(pids.path), supervisor.environment(marker))
    [stubborn] = pids.read(1)
    assert stubborn in supervisor.alive(marker)
    assert supervisor.alive(marker + "0") == []
    ended = supervisor.end(marker, grace_seconds=0.1)
    assert stubborn in ended
    assert not lives(stubborn)
    assert supervisor.alive(marker) == []
    assert supervisor.end(marker, grace_seconds=0.1) == []
    child.wait()


def test_marked_processes_are_found_where_there_is_no_proc(
    supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "LINUX", False)
    child = escape("setsid", str(pids.path), supervisor.environment(marker))
    [stubborn] = pids.read(1)
    assert stubborn in supervisor.alive(marker)
    supervisor.end(marker, grace_seconds=0.1)
    assert supervisor.alive(marker) == []
    child.wait()


def test_one_that_does_nothing_but_exec_is_found_by_every_look_and_ended(
    supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe, tmp_path: Path
) -> None:
    script = tmp_path / "again"
    script.write_text('#!/bin/sh\nexec "$0"\n')
    script.chmod(0o755)
    start = f"echo $$ >{pids.path}; exec {script}"
    child = subprocess.Popen(["sh", "-c", start], env={**os.environ, **supervisor.environment(marker)})
    [restless] = pids.read(1)
    assert all(supervisor.alive(marker) == [restless] for _ in range(20))
    assert supervisor.end(marker, grace_seconds=0) == [restless]
    assert supervisor.alive(marker) == []
    child.wait()


def test_one_whose_first_thread_has_ended_is_found_and_ended(
    supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe
) -> None:
    program = [sys.executable, "-c", OUTLIVES_ITS_FIRST_THREAD, str(pids.path)]
    child = subprocess.Popen(program, env={**os.environ, **supervisor.environment(marker)})
    assert pids.read(1) == [child.pid]
    assert child.pid in descendants(os.getpid())
    assert supervisor.alive(marker) == [child.pid]
    assert supervisor.end(marker, grace_seconds=0.1) == [child.pid]
    assert child.wait() == -signal.SIGKILL
    assert supervisor.alive(marker) == []


def test_a_process_that_listens_ends_by_itself(
    supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    script = f"trap 'echo polite >{note}; exit 0' TERM; echo $$ >{pids.path}; while :; do sleep 0.05; done"
    child = subprocess.Popen(["sh", "-c", script], env={**os.environ, **supervisor.environment(marker)})
    pids.read(1)
    supervisor.end(marker, grace_seconds=20)
    assert child.wait() == 0
    assert note.read_text() == "polite\n"


@pytest.mark.parametrize(
    "script", ["while :; do sleep 1000 & wait; done", "f() { sleep 0.01; f & }; f; wait"]
)
def test_a_tree_that_grows_while_it_is_ended_is_ended_too(
    supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe, script: str
) -> None:
    script = f"trap '' TERM; echo $$ >{pids.path}; {script}"
    child = subprocess.Popen(["sh", "-c", script], env={**os.environ, **supervisor.environment(marker)})
    pids.read(1)
    supervisor.end(marker, grace_seconds=0.1)
    assert supervisor.alive(marker) == []
    child.wait()


def test_a_handler_reports_from_its_process(launch: Launch, marker: str) -> None:
    told = {"attempt": 1, "fence": 1, "kind": "kind", "marker": [marker]}
    assert report(launch("answer", how="return", much="x" * 1_000_000)) == Returned(told)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("raise", Raised("RuntimeError: it went wrong")),
        ("refuse", Raised("a test: made up", permanent=True)),
        ("cancelled", Raised("Cancelled: cancelled: nobody asked for it", cancelled=True)),
        ("unusual", Raised("_Unusual: as greenlets do")),
        ("asyncio", Raised(f"CancelledError {WAITED}")),
        ("future", Raised(f"CancelledError {WAITED}")),
        ("exit", Raised("SystemExit: 3")),
        ("die", Raised("the process was ended by signal 9 without a result")),
        (
            "not json",
            Raised("result of a kind job: object is not a JSON value", permanent=True),
        ),
        ("too much", Raised("the result is larger than 4194304 bytes", permanent=True)),
        ("much", Returned("x" * 1024 * 1024)),
        ("linger", Returned("lingers")),
    ],
)
def test_reports_every_outcome_of_a_handler(launch: Launch, how: str, expected: object) -> None:
    verdict = report(launch("answer", how=how))
    if isinstance(verdict, Raised):
        verdict = replace(verdict, problem=verdict.problem.partition(";")[0])
    assert verdict == expected


def test_modules_of_the_directory_where_the_worker_stands_are_not_ours(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is started inside repositories, and anybody may have put a `json.py` there."""
    for name in ("json", "psutil", "cleveragents"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    assert isinstance(report(launch("answer", how="linger")), Returned)


def test_an_unknown_handler_is_refused_for_good(launch: Launch) -> None:
    verdict = report(launch("nothing_of_that_name"))
    assert isinstance(verdict, Raised)
    assert verdict.permanent
    assert "cannot be imported" in verdict.problem


def test_neither_the_report_nor_stderr_of_a_process_holds_a_secret(
    launch: Launch, capfd: pytest.CaptureFixture[str]
) -> None:
    verdict = report(launch("answer", how="leak", password="hunter2"))
    problem = "ConnectionError: cannot reach postgresql://bob:***@db with PGPASSWORD=***"
    assert verdict == Raised(problem)
    written = capfd.readouterr().err
    assert "hunter2" not in written
    told = json.loads(written[written.index("{") :])
    assert (told["event"], told["job_id"], told["problem"]) == ("job.handler_raised", "job", problem)
    assert "in _leak" in told["exception"]


def test_a_librarys_cancel_is_the_jobs_once_the_job_is_cancelled(launch: Launch, pids: PidPipe) -> None:
    process = launch("wait_for_cancel_in_a_library", fifo=str(pids.path))
    pids.read(1)
    process.cancel("enough")
    assert report(process) == Raised("CancelledError", cancelled=True)


def test_a_cancel_reaches_the_handlers_token(launch: Launch, pids: PidPipe) -> None:
    process = launch("wait_for_cancel", fifo=str(pids.path))
    pids.read(1)
    process.cancel("enough")
    assert report(process) == Raised("Cancelled: cancelled: enough", cancelled=True)


def test_ends_remaining_processes_before_the_report(launch: Launch, pids: PidPipe) -> None:
    process = launch("leave_processes_behind", fifo=str(pids.path))
    verdict = report(process)
    assert verdict == Returned(len(WAYS_OUT))
    # They may have been ended before they told their pids; those that did are gone.
    assert no_children_left()


@pytest.mark.parametrize("cause", ["lease over", "worker gone", "ended by the worker"])
def test_a_deaf_tree_ends_with_its_lease_its_worker_or_by_force(
    launch: Launch, supervisor: PsutilProcessSupervisor, marker: str, pids: PidPipe, cause: str
) -> None:
    process = launch("grow_a_tree_and_hang", fifo=str(pids.path))
    tree = pids.read(len(WAYS_OUT) + 1)
    assert all(lives(pid) for pid in tree)
    # By marker and, below the guard, by descent: also the one with the empty environment.
    everyone = supervisor.alive(marker)
    assert set(tree) < set(everyone)
    match cause:
        case "lease over":
            # As it would be if the last renewal had been a lease ago.
            process._control._write({"lease_until": SystemClock().monotonic()})
        case "worker gone":
            process.close()
        case "ended by the worker":
            supervisor.end(marker, grace_seconds=0.1)
    assert wait_gone([*everyone]) == []
    assert supervisor.alive(marker) == []


def test_a_renewed_lease_keeps_a_handler_going(launch: Launch, pids: PidPipe) -> None:
    process = launch("wait_for_cancel", lease=60.0, fifo=str(pids.path))
    [handler] = pids.read(1)
    process.renew(SystemClock().monotonic() + 90)
    process.renew(SystemClock().monotonic())
    assert process.wait(0.2) is None
    assert lives(handler)
    process.cancel("over")
    report(process)
    process.close()
    process.renew(0.0)
    process.cancel("nobody listens")


def no_children_left() -> bool:
    import psutil

    below = [process for process in psutil.Process().children(recursive=True) if lives(process.pid)]
    return [process for process in below if "sleep" in process.name()] == []
