"""What is seen of several plans that run at once: line by line, each with the plan it is about."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cleveragents.interfaces.cli.live_view import LiveView, PlainView, is_for_terminal
from cleveragents.interfaces.cli.output import progress
from cleveragents.interfaces.cli.plan_outcome import short_ids

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.domain.plan import Plan
    from cleveragents.interfaces.cli.output import Output

__all__ = ["Board", "PlainBoard", "StreamBoard", "board_for"]


class Board(Protocol):
    """Shows plans under way. Any thread may tell it something."""

    def view_of(self, plan: Plan) -> LiveView:
        """Where that plan is shown."""
        ...

    def say(self, message: str) -> None:
        """About all of them."""
        ...

    def close(self) -> None:
        """Nothing more will come. A second call changes nothing."""
        ...


class PlainBoard:
    """Lines that begin with the end of the plan's id. Immutable; its views look after themselves."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._views = {one: PlainView(f"{short}  ") for one, short in short_ids(plans).items()}

    def view_of(self, plan: Plan) -> LiveView:
        return self._views[plan.id]

    def say(self, message: str) -> None:
        progress(message)

    def close(self) -> None:
        for view in self._views.values():
            view.close()


class StreamBoard:
    """JSON on stdout, for programs; what is about all plans is for people.

    Thread safety:
        Owner: the command that runs the plans; any thread may tell its views.
        Lock: `_lock` is that of all its views, each of which holds it while it writes.
        Guarantee: every line is one whole object of one plan.
    Cancel safety: nothing waits for anything but the reader.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        from cleveragents.interfaces.cli.stream_view import StreamView

        self._lock = threading.Lock()
        self._views = {plan.id: StreamView(plan.id, lock=self._lock) for plan in plans}

    def view_of(self, plan: Plan) -> LiveView:
        return self._views[plan.id]

    def say(self, message: str) -> None:
        progress(message)

    def close(self) -> None:
        for view in self._views.values():
            view.close()


def board_for(container: Container, plans: Sequence[Plan], output: Output) -> Board:
    """The board that fits where it is shown."""
    if output.format == "stream-json":
        return StreamBoard(plans)
    if not is_for_terminal(output):
        return PlainBoard(plans)
    from cleveragents.interfaces.cli.plan_meter import PlanMeter
    from cleveragents.interfaces.cli.rich_board import RichBoard

    parts = container.plan_parts
    board = RichBoard([PlanMeter(parts, plan) for plan in plans])
    board.start()
    return board
