"""Tools with a stop signal: it fires when the plan's time runs out, and a cancellation is passed on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from cleveragents.core.errors import Cancelled, ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.ports import CommandResult
from cleveragents.testing.clock import FakeClock
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import SandboxFiles, Workplace
from cleveragents.tools.timed_tool import TimedStop, TimedTool

SPEC = ToolSpec("far", "d", Capability.READ, {}, {}, writes=False, runs_commands=False)


class Waiting:
    """A tool that never answers."""

    spec = SPEC

    def __init__(self, told: CancellationToken | None = None) -> None:
        self.told = told

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return Capability.READ

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        if self.told is not None:
            self.told.cancel("enough")
        assert workplace.stop.wait(30)
        workplace.stop.raise_if_cancelled()
        return "never"


def workplace(root: Path, token: CancellationToken) -> Workplace:
    def run(argv: tuple[str, ...], *, directory: str, timeout_seconds: float) -> CommandResult:
        raise AssertionError("it runs no command")

    return Workplace(ConfinedFiles(root), run, token)


def test_a_tool_that_exceeds_its_time_limit_fails(tmp_path: Path) -> None:
    over = time.monotonic() + 0.05
    tool = TimedTool(Waiting(), lambda: over - time.monotonic())
    with pytest.raises(ToolRefused, match="the time limit was reached"):
        tool.call({}, workplace(tmp_path, CancellationToken()))


def test_a_cancellation_is_passed_on(tmp_path: Path) -> None:
    token = CancellationToken()
    with pytest.raises(Cancelled, match="enough"):
        TimedTool(Waiting(token), lambda: 1e6).call({}, workplace(tmp_path, token))


def test_the_signal_fires_on_timeout_or_cancellation() -> None:
    clock = FakeClock()
    over = clock.monotonic() + 5.0
    token = CancellationToken()
    stop = TimedStop(token, lambda: over - clock.monotonic())
    assert (stop.is_cancelled, stop.reason, stop.wait(0.0)) == (False, None, False)
    stop.raise_if_cancelled()
    clock.advance(5.0)
    assert (stop.is_cancelled, stop.wait(None), stop.wait(30.0)) == (True, True, True)
    assert "time" in str(stop.reason)
    token.cancel("enough")
    assert stop.reason == "enough"


def test_an_unlimited_wait_ends_at_the_time_limit() -> None:
    over = time.monotonic() + 0.02
    assert TimedStop(CancellationToken(), lambda: over - time.monotonic()).wait(None)
