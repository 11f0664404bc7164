"""A row of a table of plans: what one of them does, while what it says scrolls above the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.render.live_view import lines_of, one_line
from cleveragents.cli.render.narrow_terminal import NARROW
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.sub_plan import waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.plans.model.plan import Plan

__all__ = ["COLOURS", "GAP", "BoardRow", "beside", "fitted", "rank", "state_label"]

GAP = "  "
_STEP = re.compile(r"^step (\d+) of (\d+): ")
COLOURS = {
    PlanState.PROCESSING: "cyan",
    PlanState.COMPLETE: "green",
    PlanState.WAITING: "yellow",
    PlanState.ERRORED: "red",
    PlanState.CANCELLED: "magenta",
}
_RANKS = (PlanState.PROCESSING, PlanState.WAITING, PlanState.ERRORED, PlanState.QUEUED)


class BoardRow:
    """The view of one plan: what it does is in its row, what it says scrolls. Any thread may tell it."""

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
        """Of several commands at once nobody could read it; `agents plan log` has it."""

    def close(self) -> None:
        """The board is closed, not its rows."""


def rank(plan: Plan) -> int:
    """What runs is seen first, then what needs somebody, what is to come, what is over."""
    if waits_for_sub_plans(plan):
        return 0  # its parts run
    return _RANKS.index(plan.state) if plan.state in _RANKS else len(_RANKS)


def state_label(plan: Plan) -> str:
    """In one word; whose sub-plans run waits for nobody else."""
    return "sub-plans" if waits_for_sub_plans(plan) else plan.state.value


def fitted(short: str, phase: str, state: str, tokens: str, goal: str, doing: str, width: int) -> str:
    """The cells beside each other; on a narrow terminal without those that say least."""
    cells = [short.ljust(6), state.ljust(10)]
    if width >= 70:
        cells = [short.ljust(6), phase.ljust(10), state.ljust(10), tokens.rjust(8)]
    return beside(cells, goal, doing, width)


def beside(cells: Sequence[str], goal: str, doing: str, width: int) -> str:
    """The cells, and in the rest of the room what it is about and what it does; both, if that is enough."""
    from rich.cells import set_cell_size

    rest = width - sum(len(cell) + len(GAP) for cell in cells)
    if width < NARROW:
        return GAP.join([*cells, _cut(goal, rest)])
    for_goal = max(10, (rest - len(GAP)) // 2)
    return GAP.join([*cells, set_cell_size(_cut(goal, for_goal), for_goal), doing])


def _cut(text: str, room: int) -> str:
    """In so many columns, of which a character may take two."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else f"{set_cell_size(text, max(room - 1, 0))}…"
