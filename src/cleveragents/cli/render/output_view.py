"""What plans print that run elsewhere, piece by piece as it is kept, shown as if they ran here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cleveragents.actors.model.actor import Progress, ProgressKind

if TYPE_CHECKING:
    from cleveragents.cli.render.board import Board
    from cleveragents.cli.render.live_view import LiveView
    from cleveragents.plans.model.plan import Plan

__all__ = ["PlanOutputView"]

_FAILED = "    it failed: "
_CALL = "  "
_MARKS = {kind.value: kind for kind in (ProgressKind.THINKING, ProgressKind.TOOL_DONE)}


class PlanOutputView:
    """Shows plans, and those below them, on a board. Not thread-safe: who watches tells it."""

    def __init__(self, board: Board, *plans: Plan) -> None:
        self._board = board
        self._shown: dict[str, _Shown] = {}
        for plan in plans:
            self.add(plan)

    def __iter__(self) -> Iterator[str]:
        """The plans that are shown."""
        return iter(list(self._shown))

    def __contains__(self, plan_id: object) -> bool:
        return plan_id in self._shown

    def add(self, plan: Plan) -> None:
        """One more is shown, from now on."""
        if plan.id not in self._shown:
            self._shown[plan.id] = _Shown(self._board.view_of(plan))

    def say(self, plan_id: str, message: str) -> None:
        """About one of the plans."""
        self._shown[plan_id].say(message)

    def show(self, plan_id: str, kind: str, text: str) -> None:
        """A piece of what it printed."""
        shown = self._shown.get(plan_id)
        if shown is not None:
            shown.piece(kind, text)

    def close(self) -> None:
        """Nothing more is shown. A second call changes nothing."""
        for shown in self._shown.values():
            shown.end_thought()
        self._board.close()


class _Shown:
    """One plan of them: who of it is at work, and what a model has said so far."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._actor = self._node = ""
        self._asked = False
        self._thought = ""
        self._held = ""

    def say(self, message: str) -> None:
        self.end_thought()
        self._view.say(message)

    def piece(self, kind: str, text: str) -> None:
        if kind == "model":
            self._think(text)
            return
        if self._asked and not self._thought:  # it says nothing, and does something
            self._asked = False
            self._tell(ProgressKind.THOUGHT)
        self.end_thought()
        if kind == "progress":
            for line in text.splitlines():
                self._line(line)
        elif kind == "output":
            self._view.output(text.encode("utf-8", "surrogateescape"))
        elif kind == "node":
            self._mark(json.loads(text))

    def end_thought(self) -> None:
        """What a model said is told in a line when it has ended, as of a plan that runs here."""
        thought = self._thought
        self._thought = self._held = ""
        if thought:
            self._asked = False
            self._tell(ProgressKind.THOUGHT, thought)

    def _mark(self, at: Mapping[str, Any]) -> None:
        self._actor, self._node = str(at["actor"]), str(at["node"])
        kind = at.get("event")
        self._asked = kind == ProgressKind.THINKING.value
        if kind is None:
            self._tell(ProgressKind.NODE)
        elif kind in _MARKS:
            self._tell(_MARKS[kind], str(at.get("text", "")))

    def _think(self, text: str) -> None:
        if not self._asked:  # what was kept by an earlier version does not say so
            self._asked = True
            self._tell(ProgressKind.THINKING)
        whole = self._held + text
        # One that was kept ends with a line break, which is not the model's.
        said = whole.removesuffix("\n")
        self._held = whole[len(said) :]
        self._thought += said
        if said:
            self._tell(ProgressKind.PIECE, said)

    def _line(self, line: str) -> None:
        """What is kept of calls begins as it was shown where the plan runs."""
        if line.startswith(_FAILED):
            self._tell(ProgressKind.TOOL_DONE, line.removeprefix(_FAILED), failed=True)
        elif line.startswith(_CALL) and line[len(_CALL) :].strip():
            self._tell(ProgressKind.TOOL, line.removeprefix(_CALL))
        else:
            self._view.say(line)

    def _tell(self, kind: ProgressKind, text: str = "", *, failed: bool = False) -> None:
        self._view.seen(Progress(kind, self._actor, self._node, text, failed=failed))
