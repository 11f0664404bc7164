"""Several plans on a terminal: a table at the bottom, a row for each, and above it what they say."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.domain.plan import PlanState
from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.domain.redaction import redact_text
from cleveragents.interfaces.cli.footer import Footer, Size
from cleveragents.interfaces.cli.interruption import STOPPING
from cleveragents.interfaces.cli.live_view import LiveView, lines_of, one_line
from cleveragents.interfaces.cli.log_lines import logs_to
from cleveragents.interfaces.cli.narrow import NARROW
from cleveragents.interfaces.cli.output import printable
from cleveragents.interfaces.cli.plan_outcome import short_ids
from cleveragents.interfaces.cli.plan_view import goal_of
from cleveragents.interfaces.cli.rich_view import elapsed, in_lines, spinner, styled

if TYPE_CHECKING:
    from typing import TextIO

    from rich.text import Text

    from cleveragents.domain.plan import Plan
    from cleveragents.interfaces.cli.plan_meter import PlanMeter

__all__ = ["RichBoard"]

_READ_SECONDS = 1.0
_GAP = "  "
_OTHER_LINES = 4
"""Heading, what is left out, sums; and one that scrolls."""

_COLOURS = {
    PlanState.PROCESSING: "cyan",
    PlanState.COMPLETE: "green",
    PlanState.WAITING: "yellow",
    PlanState.ERRORED: "red",
    PlanState.CANCELLED: "magenta",
}


class _Row:
    """The view of one plan: what it does is in its row, what it says scrolls. Any thread may tell it."""

    def __init__(self, board: RichBoard, short: str) -> None:
        self._board = board
        self._short = short
        self.doing = ""

    def say(self, message: str) -> None:
        self.doing = one_line(message)
        self._board.scroll(f"{self._short}{_GAP}{message}")

    def seen(self, seen: Progress) -> None:
        if seen.kind is ProgressKind.THINKING:
            self.doing = f"{seen.actor.rpartition('/')[2]} is thinking"
        elif seen.kind is ProgressKind.TOOL:
            self.doing = one_line(seen.text)
        elif seen.failed:
            for line in lines_of(seen):
                self._board.scroll(f"{self._short}{_GAP}{line}")

    def output(self, chunk: bytes) -> None:
        """Of several commands at once nobody could read it; `agents plan log` has it."""

    def close(self) -> None:
        """The board is closed, not its rows."""


class RichBoard:
    """A live table of plans. Any thread may tell its views: what a row does is replaced in one step, and the
    footer looks after itself. The command that runs the plans starts and closes it; what was said before
    `close` is on the screen when that returns."""

    def __init__(
        self,
        meters: Sequence[PlanMeter],
        *,
        stream: TextIO | None = None,
        size: Callable[[], Size] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._meters = meters
        self._shorts = short_ids([meter.last.plan for meter in meters])
        self._rows = {one: _Row(self, short) for one, short in self._shorts.items()}
        self._clock = clock
        self._started = clock()
        self._read_at: float | None = None
        self._stopping = False
        self._footer = Footer(self._lines, prepare=self._read, stream=stream, size=size)
        self._restore_logs: Callable[[], None] | None = None

    def start(self) -> None:
        """Takes the bottom of the terminal."""
        self._restore_logs = logs_to(self._footer.scroll)
        self._footer.start()

    def view_of(self, plan: Plan) -> LiveView:
        return self._rows[plan.id]

    def say(self, message: str) -> None:
        self.scroll(message)
        if message.startswith(STOPPING):
            self._stopping = True

    def scroll(self, line: str) -> None:
        """A line that is finished."""
        self._footer.scroll(styled(printable(redact_text(line)), ""))

    def draw(self) -> None:
        """Brings the screen up to date, for those who do not `start`."""
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
            if meter.last.plan.state.running or meter.last.plan.state is PlanState.COMPLETE:
                meter.read()

    def _lines(self, room: Size) -> list[Text]:
        width, height = room
        plans = [meter.last.plan for meter in self._meters]
        most = max(1, height - _OTHER_LINES)
        shown = sorted(self._meters, key=lambda meter: _rank(meter.last.plan))[:most]
        lines = [styled(_fitted("plan", "phase", "state", "tokens", "goal", "what it does", width), "bold")]
        lines += [self._line(meter, width) for meter in shown]
        if len(plans) > most:
            rest = Counter(meter.last.plan.state.value for meter in self._meters if meter not in shown)
            told = ", ".join(f"{number} {state}" for state, number in rest.items())
            lines.append(styled(f"… and {told}", "dim"))
        lines += [styled(line, "dim") for line in in_lines(self._sums(plans), width)]
        return lines

    def _line(self, meter: PlanMeter, width: int) -> Text:
        plan = meter.last.plan
        working = plan.state is PlanState.PROCESSING
        doing = f"{spinner(self._clock())} {self._rows[plan.id].doing}" if working else ""
        cells = (self._shorts[plan.id], plan.phase.value, plan.state.value, f"{meter.last.spent.tokens:,}")
        return styled(printable(_fitted(*cells, goal_of(plan), doing, width)), _COLOURS.get(plan.state, ""))

    def _sums(self, plans: Sequence[Plan]) -> list[str]:
        done = sum(not plan.state.running for plan in plans)
        tokens = sum(meter.last.spent.tokens for meter in self._meters)
        words = [f"{done} of {len(plans)} done", f"{tokens:,} tokens"]
        hint = "stopping …, Ctrl-C again ends them at once" if self._stopping else "Ctrl-C stops them all"
        return [*words, elapsed(self._clock() - self._started), hint]


def _rank(plan: Plan) -> int:
    """What runs is seen first, then what needs somebody, what is to come, what is over."""
    order = (PlanState.PROCESSING, PlanState.WAITING, PlanState.ERRORED, PlanState.QUEUED)
    return order.index(plan.state) if plan.state in order else len(order)


def _fitted(short: str, phase: str, state: str, tokens: str, goal: str, doing: str, width: int) -> str:
    """The cells beside each other; on a narrow terminal without those that say least."""
    cells = [short.ljust(6), state.ljust(10)]
    if width >= 70:
        cells = [short.ljust(6), phase.ljust(10), state.ljust(10), tokens.rjust(8)]
    rest = width - sum(len(cell) + len(_GAP) for cell in cells)
    if width < NARROW:
        return _GAP.join([*cells, _cut(goal, rest)])
    for_goal = max(10, (rest - len(_GAP)) // 2)
    return _GAP.join([*cells, _cut(goal, for_goal).ljust(for_goal), doing])


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(room - 1, 0)]}…"
