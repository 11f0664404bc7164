"""Ctrl-C, again and again, while plans run in front; `test_cli_run_goals` does it to real commands."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from cleveragents.domain.plan import Phase, Plan, PlanState
from cleveragents.interfaces.cli.interruption import Haste, Interrupts

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


def test_the_first_raises_and_those_after_it_are_only_noted() -> None:
    with Interrupts() as heard:
        with pytest.raises(KeyboardInterrupt):
            hit()
        assert not heard.again
        assert not any(raises() for _ in range(2))
        assert heard.again
    assert not raises(), "what was stopped is still being told"
    assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler


def test_who_was_not_interrupted_leaves_it_as_it_was() -> None:
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_was_started_with_it_ignored_goes_on_ignoring_it() -> None:
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


def test_nothing_is_killed_unless_it_is_hit_again() -> None:
    killed: list[str] = []
    with Haste(Interrupts(), Shown(), [plan("P")], lambda: killed.append("all")):
        pass
    assert killed == []


def test_hit_again_all_is_killed_and_the_end_is_waited_for() -> None:
    heard, view, killed, left = Interrupts(), Shown(), threading.Event(), list[int]()
    with Haste(heard, view, [plan("P")], killed.set, leave=left.append):
        heard.again = True
        assert killed.wait(60)
    assert view.said == ["interrupted again: killing what still runs, and recording what it did …"]
    assert left == []


@pytest.mark.parametrize(("ids", "named"), [(["P"], "P"), (["P", "Q"], "PLAN")])
def test_what_hangs_even_then_is_left_and_that_is_said(
    capsys: pytest.CaptureFixture[str], ids: list[str], named: str
) -> None:
    heard, view, gone, codes = Interrupts(), Shown(), threading.Event(), list[int]()

    def leave(code: int) -> None:
        codes.append(code)
        gone.set()

    plans = [plan(one) for one in ids]
    with Haste(heard, view, plans, lambda: None, patience_seconds=0.01, leave=leave):
        heard.again = True
        assert gone.wait(60)
    said = capsys.readouterr().err
    assert (codes, view.closed) == ([130], True)
    assert all(f"plan {one} was ended at once and may still count as running" in said for one in ids)
    assert f"`agents plan cancel {named}` settles it" in said
