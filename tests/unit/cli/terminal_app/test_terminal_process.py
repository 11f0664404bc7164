"""The terminal app as a process on a terminal, and the processes of the plans it continues."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleveragents.api.client import LocalClient, connect
from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.api.plans.request import PlanRequest
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.plan_runner import PlanRunner
from cleveragents.plans.background_logs import is_in_background
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.status import PlanStatus
from tests.cli_bench import paint_shop, use_home
from tests.conditions import wait_until
from tests.fork_server import Forked
from tests.terminal_bench import shop_client, until

REQUEST = PlanRequest(action="builtin/replace", arguments={"pattern": "colour", "replacement": "color"})


def read_until(terminal: int, wanted: bytes) -> bytes:
    """Return the output up to the wanted bytes."""
    seen = b""
    while wanted not in seen:
        seen += os.read(terminal, 65_536)
    return seen


@contextmanager
def app_on_terminal(root: Path, shown: bytes = b"No plans yet") -> Iterator[tuple[Forked, int]]:
    """Run `agents` on a terminal of 80 columns until it shows this text of the board."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with Forked([sys.executable, "-m", "cleveragents"], cwd=root, **streams) as process:
        try:
            os.close(theirs)
            read_until(ours, shown)
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.setenv("TERM", "xterm-256color")
    return paint_shop(tmp_path / "shop")


def quit_app(process: Forked, terminal: int) -> None:
    os.write(terminal, b"\x03")
    read_until(terminal, b"again to quit")
    seen = b""
    while b"\x1b[?1049l" not in seen:  # until the terminal shows what it showed before
        os.write(terminal, b"\x03")  # again each second: a busy app may see the first too late
        while b"\x1b[?1049l" not in seen and select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 65_536)
    assert process.wait(60) == 0


def test_agents_opens_the_app_and_ctrl_c_twice_quits(root: Path) -> None:
    with app_on_terminal(root) as (process, terminal):
        quit_app(process, terminal)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_restores_the_terminal_and_leaves_plans_running(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("CLEVERAGENTS_PLAN_PROFILE", "full-auto")
    monkeypatch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
    with app_on_terminal(root) as (process, terminal), connect(directory=root) as client:
        raw = termios.tcgetattr(terminal)[3]
        os.write(terminal, b"!sleep 600\r")
        wait_until(lambda: [one.status for one in client.plans.list().items] == [PlanStatus.RUNNING])
        (plan,) = client.plans.list().items
        try:
            process.send_signal(number)
            read_until(terminal, b"\x1b[?25h")  # the cursor is visible
            assert process.wait(60) == 128 + number
            cooked = termios.tcgetattr(terminal)[3]
            assert (raw & termios.ECHO, cooked & termios.ECHO) == (0, termios.ECHO)
            assert client.plans.summary(plan.id).status is PlanStatus.RUNNING
            assert is_in_background(tmp_path / "state", plan.id)
        finally:
            client.plans.cancel(plan.id)
            wait_until(lambda: not is_in_background(tmp_path / "state", plan.id))


@pytest.mark.parametrize("hangs_up", [True, False], ids=["signal", "no signal"])
def test_a_closed_terminal_ends_the_app(root: Path, hangs_up: bool) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    with app_on_terminal(root) as (process, terminal):
        os.dup2(nowhere, terminal)  # closes our end of the terminal
        os.close(nowhere)
        if hangs_up:  # the kernel sends it to the processes of a lost terminal, unless they left its session
            process.send_signal(signal.SIGHUP)
        assert process.wait(60) != 0


def test_input_that_is_not_utf_8_does_not_end_the_app(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    with app_on_terminal(root) as (process, terminal):
        os.write(terminal, b"caf\xe9 au lait")
        read_until(terminal, b"UTF-8")  # of the notice
        os.write(terminal, b"\x1bOP")  # F1
        read_until(terminal, b"Commands and keys")
        quit_app(process, terminal)


def test_enter_that_arrives_together_with_f2_opens_the_plan(root: Path) -> None:
    with connect(directory=root) as client:
        assert isinstance(client, LocalClient)
        LocalClient(client.access.container, in_front=True).plans.create(REQUEST)
    with app_on_terminal(root, b"Queued") as (process, terminal):
        os.write(terminal, b"\x1bOQ\r")  # F2, Enter
        read_until(terminal, b"Cancel")  # a key of the plan
        quit_app(process, terminal)


def test_a_plan_is_started_when_its_last_process_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop_client(tmp_path, monkeypatch) as client:
        assert isinstance(client, LocalClient)
        started: list[str] = []
        pauses: list[float] = []

        def start(state: Path, plan: Plan, overrides: object) -> bool:
            started.append(plan.id)
            return len(started) == 3

        runner = PlanRunner(client.access.container, (), start, pauses.append)
        in_front = LocalClient(client.access.container, in_front=True, run_plan=runner.run)
        plan = in_front.plans.create(REQUEST)
        runner.close()
        assert started == [plan.id] * 3
        assert len(pauses) == 2


def test_a_cancelled_plan_is_not_started_and_a_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop_client(tmp_path, monkeypatch) as client:
        assert isinstance(client, LocalClient)
        container = client.access.container
        in_front = LocalClient(container, in_front=True)
        cancelled, waiting = (in_front.plans.create(REQUEST).id for _ in range(2))
        in_front.plans.cancel(cancelled)
        started: list[str] = []
        failures: list[BaseException] = []

        def start(state: Path, plan: Plan, overrides: object) -> bool:
            started.append(plan.id)
            raise OSError("no process")

        runner = PlanRunner(container, (), start)
        runner.failed = failures.append
        runner.run(container.plan_parts.plans.get(cancelled))
        runner.run(container.plan_parts.plans.get(waiting))
        runner.close()
        assert started == [waiting]
        assert [str(failure) for failure in failures] == ["no process"]


def test_an_opened_session_starts_its_queued_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop_client(tmp_path, monkeypatch, [{"reply": {"text": "Hello."}}]) as client:
        assert isinstance(client, LocalClient)
        container = client.access.container
        killed = LocalClient(container, in_front=True)  # an app that was killed before it started a process
        session_id = killed.conversations.create(ConversationRequest()).id
        for goal in ("Paint it red", "Paint it blue"):
            killed.conversations.send(session_id, f"/plan {goal}")
            killed.conversations.wait(session_id)
        queued, paused = killed.conversations.get(session_id).plans
        killed.plans.pause(paused)
        started: list[str] = []

        def start(state: Path, plan: Plan, overrides: object) -> bool:
            started.append(plan.id)
            return True

        runner = PlanRunner(container, (), start)

        async def run() -> None:
            app = TerminalApp(
                killed, ConversationRequest(), session_id=session_id, run_plans=runner.run_queued
            )
            async with app.run_test() as pilot:
                await until(pilot, lambda: started == [queued])

        asyncio.run(run())
        runner.run_queued(["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"])  # deleted meanwhile
        runner.close()
        assert started == [queued]
