"""What is seen of a plan while it runs: what it says, which tools it uses, what its commands print.

Everything is for the eyes of whoever waits, so it goes to stderr; results are printed elsewhere, afterwards.
Only who asked for a stream of JSON gets all of it on stdout. A view that cannot be written to any more, as
its reader has gone, shows nothing from then on: that is no reason for the plan to fail.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.output import continued, progress
from cleveragents.cli.render.live_output import LiveOutput
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.cli.output import Output

__all__ = ["LiveView", "PlainView", "is_for_terminal", "lines_of", "one_line"]

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
        """Nothing more will come. A second call changes nothing."""
        ...


class PlainView:
    """Line by line, for pipes, logs and screen readers: no line is ever written over.

    Thread safety:
        Owner: the command that runs the plan.
        Lock: `_lock` keeps one line from being written into another; held while a line is written.
        Guarantee: lines come out whole, in the order in which they were told.
    Cancel safety: nothing waits for anything but the terminal.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        write: Callable[[str], None] = progress,
        write_output: Callable[[str], None] | None = None,
    ) -> None:
        self._prefix = prefix
        self._write_line = write
        self._write_output = write_output or write
        self._lock = threading.Lock()
        self._live = LiveOutput(lambda line: self._write(self._write_output, line))

    def say(self, message: str) -> None:
        with self._lock:
            self._live.finish()
            for line in continued(redact_text(message)):
                self._write(self._write_line, line)

    def seen(self, seen: Progress) -> None:
        for line in lines_of(seen):
            self.say(line)

    def output(self, chunk: bytes) -> None:
        with self._lock:
            self._live(chunk)

    def close(self) -> None:
        with self._lock:
            self._live.finish()

    def _write(self, write: Callable[[str], None], line: str) -> None:
        try:
            write(f"{self._prefix}{line}")
        except OSError:
            self._write_line = self._write_output = _nowhere


def lines_of(seen: Progress) -> list[str]:
    """What there is to say of it, line by line; nothing for what is only worth seeing while it happens."""
    if seen.kind is ProgressKind.TOOL:
        return [f"  {one_line(seen.text)}"]
    if seen.kind is ProgressKind.TOOL_DONE and seen.failed:
        return [f"    it failed: {one_line(seen.text)}"]
    if seen.kind is ProgressKind.THOUGHT:
        return _thought(seen.text)
    return []


def one_line(text: str) -> str:
    """The text without secrets on one line, of which it takes no more than two."""
    joined = _unbroken(text)
    return joined if len(joined) <= _LONGEST else f"{joined[: _LONGEST - 1]}…"


def is_for_terminal(output: Output | None) -> bool:
    """Whether somebody watches on a terminal on which the cursor can be moved."""
    if output is None or not output.human_readable:
        return False
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _thought(text: str) -> list[str]:
    """What a model said; of an answer for programs, what is in it for people."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, Mapping):
        return _quoted(text)
    lines = _quoted(str(answer.get("summary") or answer.get("verdict") or ""))
    return [*lines, *(f"  - {_unbroken(str(finding))}" for finding in _items(answer.get("findings")))]


def _quoted(text: str) -> list[str]:
    """Return the whole text in quotation marks, its lines indented by two or three columns."""
    first, *others = redact_text(text).strip().splitlines() or [""]
    lines = [f"  “{first}", *(f"   {line}".rstrip() for line in others)]
    return [*lines[:-1], f"{lines[-1]}”"] if first else []


def _unbroken(text: str) -> str:
    return " ".join(redact_text(text).split())


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _nowhere(line: str) -> None:
    """Nobody reads any more."""
