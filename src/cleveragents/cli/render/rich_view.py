"""The view for terminals: finished lines scroll; a few lines at the bottom show the current activity.

Sub-plans are listed at the bottom with their activity; their messages scroll with the rest.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.log_lines import logs_to
from cleveragents.cli.output import printable
from cleveragents.cli.plan.meter import spending_label
from cleveragents.cli.render.board import announced
from cleveragents.cli.render.board_row import COLOURS, BoardRow, beside, rank
from cleveragents.cli.render.footer import Footer, Size
from cleveragents.cli.render.live_output import ChunkFlow
from cleveragents.cli.render.live_view import LiveView, PlainView, one_line
from cleveragents.cli.run.interruption import PAUSING
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.family import short_of, title_of, wanted_parts
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import parked_until

if TYPE_CHECKING:
    from typing import TextIO

    from rich.text import Text

    from cleveragents.cli.plan.meter import Meter, MeterReading
    from cleveragents.plans.model.plan import Plan

__all__ = ["RichView", "countdown", "elapsed", "in_lines", "spinner", "styled"]

_READ_SECONDS = 0.5
_TAIL = 2_000
_TAIL_LINES = 2
_WIDE = 70
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STEP = re.compile(r"step \d+ of \d+|check |fix attempt|\S+ reads the changes")
_STYLES = (
    (_STEP, "bold"),
    (re.compile(r"    it failed: "), "red"),
    (re.compile(r"  (?![“ ])"), "dim"),
)


@dataclass(frozen=True, slots=True)
class _Now:
    """The current activity."""

    step: str = ""
    doing: str = ""
    tail: str = ""


class RichView:
    """A live view of one plan and its sub-plans.

    Any thread may call it: a plain view writes its lines one at a time, and the current activity is replaced
    in one step. The command that runs the plan starts and closes it; everything before `close` is on the
    screen when `close` returns, except activity that is shown only while it happens.
    """

    def __init__(
        self,
        meter: Meter,
        *,
        hint: str,
        last_hint: str = "Ctrl-C again kills it",
        stream: TextIO | None = None,
        size: Callable[[], Size] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meter = meter
        self._hint = hint
        self._last_hint = last_hint
        self._stream = stream
        self._clock = clock
        self._started = clock()
        self._read_at: float | None = None
        self._now = _Now()
        self._stopping = False
        self._flows: dict[tuple[str, str], ChunkFlow] = {}
        self._rows: dict[str, BoardRow] = {}
        self._footer = Footer(self._lines, prepare=self._read, stream=stream, size=size)
        self._finished = PlainView(write=self._scroll, write_output=self._scroll_output)
        self._restore_logs: Callable[[], None] = _nothing

    def start(self) -> None:
        """Take the bottom of the terminal."""
        self._restore_logs = logs_to(self._footer.scroll)
        self._footer.start()

    def view_of(self, plan: Plan) -> LiveView:
        """Return this view for its own plan; for a sub-plan, a view that is shown in a row of its own."""
        if plan.id == self._meter.last.plan.id:
            return self
        known = self._rows.get(plan.id)
        return known or announced(self._rows, plan, BoardRow(self._scroll, short_of(plan.id)))

    def say(self, message: str) -> None:
        self._finished.say(message)
        if message.startswith(PAUSING):
            self._stopping = True
        if _STEP.match(message):
            self._now = _Now(step=one_line(message))
            self._read_at = None  # the heading shows the phase of this step

    def seen(self, seen: Progress) -> None:
        self._finished.seen(seen)
        key = seen.actor, seen.node
        if seen.kind is ProgressKind.PIECE:
            flow = self._flows.setdefault(key, ChunkFlow())
            now = self._now
            self._now = replace(now, tail=(now.tail + flow(seen.text))[-_TAIL:])
            return
        self._flows.pop(key, None)
        who = seen.actor.rpartition("/")[2]
        doing = {
            ProgressKind.NODE: f"{who}: {seen.node}",
            ProgressKind.THINKING: f"{who} is thinking{f' ({seen.text})' if seen.text else ''}",
            ProgressKind.TOOL: f"{who}: {one_line(seen.text)}",
        }
        self._now = replace(self._now, doing=doing.get(seen.kind, ""), tail="")

    def output(self, chunk: bytes) -> None:
        self._finished.output(chunk)

    def draw(self) -> None:
        """Update the screen once. Can be used without `start`."""
        self._footer.draw()

    def close(self) -> None:
        self._finished.close()
        self._footer.close()
        self._restore_logs()
        if self._stream is None:
            _forget_what_was_typed()

    def _scroll(self, line: str) -> None:
        style = next((style for shape, style in _STYLES if shape.match(line)), "")
        self._footer.scroll_words(printable(redact_text(line)), style)

    def _scroll_output(self, line: str) -> None:
        # Unchanged: the terminal wraps it, and copying joins it again.
        self._footer.scroll(styled(printable(redact_text(line)), "dim"))

    def _read(self) -> None:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= _READ_SECONDS:
            self._read_at = now
            self._meter.read()

    def _lines(self, room: Size) -> list[Text]:
        """Return the lines at the bottom for this size."""
        width, height = room
        now = self._clock()
        reading = self._meter.last
        shown = self._now
        heading = " · ".join(filter(None, [reading.status.value, shown.step, self._progress()]))
        spent = [*spending_label(reading), elapsed(now - self._started)]
        spent.append(self._last_hint if self._stopping else self._hint)
        doing = countdown(reading.plan) or shown.doing or self._idle(reading.plan)
        doing = "pausing …" if self._stopping else doing
        answer = [line for line in shown.tail.splitlines() if line.strip()][-_TAIL_LINES:]
        above = [
            styled(printable(f"── {heading} ").ljust(width, "─"), "cyan"),
            styled(printable(f"{spinner(now)} {doing}"), ""),
            *(styled(_end_of(printable(f"  {line}"), width), "dim italic") for line in answer),
        ]
        last = [styled(line, "dim") for line in in_lines(spent, width)]
        # One line is for scrolled lines.
        lines = [*above, *self._parts(width, height - len(above) - len(last) - 1), *last]
        # A very small terminal shows only the current activity.
        return lines if len(lines) <= height else lines[1:2]

    def _idle(self, plan: Plan) -> str:
        return "waiting for sub-plans" if waits_for_sub_plans(plan) else "working"

    def _progress(self) -> str:
        """Return the number of finished sub-plans of the plan, as text."""
        plan = self._meter.last.plan
        own = [reading.plan for reading in self._meter.below if reading.plan.parent_id == plan.id]
        done = sum(child.state is PlanState.COMPLETE for child in own)
        return f"{done} of {max(len(own), wanted_parts(plan))} sub-plans done" if own else ""

    def _parts(self, width: int, most: int) -> list[Text]:
        """Return a line for each sub-plan; if there are too many, for the most important ones."""
        readings = self._meter.below
        room = most if len(readings) <= most else most - 1
        first = sorted(readings, key=rank)[: max(room, 0)]
        kept = {reading.plan.id for reading in first}
        lines = [self._part(reading, width) for reading in readings if reading.plan.id in kept]
        if lines and len(lines) < len(readings):
            lines.append(styled(f"  … and {len(readings) - len(lines)} more", "dim"))
        return lines

    def _part(self, reading: MeterReading, width: int) -> Text:
        plan = reading.plan
        row = self._rows.get(plan.id)
        running = plan.state is PlanState.PROCESSING and row is not None
        doing = f"{spinner(self._clock())} {row.doing}" if running and row is not None else countdown(plan)
        # Sub-plans are indented; the plan itself is the heading.
        inset = "  " * max(1, plan.depth - self._meter.last.plan.depth)
        spent = any(one.spent.tokens for one in self._meter.below)
        cells = [short_of(plan.id), reading.status.value.ljust(10)]
        cells += [f"{reading.spent.tokens:,}".rjust(7)] if spent and width >= _WIDE else []
        line = beside(cells, title_of(plan), doing, width - len(inset))
        return styled(printable(f"{inset}{line}"), COLOURS.get(reading.status, ""))


def styled(text: str, style: str) -> Text:
    """Return the text with a style, without interpreting markup."""
    from rich.text import Text

    return Text(text, style=style, no_wrap=True)


def countdown(plan: Plan) -> str:
    """Return `usage limit, continues in 1:02:03` for a plan that waits for a usage limit; empty for other
    plans.
    """
    until = parked_until(plan)
    if until is None:
        return ""
    return f"usage limit, continues in {elapsed((until - datetime.now(UTC)).total_seconds())}"


def elapsed(seconds: float) -> str:
    """Return `0:42`, `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def spinner(now: float) -> str:
    """Return the current frame of the spinner, four a second."""
    return _FRAMES[int(now * 4) % len(_FRAMES)]


def in_lines(words: list[str], width: int) -> list[str]:
    """Return the words joined by dots, on as many lines as needed."""
    lines = [""]
    for word in words:
        joined = f"{lines[-1]} · {word}" if lines[-1] else word
        if len(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _end_of(line: str, width: int) -> str:
    """Return the end of the line, which has the newest text."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    end = line[-width:]
    while cell_len(end) >= width:  # a character may take two columns
        end = end[1:]
    return f"…{end}"


def _forget_what_was_typed() -> None:
    """Discard type-ahead, so that it does not answer the next question."""
    import termios

    try:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    except (OSError, ValueError, termios.error):
        return  # stdin is not a terminal


def _nothing() -> None:
    """Do nothing. Used if no terminal setting has to be restored."""
