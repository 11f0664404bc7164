"""Ctrl-C, again and again, while plans run in front; `test_cli_run_goals` does it to real commands."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest

from cleveragents.api.client import Client, LocalClient
from cleveragents.api.plans.views import PlanView
from cleveragents.cli.commands import cli
from cleveragents.cli.output import Output
from cleveragents.cli.plan.follow import StreamPosition, run_until_rest
from cleveragents.cli.plan.work import WorkOptions, decide, work_on
from cleveragents.cli.run.interruption import (
    ForcedStop,
    Interrupts,
    interrupt_deferred,
    pause_plans,
    pause_unfollowed,
)
from cleveragents.core.errors import CleverAgentsError, PlanError, ServerUnreachable, StoreBusy, UnknownPlan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.plan_bench import PlanBench, command, plan_bench, write

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class Shown:
    """A board that remembers."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.closed = False

    def say(self, message: str) -> None:
        self.said.append(message)

    def close(self) -> None:
        self.closed = True


def plan(plan_id: str) -> Plan:
    return Plan(
        plan_id, "a goal", "tests/steps", "/repository", Phase.EXECUTE, PlanState.PROCESSING, 1, NOW, NOW
    )


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def hit() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def raises() -> bool:
    """Whether hitting it raises anything."""
    try:
        hit()
    except KeyboardInterrupt:
        return True
    return False


class Dropped:
    """What is interrupted while it is collected: Python prints that, and drops it."""

    def __del__(self) -> None:
        hit()


def test_each_raises_until_the_plans_are_stopped() -> None:
    with Interrupts() as heard:
        assert [raises() for _ in range(3)] == [True] * 3
        assert not heard.again


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_that_is_lost_in_a_finalizer_does_not_void_those_after_it() -> None:
    with Interrupts():
        Dropped()
        assert raises()


def test_while_they_are_stopped_the_next_is_noted_and_the_one_after_it_gives_way_to_the_system() -> None:
    with Interrupts() as heard:
        with pytest.raises(KeyboardInterrupt):
            hit()
        heard.stopping = True
        assert not raises()
        assert heard.again
        assert signal.getsignal(signal.SIGINT) != signal.SIG_DFL
        assert not raises()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL, "a fourth one ends the process"
    assert raises(), "what is asked afterwards hears it"


def test_without_an_interrupt_the_handler_is_restored() -> None:
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_in_another_thread_signals_are_left_alone() -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with Interrupts():
                assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert failed == []


def test_an_orderly_end_during_the_last_message_is_kept() -> None:
    heard, left = Interrupts(), list[int]()

    class Board(Shown):
        def close(self) -> None:
            haste._over.set()  # as by the owner, who leaves the block just now

    haste = ForcedStop(heard, Board(), [plan("P")], lambda: None, patience_seconds=0.01, leave=left.append)
    heard.again = True
    with haste:
        for thread in haste._threads:
            thread.join(60)
    assert left == []


def test_a_failed_pause_keeps_no_other_plan_running(tmp_path: Path) -> None:
    with plan_bench(tmp_path) as plans:
        first, second = plans.plan(command("true")), plans.plan(command("true"))
        gone = plan("01HXNOSUCHPLAN000000000000")
        with pytest.raises(UnknownPlan):
            pause_plans(plans.container, [first, gone, second], None, Shown(), Interrupts())
        assert [plans.now(one).state for one in (first, second)] == [PlanState.ERRORED] * 2


def test_nothing_is_killed_unless_it_is_hit_again() -> None:
    killed: list[str] = []
    with ForcedStop(Interrupts(), Shown(), [plan("P")], lambda: killed.append("all")):
        pass
    assert killed == []


def test_hit_again_all_is_killed_and_the_end_is_waited_for() -> None:
    heard, view, killed, left = Interrupts(), Shown(), threading.Event(), list[int]()
    with ForcedStop(heard, view, [plan("P")], killed.set, leave=left.append):
        heard.again = True
        assert killed.wait(60)
    assert view.said == ["interrupted again: killing running processes …"]
    assert left == []


@pytest.mark.parametrize("error", [ValueError("odd"), StoreBusy(1.0)])
def test_a_failed_kill_is_repeated(error: Exception) -> None:
    heard, killed, tries = Interrupts(), threading.Event(), list[int]()

    def kill() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise error
        killed.set()

    with ForcedStop(heard, Shown(), [plan("P")], kill, leave=lambda code: None):
        heard.again = True
        assert killed.wait(60)


class Stuck(Shown):
    """A board whose reader has stopped reading."""

    def __init__(self) -> None:
        super().__init__()
        self.read = threading.Event()

    def say(self, message: str) -> None:
        self.read.wait(60)

    def close(self) -> None:
        self.read.wait(60)


