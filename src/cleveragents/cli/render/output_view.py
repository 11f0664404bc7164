"""Views of plans that run elsewhere: their recorded output, shown as if they ran here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
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
    """A board for the recorded output of plans. Not thread-safe: use it in the thread that made it."""

    def __init__(self, board: Board, *plans: Plan) -> None:
        self._board = board
        self._shown: dict[str, _Shown] = {}
        for plan in plans:
            self.add(plan)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the shown plans."""
        return iter(list(self._shown))

    def __contains__(self, plan_id: object) -> bool:
        return plan_id in self._shown

    def add(self, plan: Plan) -> None:
        """Show one more plan from now on."""
        if plan.id not in self._shown:
            self._shown[plan.id] = _Shown(self._board.view_of(plan))

    def say(self, plan_id: str, message: str) -> None:
        """Print a line of one plan."""
        self._shown[plan_id].say(message)

    def show(self, plan_id: str, kind: str, text: str) -> None:
        """Show a piece of recorded output."""
        shown = self._shown.get(plan_id)
        if shown is not None:
            shown.piece(kind, text)

    def close(self) -> None:
        """Stop showing. A second call changes nothing."""
        for shown in self._shown.values():
            shown.end_thought()
        self._board.close()


class _Shown:
    """The state of one plan: the active actor, and the answer of its model so far."""

    def __init__(self, view: LiveView) -> None:
        self._view = view
        self._actor = self._node = ""
        self._asked = False
        self._thought = ""
        self._held = ""
        self._call: tuple[str, object] | None = None
        """The tool and the arguments of the call whose line follows."""

    def say(self, message: str) -> None:
        self.end_thought()
        self._view.say(message)

    def piece(self, kind: str, text: str) -> None:
        if kind == "model":
            self._think(text)
            return
        if self._asked and not self._thought:  # the model calls a tool without any text
            self._asked = False
            self._tell(ProgressKind.THOUGHT)
        self.end_thought()
        if kind == "progress":
            for line in text.splitlines():
                self._line(line)
        elif kind == "output":
            self._view.output(text.encode("utf-8", "surrogateescape"))
        elif kind == "node":
            with suppress(ValueError):  # a masked part may have broken it
                self._mark(json.loads(text))

    def end_thought(self) -> None:
        """Print the complete answer of a model as a line, as for a plan that runs here."""
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
        elif kind == ProgressKind.TOOL.value:
            self._call = str(at.get("tool", "")), at.get("arguments")
        elif kind in _MARKS:
            self._tell(_MARKS[kind], str(at.get("text", "")))

    def _think(self, text: str) -> None:
        if not self._asked:  # records of earlier versions do not contain it
            self._asked = True
            self._tell(ProgressKind.THINKING)
        whole = self._held + text
        # A recorded answer ends with a line break that is not part of it.
        said = whole.removesuffix("\n")
        self._held = whole[len(said) :]
        self._thought += said
        if said:
            self._tell(ProgressKind.PIECE, said)

    def _line(self, line: str) -> None:
        """Show a recorded line. A line about a tool call is recognized by its beginning and shown as an
        activity.
        """
        if line.startswith(_FAILED):
            self._tell(ProgressKind.TOOL_DONE, line.removeprefix(_FAILED), failed=True)
        elif line.startswith(_CALL) and line[len(_CALL) :].strip():
            tool, arguments = self._call or (None, None)
            self._call = None
            text = line.removeprefix(_CALL)
            self._view.seen(
                Progress(
                    ProgressKind.TOOL, self._actor, self._node, text, tool=tool or None, arguments=arguments
                )
            )
        else:
            self._view.say(line)

    def _tell(self, kind: ProgressKind, text: str = "", *, failed: bool = False) -> None:
        self._view.seen(Progress(kind, self._actor, self._node, text, failed=failed))
