"""Live views of a plan: its messages, tool calls and command output while it runs.

Views print to stderr, because progress is for the waiting person; results are printed later, on stdout. Only
a requested stream of JSON goes to stdout. If the reader of a view has gone, the view shows nothing more, and
the plan continues.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.output import continued, progress
from cleveragents.cli.render.live_output import LiveOutput
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.cli.output import Output

__all__ = ["LiveView", "PlainView", "is_for_terminal", "is_on_screen", "lines_of", "one_line"]

_LONGEST = 160
_ANSWERS: deque[str] = deque(maxlen=16)
"""The last answers of models that the views of this process printed."""


class LiveView(Protocol):
    """A display of one running plan. Any thread may call it."""

    def say(self, message: str) -> None:
        """Show a message of the plan: a step, a check."""
        ...

    def seen(self, seen: Progress) -> None:
        """Show the activity of an actor."""
        ...

    def output(self, chunk: bytes) -> None:
        """Show output of a command."""
        ...

    def close(self) -> None:
        """End the display. A second call changes nothing."""
        ...


class PlainView:
    """A view that prints line by line, for pipes, logs and screen readers; no line is overwritten.

    Thread safety:
        Owner: the command that runs the plan.
        Lock: `_lock` keeps lines from being mixed; held while a line is written.
        Guarantee: lines are whole and in the order of the calls.
    Cancel safety: a call waits only for the terminal.
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
        if seen.kind is ProgressKind.THOUGHT:
            _ANSWERS.append(seen.text.strip())

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
    """Return the lines for an activity; empty for an activity that is shown only while it happens."""
    if seen.kind is ProgressKind.TOOL:
        return [f"  {one_line(seen.text)}"]
    if seen.kind is ProgressKind.TOOL_DONE and seen.failed:
        return [f"    it failed: {one_line(seen.text)}"]
    if seen.kind is ProgressKind.THOUGHT:
        return _thought(seen.text)
    return []


def one_line(text: str) -> str:
    """Return the text without line breaks and secrets, shortened to the length of two lines."""
    joined = _unbroken(text)
    return joined if len(joined) <= _LONGEST else f"{joined[: _LONGEST - 1]}…"


def is_for_terminal(output: Output | None) -> bool:
    """Return whether the output goes to a terminal with a movable cursor."""
    if output is None or not output.human_readable:
        return False
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def is_on_screen(answer: str) -> bool:
    """Return whether a view of this process printed the answer on the terminal that also shows results."""
    return sys.stdout.isatty() and sys.stderr.isatty() and answer.strip() in _ANSWERS


def _thought(text: str) -> list[str]:
    """Return the lines of a model's answer; for a structured answer, only the parts meant for people."""
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
    """Drop the text: the reader has gone."""
