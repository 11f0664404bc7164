"""Boards: the progress of plans that run in parallel, with their sub-plans, line by line."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from cleveragents.cli.output import printed, progress
from cleveragents.cli.plan.exit_codes import short_ids
from cleveragents.cli.render.live_view import LiveView, PlainView, is_for_terminal
from cleveragents.plans.family import short_of, title_of

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.cli.output import Output
    from cleveragents.cli.plan.meter import Meter
    from cleveragents.cli.render.rich_board import RichBoard
    from cleveragents.cli.render.rich_view import RichView
    from cleveragents.cli.render.stream_view import StreamView
    from cleveragents.plans.model.plan import Plan

__all__ = ["Board", "PlainBoard", "StreamBoard", "announced", "board_for", "board_of"]

_View = TypeVar("_View", bound=LiveView)


class Board(Protocol):
    """A display of running plans. Any thread may call it."""

    def view_of(self, plan: Plan) -> LiveView:
        """Return the view of a plan; the first request for a sub-plan announces it."""
        ...

    def say(self, message: str) -> None:
        """Print a line about all plans."""
        ...

    def close(self) -> None:
        """End the display. A second call changes nothing."""
        ...


class PlainBoard:
    """A board that prints lines, each prefixed with the end of the plan's id. A plan that is `alone` has no
    prefix; its sub-plans have one.

    Any thread may request a view; the first request for a plan creates the view, in one step. Views are
    thread-safe.
    """

    def __init__(self, plans: Sequence[Plan], *, alone: bool = False) -> None:
        prefixes = {
            one: "" if alone else f"{short}  "
            for one, short in short_ids([plan.id for plan in plans]).items()
        }
        self._views = {one: PlainView(prefix, write_output=printed) for one, prefix in prefixes.items()}

    def view_of(self, plan: Plan) -> LiveView:
        known = self._views.get(plan.id)
        return known or announced(
            self._views, plan, PlainView(f"{short_of(plan.id)}  ", write_output=printed)
        )

    def say(self, message: str) -> None:
        progress(message)

    def close(self) -> None:
        for view in list(self._views.values()):
            view.close()


class StreamBoard:
    """JSON on stdout for programs; lines about all plans go to stderr.

    Thread safety:
        Owner: the command that runs the plans. Any thread may request a view and call it; the first request
        for a plan makes its view, in one step.
        Lock: `_lock` is shared by all views; each holds it while it writes.
        Guarantee: every line is one whole object of one plan.
    Cancel safety: a call waits only for the reader of the output.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._lock = threading.Lock()
        self._views = {plan.id: self._made(plan) for plan in plans}

    def view_of(self, plan: Plan) -> LiveView:
        return self._views.get(plan.id) or announced(self._views, plan, self._made(plan))

    def say(self, message: str) -> None:
        progress(message)

    def close(self) -> None:
        for view in list(self._views.values()):
            view.close()

    def _made(self, plan: Plan) -> StreamView:
        from cleveragents.cli.render.stream_view import StreamView

        return StreamView(plan.id, parent_id=plan.parent_id, lock=self._lock)


def announced(views: dict[str, _View], plan: Plan, made: _View) -> _View:
    """Return the view of a sub-plan. The first call stores the new view `made` and announces the plan; a
    concurrent call gets the same view.
    """
    view = views.setdefault(plan.id, made)
    if view is made:
        view.say(f"plan {plan.id}: {title_of(plan)}")
    return view


def board_for(
    container: Container,
    plans: Sequence[Plan],
    output: Output | None,
    *,
    alone: bool = False,
    hint: str = "Ctrl-C pauses it",
) -> Board:
    """Return the board for plans of this machine; see `board_of`."""
    from cleveragents.cli.plan.meter import PlanMeter

    meters = [PlanMeter(container.plan_parts, plan) for plan in plans]
    return board_of(meters, output, alone=alone, hint=hint)


def board_of(
    meters: Sequence[Meter],
    output: Output | None,
    *,
    alone: bool = False,
    hint: str = "Ctrl-C pauses it",
    last: str = "",
) -> Board:
    """Return the board for the plans of these meters and this output. A plan that is `alone` is shown in
    detail, with its sub-plans below. `hint` explains the first Ctrl-C, `last` the second.
    """
    last = last or ("kills it" if alone else "kills them")
    plans = [meter.last.plan for meter in meters]
    if output is not None and output.format == "stream-json":
        return StreamBoard(plans)
    if not is_for_terminal(output):
        return PlainBoard(plans, alone=alone)
    board: RichBoard | RichView
    if alone:
        from cleveragents.cli.render.rich_view import RichView

        board = RichView(meters[0], hint=hint, last_hint=f"Ctrl-C again {last}")
    else:
        from cleveragents.cli.render.rich_board import RichBoard

        board = RichBoard(meters, last_hint=f"Ctrl-C again {last}")
    board.start()
    return board
