"""What is seen of a plan while it runs: what it says, which tools it uses, what its commands print.

Everything is for the eyes of whoever waits, so it goes to stderr; results are printed elsewhere, afterwards.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.domain.redaction import redact_text
from cleveragents.interfaces.cli.live_output import LiveOutput
from cleveragents.interfaces.cli.output import progress

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.domain.plan import Plan
    from cleveragents.interfaces.cli.output import Output

__all__ = ["LiveView", "PlainView", "view_for"]

_LONGEST = 160


class LiveView(Protocol):
    """Shows a plan under way. Any thread may tell it something."""

    def say(self, message: str) -> None:
        """What the plan says of itself: a step, a check."""
        ...

    def seen(self, seen: Progress) -> None:
        """What an actor of it does."""
        ...

    def output(self, chunk: bytes) -> None:
        """What a command of it prints."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


class PlainView:
    """Line by line, for pipes, logs and screen readers: no line is ever written over.

    Thread safety:
        Owner: the command that runs the plan.
        Lock: `_lock` keeps one line from being written into another; held while a line is written.
        Guarantee: lines come out whole, in the order in which they were told.
    Cancel safety: nothing waits for anything but the terminal.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live = LiveOutput(progress)

    def say(self, message: str) -> None:
        with self._lock:
            self._live.finish()
            progress(message)

    def seen(self, seen: Progress) -> None:
        line = line_of(seen)
        if line is not None:
            self.say(line)

    def output(self, chunk: bytes) -> None:
        with self._lock:
            self._live(chunk)

    def close(self) -> None:
        with self._lock:
            self._live.finish()


def line_of(seen: Progress) -> str | None:
    """What there is to say of it in one line; None for what is only worth seeing while it happens."""
    text = " ".join(redact_text(seen.text).split())
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    if seen.kind is ProgressKind.TOOL:
        return f"  {short}"
    if seen.kind is ProgressKind.TOOL_DONE and seen.failed:
        return f"    it failed: {short}"
    if seen.kind is ProgressKind.THOUGHT and short:
        return f"  “{short}”"
    return None


def view_for(container: Container, plan: Plan, output: Output | None) -> LiveView:
    """The view that fits where it is shown."""
    return PlainView()
