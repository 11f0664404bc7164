"""Plans in the background: they outlive the command that made them, are followed and stopped from afar."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest

from cleveragents.plans.background_logs import is_in_background, log_of, remove_log
from tests.cli_bench import COMMAND, REPLACE, Agents, git
from tests.conditions import wait_until
from tests.fork_server import ran
from tests.processes import lives

pytestmark = pytest.mark.usefixtures("commands_are_forked")
Start = Callable[..., Any]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def start(repository: Path) -> Iterator[Start]:
    """Starts something in the background from a process that ends at once; returns what it printed."""
    pids: list[int] = []

    def started(*arguments: str) -> Any:
        words = [sys.executable, "-m", "cleveragents", *arguments]
        code, out, err = ran(words, cwd=repository, timeout=60)
        assert code == 0, err
        told = json.loads(out)
        pids.extend(row["process"] for row in (told if isinstance(told, list) else [told]))
        return told

    yield started
    for pid in pids:
        gone(pid)


def gone(pid: int) -> None:
    """Returns when the process has ended, and nothing is left of it."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):  # it is ours if this process takes in orphans
            os.waitpid(pid, os.WNOHANG)
        if not lives(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still runs")


def in_background(*arguments: str) -> list[str]:
    """The arguments, with the options where they belong."""
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:place], "--background", "--format", "json", *arguments[place:]]


def test_it_is_applied_after_the_command_returned_and_can_be_followed_to_the_end(
    agents: Agents, start: Start, repository: Path, state: Path
) -> None:
    told = start(*in_background(*REPLACE, "--yes", "--commit", "Spell it"))
    assert told["id"] == told["plan"], "as other runs name it"
    watched = agents("plan", "watch", told["plan"], "--format", "stream-json")
    assert watched.code == 0, watched.err
    *events, record = [json.loads(line) for line in watched.out.splitlines()]
    assert record["state"] == "applied"
    assert "replace" in " ".join(event["text"] for event in events if event["event"] == "tool")
    assert events[-1] == {"event": "say", "plan": told["plan"], "text": "applied"}
    assert git(repository, "log", "-1", "--format=%s") == "Spell it\n"
    gone(told["process"])
    log = Path(told["log"])
    assert log == log_of(state, told["plan"])
    assert "committed as" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    assert not is_in_background(state, told["plan"])
    agents("gc", "--older-than", "0m", "--dry-run")
    assert log.exists()
    collected = agents("gc", "--older-than", "0m")
    assert "logs of 1 plan: removed" in collected.err
    assert not log.exists()


def test_a_log_goes_with_its_plan_but_not_while_it_is_written_to(
    agents: Agents, start: Start, state: Path
) -> None:
    told = start(*in_background(*REPLACE))
    assert agents("plan", "watch", told["plan"]).code == 3
    gone(told["process"])
    log = Path(told["log"])
    with log.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not remove_log(state, told["plan"])
        assert log.exists()
    agents("gc", "--older-than", "0m")
    assert log.exists(), "its result still waits for somebody"
    assert agents("plan", "delete", told["plan"], "--yes").code == 0
    assert not log.exists()


def test_it_has_a_session_of_its_own_and_the_settings_that_were_given_and_is_cancelled_from_afar(
    agents: Agents, start: Start, state: Path
) -> None:
    marker = f"never-{os.getpid()}"
    told = start("--set", "worker.cancel_grace_seconds=3", *in_background(*COMMAND, "sleep", "1000", marker))
    process = psutil.Process(told["process"])
    assert os.getsid(process.pid) == process.pid
    assert "worker.cancel_grace_seconds=3" in process.cmdline()
    assert "CLEVERAGENTS_STATE_DIRECTORY" in process.environ()
    assert is_in_background(state, told["plan"])
    assert agents("plan", "cancel", told["plan"]).code == 0
    gone(process.pid)
    assert subprocess.run(["pgrep", "-f", marker], capture_output=True, check=False).stdout == b""
    assert agents("plan", "watch", told["plan"]).code == 130


