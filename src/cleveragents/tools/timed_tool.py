"""A tool with a time limit, enforced through its stop signal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from msgspec import Struct

from cleveragents.core.errors import Cancelled, ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.processes.ports import StopSignal
from cleveragents.tools.ports import SandboxFiles, Tool, Workplace

__all__ = ["EitherStop", "TimedStop", "TimedTool"]

_OVER = "the time limit was reached"
_LEAST_SECONDS = 0.001
_LOOK_SECONDS = 0.05


class TimedStop(Struct, frozen=True):
    """A `StopSignal` that also fires when the time runs out."""

    stop: StopSignal
    seconds_left: Callable[[], float]

    @property
    def is_cancelled(self) -> bool:
        return self.stop.is_cancelled or self.seconds_left() <= 0

    @property
    def reason(self) -> str | None:
        if self.stop.is_cancelled or self.seconds_left() > 0:
            return self.stop.reason
        return _OVER

    def wait(self, timeout: float | None) -> bool:
        if timeout is not None:
            self.stop.wait(max(0.0, min(timeout, self.seconds_left())))
            return self.is_cancelled
        while not self.is_cancelled:
            self.stop.wait(max(_LEAST_SECONDS, self.seconds_left()))
        return True

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancelled(self.reason)


class EitherStop(Struct, frozen=True):
    """A `StopSignal` that fires when either of two other signals fires."""

    one: StopSignal
    other: StopSignal

    @property
    def is_cancelled(self) -> bool:
        return self.one.is_cancelled or self.other.is_cancelled

    @property
    def reason(self) -> str | None:
        return self.one.reason if self.one.is_cancelled else self.other.reason

    def wait(self, timeout: float | None) -> bool:
        ends = None if timeout is None else time.monotonic() + timeout
        while not self.is_cancelled:
            left = _LOOK_SECONDS if ends is None else min(_LOOK_SECONDS, ends - time.monotonic())
            if left <= 0:
                return False
            self.one.wait(left)
        return True

    def raise_if_cancelled(self) -> None:
        if self.is_cancelled:
            raise Cancelled(self.reason)


class TimedTool(Struct, frozen=True):
    """A `Tool` that is stopped when the time runs out: the call fails, and its changes are recorded."""

    tool: Tool
    seconds_left: Callable[[], float]

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return self.tool.capability_of(arguments, files)

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        timed = replace(workplace, stop=TimedStop(workplace.stop, self.seconds_left))
        try:
            return self.tool.call(arguments, timed)
        except Cancelled:
            if workplace.stop.is_cancelled:  # guard: a cancel is not an answer; the call stays open
                raise
            raise ToolRefused(self.spec.name, f"{_OVER} before it answered") from None
