"""What is seen of plans that run at once, sub-plans too: line by line, each with the plan it is about."""

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
    """Shows plans under way. Any thread may tell it something."""

    def view_of(self, plan: Plan) -> LiveView:
        """Where that plan is shown; a sub-plan that is asked for first appears with that."""
        ...

    def say(self, message: str) -> None:
        """About all of them."""
        ...

    def close(self) -> None:
        """Nothing more will come. A second call changes nothing."""
        ...


class PlainBoard:
    """Lines that begin with the end of the plan's id; those of one that is alone begin with nothing, only its
    sub-plans have theirs. Any thread may ask for a view: the first to ask for a plan's makes it, in one step;
    views look after themselves."""

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
    """JSON on stdout, for programs; what is about all plans is for people.

    Thread safety:
        Owner: the command that runs the plans; any thread may tell its views, and ask for one: the first to
            ask for a plan's makes it, in one step.
        Lock: `_lock` is that of all its views, each of which holds it while it writes.
        Guarantee: every line is one whole object of one plan.
    Cancel safety: nothing waits for anything but the reader.
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
    """The view of a sub-plan, which says of what; whoever else made one at the same time, it is the first."""
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
    hint: str = "Ctrl-C stops it",
) -> Board:
    """The board that fits where plans of this machine are shown; see `board_of`."""
    from cleveragents.cli.plan.meter import PlanMeter

    meters = [PlanMeter(container.plan_parts, plan) for plan in plans]
    return board_of(meters, output, alone=alone, hint=hint)


def board_of(
    meters: Sequence[Meter],
    output: Output | None,
    *,
    alone: bool = False,
    hint: str = "Ctrl-C stops it",
    last: str = "",
) -> Board:
    """The board that fits where the plans of these meters are shown. One that is `alone` is shown at length,
    and its sub-plans below it; `hint` says what Ctrl-C does then, `last` what a second one does."""
    last = last or ("ends it at once" if alone else "ends them at once")
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
