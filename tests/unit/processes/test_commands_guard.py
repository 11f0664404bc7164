"""The guard alone, controlled over its pipes, as an ordinary Python program."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes import guard
from cleveragents.processes.bubblewrap import shared_probe
from cleveragents.processes.guard_process import COMMAND_MARKER, GuardProcess, _kill_groups
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import Command
from tests.command_trees import alive, end_by_hand, tree_script, wait_none_alive
from tests.coverage_plugin import counted

ORDINARY = tuple(counted(guard.__name__))
AS_IT_RUNS = (sys.executable, "-I", "-S", guard.__file__)
WITHOUT = (
    "import os, sys\n"
    f"from {guard.__name__} import main\n"
    "really_open = os.open\n"
    "def sabotaged(path, *rest):\n"
    "    if str(path).endswith('/children'):\n"
    "        raise FileNotFoundError(path)\n"
    "    return really_open(path, *rest)\n"
    "{sabotage}\n"
    "sys.exit(main())\n"
)
"""A guard on a machine that lacks a feature."""
SOURCE = Path(__file__).parents[3] / "src"
_tokens = itertools.count(os.getpid() * 10_000 + 8_001)
Start = Callable[..., "Conversation"]


class Conversation:
    """A guard with its control pipe, its report and the command's output."""

    def __init__(
        self, directory: Path, argv: list[str], interpreter: list[str], facts: dict[str, Any]
    ) -> None:
        self.output, output_in = os.pipe()
        source = os.open(os.devnull, os.O_RDONLY)
        program = {
            "executable": shutil.which(argv[0]) or argv[0],
            "argv": argv,
            "arguments": None,
            "environment": {"PATH": "/usr/bin:/bin"},
            "markers": {},
            "directory": str(directory),
            "output": output_in,
            "input": source,
            "timeout_seconds": 60.0,
            "grace_seconds": 0.2,
            "parent": os.getpid(),
            "path": [str(SOURCE)],
            "private": None,
            **facts,
        }
        self.process = subprocess.Popen(
            interpreter,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(output_in, source),
        )
        os.close(output_in)
        os.close(source)
        assert self.process.stdin is not None
        self.control = self.process.stdin
        self.control.write(json.dumps(program).encode() + b"\n")
        self.control.flush()

    def wait_ready(self) -> None:
        said = b""
        while b"ready\n" not in said:
            said += os.read(self.output, 4096)

    def report(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        report: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert self.process.wait(20) == 0
        return report

    def close(self) -> None:
        assert self.process.stdout is not None
        self.control.close()
        self.process.wait(20)
        self.process.stdout.close()
        os.close(self.output)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(*argv: str, interpreter: tuple[str, ...] = ORDINARY, **facts: Any) -> Conversation:
        started.append(Conversation(tmp_path, [*argv], [*interpreter], facts))
        return started[-1]

    yield start
    for conversation in started:
        conversation.close()


@pytest.fixture
def token() -> Iterator[int]:
    token = next(_tokens)
    yield token
    end_by_hand(token)


def test_reports_the_exit_status(start: Start) -> None:
    assert start("true").report() == {"code": 0, "cause": None, "refused": None}
    assert start("sh", "-c", "kill -9 $$").report()["code"] == -9
    assert start("sleep", "1000", timeout_seconds=0.05).report()["cause"] == "timeout"


def test_notices_a_command_that_exits_immediately(start: Start) -> None:
    """A dropped process handle may reap the process before its status is read."""
    for _ in range(10):
        assert start("true", interpreter=AS_IT_RUNS).report()["code"] == 0


def test_reports_why_a_command_could_not_start(start: Start, tmp_path: Path) -> None:
    assert "No such file" in start("/no/such/program").report()["refused"]
    (tmp_path / "plain").write_text("exit 4")
    (tmp_path / "plain").chmod(0o755)
    assert start(str(tmp_path / "plain")).report()["code"] == 4
    assert "null byte" in start("true", argv=["a\0b"]).report()["refused"]


def test_obeys_an_order_sent_together_with_the_program(start: Start, token: int) -> None:
    conversation = start("sleep", f"1000.{token}")
    conversation.control.write(b"end\n")
    conversation.control.flush()
    assert conversation.report()["cause"] == "order"
    assert alive(token) == []


def test_starts_nothing_if_the_caller_is_gone(start: Start, tmp_path: Path) -> None:
    report = start("touch", "started", parent=1).report()
    assert report["cause"] == "parent"
    assert not (tmp_path / "started").exists()


def test_closing_the_pipe_ends_all_processes_and_removes_the_private_directory(
    start: Start, token: int, tmp_path: Path
) -> None:
    (tmp_path / "private" / "home").mkdir(parents=True)
    script = tree_script(token, then=f"trap '' TERM; while :; do sleep 1000.{token}9; done")
    conversation = start("sh", "-c", script, private=str(tmp_path / "private"))
    conversation.wait_ready()
    conversation.control.close()
    assert conversation.report()["cause"] == "parent"
    assert alive(token) == []
    assert not (tmp_path / "private").exists()


def test_cleans_up_although_the_report_cannot_be_delivered(start: Start, token: int) -> None:
    conversation = start("sh", "-c", f"echo ready; trap '' TERM; sleep 1000.{token}; sleep 1000.{token}")
    conversation.wait_ready()
    conversation.process.stdout.close()
    conversation.control.close()
    assert conversation.process.wait(20) == 1
    assert alive(token) == []


def test_exits_if_the_pipe_closes_before_the_program_arrives() -> None:
    done = subprocess.run(ORDINARY, input=b"{", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_command(start: Start, token: int, number: signal.Signals) -> None:
    conversation = start("sh", "-c", f"trap '' TERM; echo ready; sleep 1000.{token}; sleep 1000.{token}")
    conversation.wait_ready()
    conversation.process.send_signal(number)
    assert conversation.report()["cause"] == "signal"
    assert alive(token) == []


@pytest.mark.parametrize(
    ("lacking", "ending"),
    [
        # A kernel without a list of children: the process table is used.
        ("os.open = sabotaged", "its own end"),
        ("os.open = sabotaged", "order"),
        # On a full disk or during an upgrade: the code to kill processes is in the guard's one file.
        ("sys.modules['psutil'] = None", "its own end"),
        ("sys.modules['psutil'] = None", "order"),
    ],
)
def test_ends_every_process_with_each_method(start: Start, token: int, lacking: str, ending: str) -> None:
    deaf = f"trap '' TERM; while :; do sleep 1000.{token}9; done"
    script = tree_script(token, then="exit 6" if ending == "its own end" else deaf)
    program = WITHOUT.replace("{sabotage}", lacking)
    conversation = start("sh", "-c", script, interpreter=(sys.executable, "-c", program))
    if ending == "order":
        conversation.wait_ready()
        conversation.control.write(b"end\n")
        conversation.control.flush()
    report = conversation.report()
    assert (report["cause"], report["code"]) == ((None, 6) if ending == "its own end" else ("order", -9))
    assert alive(token) == []


@pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)
class TestWithBubblewrap:
    def start(self, start: Start, *argv: str, **facts: Any) -> Conversation:
        bubblewrap = str(shared_probe.result().program)
        arguments = [
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--unshare-pid",
            "--proc",
            "/proc",
            "--die-with-parent",
        ]
        return start(bubblewrap, argv=[bubblewrap, "--", *argv], arguments=arguments, **facts)

    def test_distinguishes_a_failed_command_from_one_that_never_started(self, start: Start) -> None:
        assert self.start(start, "false").report() == {"code": 1, "cause": None, "refused": None}
        assert self.start(start, "/no/such").report()["refused"] == guard.NOT_EXECUTED

    def test_a_command_gets_sigterm_before_its_namespace_is_killed(self, start: Start) -> None:
        script = "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.01; done"
        conversation = self.start(start, "sh", "-c", script, grace_seconds=20.0)
        conversation.wait_ready()
        conversation.control.write(b"end\n")
        conversation.control.flush()
        assert conversation.report()["cause"] == "order"
        assert b"bye" in os.read(conversation.output, 4096)

    def test_a_command_that_ignores_sigterm_is_killed_with_its_namespace(
        self, start: Start, token: int
    ) -> None:
        script = (
            f"(setsid sleep 1000.{token} &); trap '' TERM; echo ready; while :; do sleep 1000.{token}; done"
        )
        conversation = self.start(start, "sh", "-c", script)
        conversation.wait_ready()
        conversation.control.close()
        assert conversation.report()["cause"] == "parent"
        assert wait_none_alive(token, timeout=0) == []


HANGS = """
import os, sys, time
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", f"1000.{sys.argv[1]}"], {})
    os._exit(0)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it stays unburied
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="nothing else tells of which group the dead were")
def test_zombies_of_a_hanging_guard_reveal_their_process_group(token: int) -> None:
    """As with a chain of processes that fork and exit faster than they can be listed."""
    words = [sys.executable, "-c", HANGS, str(token)]
    hangs = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert hangs.stdout is not None
        assert hangs.stdout.readline() == b"ready\n"
        _kill_groups("nobody's", spare=hangs.pid)
        assert hangs.poll() is None, "what carries no marker may be found below it"
        hangs.kill()
        assert wait_none_alive(token, timeout=20) == []
    finally:
        hangs.kill()
        hangs.communicate()


def test_a_process_with_the_reused_pid_of_a_killed_guard_is_left_alone(tmp_path: Path, token: int) -> None:
    program = {
        "executable": shutil.which("sleep"),
        "argv": ["sleep", "1000"],
        "arguments": None,
        "environment": {},
        "markers": {COMMAND_MARKER: f"m{token}"},
        "directory": str(tmp_path),
        "timeout_seconds": 60.0,
        "grace_seconds": 0.2,
        "private": None,
    }
    words = ["sh", "-c", f"setsid sleep 1000.{token} & echo $!; wait"]
    stranger = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert stranger.stdout is not None
        child = psutil.Process(int(stranger.stdout.readline()))
        with GuardProcess(program, b"") as killed:
            killed._process.kill()
            killed._process.wait()
            killed._process.pid = stranger.pid  # as if the pid had been reused
        assert child.is_running()
        assert child.status() != psutil.STATUS_ZOMBIE
        assert stranger.poll() is None
    finally:
        stranger.kill()
        end_by_hand(token)
        stranger.communicate()


@pytest.mark.parametrize(
    ("isolation", "known"),
    [
        ("off", "the processes that were found were ended; a hidden process may still run"),
        pytest.param(
            "required",
            "all processes of the command were ended",
            marks=pytest.mark.skipif(shared_probe.result().program is None, reason="needs bubblewrap"),
        ),
    ],
)
def test_the_output_claims_only_what_is_known_after_losing_a_guard(
    isolation: str, known: str, tmp_path: Path
) -> None:
    """Outside of a namespace a process can leave its session, its parent and its variables."""

    def kill_the_guard(chunk: bytes) -> None:
        for child in psutil.Process().children():
            if any(word.endswith("/guard.py") for word in child.cmdline()):
                child.kill()

    runner = GuardedCommandRunner(isolation=isolation, grace_seconds=0.2)
    command = Command(("/bin/sh", "-c", "echo ready; exec sleep 60"), tmp_path, tmp_path)
    done = runner.run(command, CancellationToken(), on_output=kill_the_guard)
    assert done.output == f"ready\n\n[the guard of the command was lost: {known}]\n"
