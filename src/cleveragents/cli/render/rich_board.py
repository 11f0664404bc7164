"""Several plans on a terminal: a table at the bottom with a row for each, and their messages above it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.cli.log_lines import logs_to
from cleveragents.cli.output import printable
from cleveragents.cli.plan.exit_codes import short_ids
from cleveragents.cli.render.board import announced
from cleveragents.cli.render.board_row import COLOURS, BoardRow, fitted, rank
from cleveragents.cli.render.footer import Footer, Size
from cleveragents.cli.render.live_view import LiveView
from cleveragents.cli.render.rich_view import countdown, elapsed, in_lines, spinner, styled
from cleveragents.cli.run.interruption import PAUSING
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.family import short_of, title_of
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from cleveragents.plans.model.usage_wait import is_parked

if TYPE_CHECKING:
    from typing import TextIO

    from rich.text import Text

    from cleveragents.cli.plan.meter import Meter, MeterReading
    from cleveragents.plans.model.plan import Plan

__all__ = ["RichBoard"]

_READ_SECONDS = 1.0
_OTHER_LINES = 4
"""Heading, omitted plans, totals, and one line that scrolls."""

_MAY_GO_ON = (PlanState.COMPLETE, PlanState.WAITING)
"""States of plans that may continue without a person: a complete plan can be applied, and a waiting plan may
wait for its sub-plans.
"""


class RichBoard:
    """A live table of plans.

    Any thread may call its views: the activity of a row is replaced in one step, and the footer is
    thread-safe. The command that runs the plans starts and closes it; messages before `close` are on the
    screen when `close` returns.
    """

    def __init__(
        self,
        meters: Sequence[Meter],
        *,
        last_hint: str = "Ctrl-C again kills them",
        stream: TextIO | None = None,
        size: Callable[[], Size] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meters = meters
        self._last_hint = last_hint
        self._shorts = short_ids([meter.last.plan.id for meter in meters])
        self._rows = {one: BoardRow(self.scroll, short) for one, short in self._shorts.items()}
        self._clock = clock
        self._started = clock()
        self._read_at: float | None = None
        self._stopping = False
        self._footer = Footer(self._lines, prepare=self._read, stream=stream, size=size)
        self._restore_logs: Callable[[], None] | None = None

    def start(self) -> None:
        """Take the bottom of the terminal."""
        self._restore_logs = logs_to(self._footer.scroll)
        self._footer.start()

    def view_of(self, plan: Plan) -> LiveView:
        known = self._rows.get(plan.id)
        return known or announced(self._rows, plan, BoardRow(self.scroll, short_of(plan.id)))

    def say(self, message: str) -> None:
        self.scroll(message)
        if message.startswith(PAUSING):
            self._stopping = True

    def scroll(self, line: str) -> None:
        """Append a finished line."""
        self._footer.scroll_words(printable(redact_text(line)))

    def draw(self) -> None:
        """Update the screen once. Can be used without `start`."""
        self._footer.draw()

    def close(self) -> None:
        self._footer.close()
        restore, self._restore_logs = self._restore_logs, None
        if restore is not None:
            restore()

    def _read(self) -> None:
        now = self._clock()
        if self._read_at is not None and now - self._read_at < _READ_SECONDS:
            return
        self._read_at = now
        for meter in self._meters:
            if meter.last.plan.state.running or meter.last.plan.state in _MAY_GO_ON:
                meter.read()

    def _lines(self, room: Size) -> list[Text]:
        width, height = room
        readings = [
            reading
            for meter in sorted(self._meters, key=lambda meter: rank(meter.last))
            for reading in (meter.last, *meter.below)
        ]
        most = max(1, height - _OTHER_LINES)
        # The most important plans, at their usual places.
        first = sorted(readings, key=rank)[:most]
        kept = {reading.plan.id for reading in first}
        lines = [styled(fitted("plan", "status", "tokens", "goal", "activity", width), "bold")]
        lines += [self._line(reading, width) for reading in readings if reading.plan.id in kept]
        rest = [reading.status.value for reading in readings if reading.plan.id not in kept]
        if rest:
            told = ", ".join(f"{number} {status}" for status, number in Counter(rest).items())
            lines.append(styled(f"… and {told}", "dim"))
        lines += [styled(line, "dim") for line in in_lines(self._sums(), width)]
        return lines

    def _line(self, reading: MeterReading, width: int) -> Text:
        plan = reading.plan
        row = self._rows.get(plan.id)
        working = plan.state is PlanState.PROCESSING and row is not None
        doing = f"{spinner(self._clock())} {row.doing}" if working and row is not None else countdown(plan)
        short = self._shorts.get(plan.id) or f"{'  ' * plan.depth}{short_of(plan.id)}"
        cells = (short, reading.status.value, f"{reading.spent.tokens:,}")
        return styled(
            printable(fitted(*cells, title_of(plan), doing, width)), COLOURS.get(reading.status, "")
        )

    def _sums(self) -> list[str]:
        plans = [meter.last.plan for meter in self._meters]
        done = sum(not (plan.state.running or waits_for_sub_plans(plan) or is_parked(plan)) for plan in plans)
        tokens = sum(meter.last.spent.tokens for meter in self._meters)
        words = [f"{done} of {len(plans)} done", f"{tokens:,} tokens"]
        hint = f"pausing …, {self._last_hint}" if self._stopping else "Ctrl-C pauses them all"
        return [*words, elapsed(self._clock() - self._started), hint]