def test_watch_does_not_wait_for_a_plan_without_a_worker(agents: Agents, start: Start, state: Path) -> None:
    told = start(*in_background(*COMMAND, "sleep", "1000"))
    process = psutil.Process(told["process"])
    process.kill()
    gone(process.pid)
    quick = ("--set", "worker.lease_seconds=1", "--set", "worker.heartbeat_seconds=0.1")
    watched = agents(*quick, "plan", "watch", told["plan"])
    assert watched.code == 75
    assert "no worker runs the plan at present" in watched.err
    assert f"agents plan resume {told['plan']}" in watched.err
    assert agents("plan", "cancel", told["plan"]).code == 0


def test_an_interrupt_ends_the_watching_and_not_the_plan(
    agents: Agents, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = start(*in_background(*COMMAND, "sleep", "1000"))

    class Interrupting(StringIO):
        def write(self, text: str) -> int:
            if "running" in text:
                os.kill(os.getpid(), signal.SIGINT)
            return super().write(text)

    stderr = Interrupting()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", stderr)
        assert agents("plan", "watch", told["plan"]).code == 130
    assert f"the plan continues; stop it with `agents plan cancel {told['plan']}`" in stderr.getvalue()
    assert psutil.Process(told["process"]).status() != psutil.STATUS_ZOMBIE
    assert agents("plan", "cancel", told["plan"]).code == 0


def test_watch_shows_a_pending_request(agents: Agents, start: Start, repository: Path) -> None:
    told = start(*in_background(*REPLACE))
    watched = agents("plan", "watch", told["plan"])
    assert watched.code == 3
    assert "2 files changed" in watched.err
    assert f"agents plan apply {told['plan']}" in watched.err
    assert git(repository, "status", "--short") == ""


def test_several_goals_run_in_one_process_with_one_log(
    agents: Agents, start: Start, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "model.yaml"
    script.write_text("rules: [{reply: {fault: {status: 400, message: not today}}}]\n")
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{script}")
    file = tmp_path / "goals.txt"
    file.write_text("first\nsecond\n")
    told = start(*in_background("run", "-f", str(file), "--parallel", "2"))
    assert [row["goal"] for row in told] == ["first", "second"]
    assert len({row["process"] for row in told}) == 1
    for row in told:
        watched = agents("plan", "watch", row["plan"])
        assert watched.code == 1
        assert "failed" in watched.out
    gone(told[0]["process"])
    log = Path(told[0]["log"]).read_text()
    assert all(f"{row['plan'][-6:]}  plan {row['plan']}: {row['goal']}" in log for row in told)
    assert log_of(Path(told[0]["log"]).parents[1], told[1]["plan"]).samefile(told[0]["log"])


def test_a_tree_is_followed_and_cancelled_with_all_its_processes(
    agents: Agents, start: Start, tmp_path: Path
) -> None:
    """vicoa-ai/vicoa#41: sub-agents ran for minutes after Stop."""
    goals = tmp_path / "goals.yaml"
    stubborn = "trap '' TERM; echo $$ > {}; sleep 600 & wait; wait"
    marks = [tmp_path / f"{number}.pid" for number in range(2)]
    entries = [
        {
            "name": f"part {number}",
            "action": "builtin/command",
            "arguments": {"argv": ["sh", "-c", stubborn.format(mark)]},
        }
        for number, mark in enumerate(marks)
    ]
    quick = {"name": "quick", "action": "builtin/command", "arguments": {"argv": ["touch", "quick"]}}
    goals.write_text(json.dumps({"goals": [*entries, quick]}))
    settings = ("--set", "sandbox.isolation=off", "--set", "worker.cancel_grace_seconds=0.2")
    told = start(*settings, *in_background("run", "-f", str(goals), "--parallel", "3"))
    wait_until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
    pids = [int(mark.read_text()) for mark in marks]
    cancelled = agents("plan", "cancel", told["plan"])
    assert cancelled.code == 0, cancelled.err
    assert "with its sub-plans; no process is left" in cancelled.err
    assert not any(lives(pid) for pid in pids)
    watched = agents("plan", "watch", told["plan"])
    assert watched.code == 130, watched.err
    rows = json.loads(agents("plan", "show", told["plan"], "--format", "json").out)["sub_plans"]
    for part in rows:
        assert f"{part['id'][-6:]}  plan {part['id']}: {part['name']}" in watched.err
    assert [part["state"] for part in rows][:2] == ["cancelled", "cancelled"]
