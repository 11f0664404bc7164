"""The view for terminals: finished lines scroll, and at the bottom a few say what happens at this moment."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.domain.redaction import redact_text
from cleveragents.interfaces.cli.footer import Footer, Size
from cleveragents.interfaces.cli.live_output import LiveOutput, PieceFlow
from cleveragents.interfaces.cli.live_view import lines_of, one_line
from cleveragents.interfaces.cli.log_lines import logs_to
from cleveragents.interfaces.cli.output import printable
from cleveragents.interfaces.cli.plan_meter import spending_words

if TYPE_CHECKING:
    from typing import TextIO

    from rich.text import Text

    from cleveragents.interfaces.cli.plan_meter import PlanMeter

__all__ = ["RichView", "elapsed", "in_lines", "spinner", "styled"]

_READ_SECONDS = 0.5
_TAIL = 2_000
_TAIL_LINES = 2
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STEP = re.compile(r"step \d+ of \d+|check |mending|\S+ reads the changes")


class RichView:
    """One plan, live.

    Thread safety:
        Owner: the command that runs the plan starts and closes it.
        Lock: `_lock` guards what is known of the plan; held for assignments only. The drawing thread takes
            it within the footer's; nobody who holds it asks for the footer's.
        Guarantee: what was told before `close` is on the screen when that returns, but for what is only
            worth seeing while it happens.
    Cancel safety: an interrupted `close` may be called again.
    """

    def __init__(
        self,
        meter: PlanMeter,
        *,
        hint: str,
        stream: TextIO | None = None,
        size: Callable[[], Size] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meter = meter
        self._hint = hint
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._read_at: float | None = None
        self._lock = threading.Lock()
        self._output_lock = threading.Lock()
        self._step = ""
        self._doing = ""
        self._tail = ""
        self._flows: dict[tuple[str, str], PieceFlow] = {}
        self._footer = Footer(self._lines, prepare=self._read, stream=stream, size=size)
        self._live = LiveOutput(lambda line: self._scroll(line, "dim"))
        self._restore_logs: Callable[[], None] = _nothing

    def start(self) -> None:
        """Takes the bottom of the terminal."""
        self._restore_logs = logs_to(self._footer.scroll)
        self._footer.start()

    def say(self, message: str) -> None:
        self._finish_output()
        self._scroll(message, "bold" if _STEP.match(message) else "")
        if _STEP.match(message):
            with self._lock:
                self._step = one_line(message)
                self._doing = self._tail = ""

    def seen(self, seen: Progress) -> None:
        if seen.kind not in (ProgressKind.PIECE, ProgressKind.NODE):
            self._finish_output()
        for line in lines_of(seen):
            self._scroll(line, "red" if seen.failed else "dim" if seen.kind is ProgressKind.TOOL else "")
        with self._lock:
            self._note(seen)

    def output(self, chunk: bytes) -> None:
        with self._output_lock:
            self._live(chunk)

    def draw(self) -> None:
        """Brings the screen up to date, for those who do not `start`."""
        self._footer.draw()

    def close(self) -> None:
        self._finish_output()
        self._footer.close()
        self._restore_logs()
        if self._stream is None:
            _forget_what_was_typed()

    def _note(self, seen: Progress) -> None:
        key = seen.actor, seen.node
        if seen.kind is ProgressKind.PIECE:
            flow = self._flows.setdefault(key, PieceFlow())
            self._tail = (self._tail + flow(seen.text))[-_TAIL:]
            return
        self._flows.pop(key, None)
        if seen.kind is ProgressKind.THINKING:
            self._doing, self._tail = f"{_short(seen)} is thinking ({seen.text})", ""
        elif seen.kind is ProgressKind.TOOL:
            self._doing, self._tail = f"{_short(seen)}: {one_line(seen.text)}", ""
        elif seen.kind in (ProgressKind.TOOL_DONE, ProgressKind.THOUGHT):
            self._doing = self._tail = ""

    def _finish_output(self) -> None:
        with self._output_lock:
            self._live.finish()

    def _scroll(self, line: str, style: str = "") -> None:
        self._footer.scroll(styled(printable(redact_text(line)), style))

    def _read(self) -> None:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._meter.read()

    def _lines(self, room: Size) -> list[Text]:
        """What stands at the bottom, in so much room."""
        width, height = room
        now = self._clock()
        reading = self._meter.last
        with self._lock:
            step, doing, tail = self._step, self._doing, self._tail
        heading = " · ".join(filter(None, [reading.plan.phase.value, step]))
        spent = [*spending_words(reading), elapsed(now - self._started), self._hint]
        answer = [line for line in tail.splitlines() if line.strip()][-_TAIL_LINES:]
        lines = [
            styled(printable(f"── {heading} ").ljust(width, "─"), "cyan"),
            styled(printable(f"{spinner(now)} {doing or 'working'}"), ""),
            *(styled(printable(_end_of(f"  {line}", width)), "dim italic") for line in answer),
            *(styled(line, "dim") for line in in_lines(spent, width)),
        ]
        # On a terminal that is hardly one, what happens now counts.
        return lines if len(lines) <= height else lines[1:2]


def styled(text: str, style: str) -> Text:
    """The text, of which nothing is markup."""
    from rich.text import Text

    return Text(text, style=style, no_wrap=True)


def elapsed(seconds: float) -> str:
    """`0:42`, `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def spinner(now: float) -> str:
    """One of its pictures, four a second."""
    return _FRAMES[int(now * 4) % len(_FRAMES)]


def in_lines(words: list[str], width: int) -> list[str]:
    """The words with dots between them, on as many lines as that takes."""
    lines = [""]
    for word in words:
        joined = f"{lines[-1]} · {word}" if lines[-1] else word
        if len(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _short(seen: Progress) -> str:
    return seen.actor.rpartition("/")[2]


def _end_of(line: str, width: int) -> str:
    """What was said last is at the end."""
    return line if len(line) <= width else f"…{line[-(width - 1) :]}"


def _forget_what_was_typed() -> None:
    """What was typed while nothing was asked must not be the answer to the next question."""
    import termios

    try:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    except (OSError, ValueError, termios.error):
        return  # nobody types there


def _nothing() -> None:
    """Nothing is to be restored."""
