"""A row of the board: the activity of one plan. Its messages scroll above the board."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.render.live_view import lines_of, one_line
from cleveragents.cli.render.narrow_terminal import NARROW
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.cli.plan.meter import MeterReading

__all__ = ["COLOURS", "GAP", "BoardRow", "beside", "fitted", "rank"]

GAP = "  "
_STEP = re.compile(r"^step (\d+) of (\d+): ")
COLOURS = {
    PlanStatus.PLANNING: "cyan",
    PlanStatus.RUNNING: "cyan",
    PlanStatus.APPLYING: "cyan",
    PlanStatus.READY: "green",
    PlanStatus.UNCHANGED: "green",
    PlanStatus.MERGED: "green",
    PlanStatus.APPLIED: "green",
    PlanStatus.WAITING: "yellow",
    PlanStatus.PAUSED: "yellow",
    PlanStatus.BLOCKED: "red",
    PlanStatus.FAILED: "red",
    PlanStatus.CANCELLED: "magenta",
}
_RANKS = (
    {PlanStatus.PLANNING, PlanStatus.RUNNING, PlanStatus.APPLYING},
    {PlanStatus.WAITING},
    {PlanStatus.FAILED, PlanStatus.BLOCKED, PlanStatus.PAUSED},
    {PlanStatus.QUEUED},
)


class BoardRow:
    """The view of one plan: its activity is shown in its row, and its messages scroll above the board. Any
    thread may call it.
    """

    def __init__(self, scroll: Callable[[str], None], short: str) -> None:
        self._scroll = scroll
        self._short = short
        self.doing = ""

    def say(self, message: str) -> None:
        self.doing = _STEP.sub(r"\1/\2 ", one_line(message))
        for line in message.split("\n"):
            self._scroll(f"{self._short}{GAP}{line}")

    def seen(self, seen: Progress) -> None:
        if seen.kind is ProgressKind.THINKING:
            self.doing = f"{seen.actor.rpartition('/')[2]} is thinking"
        elif seen.kind is ProgressKind.TOOL:
            self.doing = one_line(seen.text)
        elif seen.failed:
            for line in lines_of(seen):
                self._scroll(f"{self._short}{GAP}{line}")

    def output(self, chunk: bytes) -> None:
        """Drop the output, because the outputs of several plans at once would be unreadable. `agents plan
        log` shows it.
        """

    def close(self) -> None:
        """Do nothing. The board closes all rows."""


def rank(reading: MeterReading) -> int:
    """Return the place of a plan on the board: running first, then waiting, failed, queued, ended."""
    found = (place for place, statuses in enumerate(_RANKS) if reading.status in statuses)
    return next(found, len(_RANKS))


def fitted(short: str, status: str, tokens: str, goal: str, doing: str, width: int) -> str:
    """Return the row of a plan; a narrow terminal shows no tokens."""
    cells = [short.ljust(6), status.ljust(10)]
    if width >= 70:
        cells.append(tokens.rjust(8))
    return beside(cells, goal, doing, width)


def beside(cells: Sequence[str], goal: str, doing: str, width: int) -> str:
    """Return the cells, then the goal and, if there is room, the activity."""
    from rich.cells import set_cell_size

    rest = width - sum(len(cell) + len(GAP) for cell in cells)
    if width < NARROW:
        return GAP.join([*cells, _cut(goal, rest)])
    for_goal = max(10, (rest - len(GAP)) // 2)
    return GAP.join([*cells, set_cell_size(_cut(goal, for_goal), for_goal), doing])


def _cut(text: str, room: int) -> str:
    """Return the text cut to a number of columns; a character may take two."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else f"{set_cell_size(text, max(room - 1, 0))}…"