@pytest.mark.parametrize("hangs", ["view", "kill"])
def test_a_hanging_thread_does_not_keep_the_process_alive(hangs: str) -> None:
    heard, view, killed, gone = Interrupts(), Stuck(), threading.Event(), threading.Event()

    def kill() -> None:
        killed.set()
        if hangs == "kill":
            view.read.wait(60)

    shown = view if hangs == "view" else Shown()
    with ForcedStop(heard, shown, [plan("P")], kill, patience_seconds=0.01, leave=lambda code: gone.set()):
        heard.again = True
        assert gone.wait(60)
        assert killed.is_set(), "what is said comes after it"
        view.read.set()


@pytest.mark.parametrize(("ids", "named"), [(["P"], "P"), (["P", "Q"], "PLAN")])
def test_a_hanging_plan_is_left_and_reported(
    capsys: pytest.CaptureFixture[str], ids: list[str], named: str
) -> None:
    heard, view, gone, codes = Interrupts(), Shown(), threading.Event(), list[int]()

    def leave(code: int) -> None:
        codes.append(code)
        gone.set()

    plans = [plan(one) for one in ids]
    with ForcedStop(heard, view, plans, lambda: None, patience_seconds=0.01, leave=leave):
        heard.again = True
        assert gone.wait(60)
    said = capsys.readouterr().err
    assert (codes, view.closed) == ([130], True)
    assert all(f"plan {one} was killed and may still be listed as running" in said for one in ids)
    assert f"continue with `agents plan resume {named}`" in said


# ── Plans ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[PlanBench]:
    with plan_bench(tmp_path) as bench:
        yield bench


def test_a_plan_is_paused_before_a_message_that_may_hang(plans: PlanBench) -> None:
    stopped, states, threads = plans.plan(command("true")), list[PlanState](), list[threading.Thread]()

    class Watching(Shown):
        def say(self, message: str) -> None:
            states.append(plans.now(stopped).state)
            threads.append(threading.current_thread())

    view = Watching()
    pause_plans(plans.container, [stopped], None, view, Interrupts())
    assert (states, view.closed) == ([PlanState.ERRORED], True)
    assert threads != [threading.main_thread()], "who hangs hears no Ctrl-C"


class Hitting(StringIO):
    """A stderr: whoever reads there which plan is run hits Ctrl-C."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.startswith("plan "):
            hit()
        return written


def _here(deciding: WorkOptions, done: PlanView) -> PlanView:
    return work_on(deciding, done, after=None)


def _by_workers(deciding: WorkOptions, done: PlanView) -> PlanView:
    return run_until_rest(
        deciding.client, done, deciding.output, after=StreamPosition(0, {}), prefix="agents"
    )


@pytest.mark.parametrize("run", [_here, _by_workers], ids=["here", "by workers"])
def test_an_interrupt_after_the_end_asks_no_question(
    plans: PlanBench, monkeypatch: pytest.MonkeyPatch, run: Callable[[WorkOptions, PlanView], PlanView]
) -> None:
    done, stderr = plans.done(write("z.txt", "z\n")), Hitting()
    client = LocalClient(plans.container, in_front=True)
    deciding = WorkOptions(client, "agents", Output("plain"), yes=True)
    monkeypatch.setattr(sys, "stderr", stderr)
    with (
        cli.make_context("agents", ["--server", "local", "plan"]),
        pytest.raises(click.exceptions.Exit) as ended,
    ):
        decide(deciding, run(deciding, client.plans.get(done.id)))
    said = stderr.getvalue()
    assert ended.value.exit_code == 130
    assert f"interrupted; plan {done.id} is unchanged: ready" in said
    assert f"agents plan apply {done.id}" in said
    assert not (plans.repository / "z.txt").exists()
    assert raises(), "what comes next hears it"


def test_an_interrupt_takes_effect_after_a_hand_over_not_within() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupt_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("the plan is known")
    assert done == ["the plan is known"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "the server is pausing plan 01A; check with `agents plan show 01A`"),
        (PlanError("01A", "not running"), "plan 01A: not running"),
        (ServerUnreachable("http://a.test", "no answer"), "run `agents plan pause 01A`"),
    ],
)
def test_a_plan_that_is_not_followed_yet_is_paused_or_its_state_is_printed(
    error: CleverAgentsError | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    class Plans:
        def pause(self, plan_id: str) -> None:
            asked.append(plan_id)
            if error is not None:
                raise error

    client = cast(Client, SimpleNamespace(plans=Plans()))
    pause_unfollowed(client, "01A", "agents")
    assert asked == ["01A"]
    assert words in capsys.readouterr().err
