"""Plans that are run in front: by a worker of this very command, until they rest or are interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.meanings import meaning_of
from cleveragents.cli.output import progress
from cleveragents.cli.plan.outcome import INTERRUPTED
from cleveragents.cli.plan.view import told_next
from cleveragents.cli.render.board import Board, PlainBoard
from cleveragents.cli.run.interruption import Interrupts, give_back, stop_plans
from cleveragents.jobs.worker.log import NO_STORE
from cleveragents.plans.family import below
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan

__all__ = ["end_unless_cancelled", "run_in_front", "run_to_rest"]

_FOREVER = 30 * 24 * 3600.0


def run_in_front(
    container: Container,
    plans: Sequence[Plan],
    show: Callable[[], Board],
    hire: Callable[[Board], AsyncWorker],
) -> bool:
    """Whether it was interrupted. `show` makes the board; `hire` says there what is run, and makes the worker
    that does it, for this to start. When it returns, nothing of the plans runs here, and the board is closed.

    Ctrl-C cancels those that run; what was done already, or waits for a person, is as it was, and whoever
    interrupted is to be asked nothing more. SIGTERM leaves all to be resumed, and is raised; so does a store
    that cannot be used for a whole lease, as `StoreFull`.
    """
    worker: AsyncWorker | None = None
    board: Board = PlainBoard(plans, alone=len(plans) == 1)
    with Interrupts() as heard:
        try:
            board = show()
            worker = hire(board)
            worker.start()
            run_to_rest(container, plans, worker)
            # guard: it would compete for what is queued after the next answer, and tell of that here
            worker.close()
        except KeyboardInterrupt:
            heard.stopping = True
            try:
                stop_plans(container, plans, worker, board, heard)
            except NO_STORE:
                _tell_unrecorded(plans)
                raise
            return True
        except SystemExit:
            give_back(worker)
            board.close()
            for plan in plans:
                progress(f"stopped; `agents plan resume {plan.id}` goes on with it")
            raise
        except NO_STORE:
            give_back(worker)
            board.close()
            _tell_unrecorded(plans)
            raise
        finally:
            board.close()
    return False


def _tell_unrecorded(plans: Sequence[Plan]) -> None:
    for plan in plans:
        progress(f"stopped: what plan {plan.id} does cannot be recorded; what was recorded is kept")
        progress(f"once that is mended, `agents plan resume {plan.id}` goes on with it")


def end_unless_cancelled(parts: PlanParts, plan: Plan) -> None:
    """Ends the command that was interrupted when the plan had come to rest already: whoever stops it wants it
    neither to be applied, nor to be asked about it."""
    if plan.state is PlanState.CANCELLED:
        return
    progress(f"interrupted; plan {plan.id} is left as it is: {meaning_of(parts, plan)}")
    told_next(parts, plan)
    raise click.exceptions.Exit(INTERRUPTED)


def run_to_rest(container: Container, plans: Sequence[Plan], worker: AsyncWorker) -> None:
    """Returns when nothing of these plans, or below them, goes on by itself any more.

    A job whose worker was killed too often ends without a word: whoever waits for its plan hears of it here.
    """
    parts = container.plan_parts
    taken_up = True
    while taken_up:
        worker.run_until_idle(_FOREVER)
        taken_up = any(_is_taken_up(parts, plan) for plan in plans)


def _is_taken_up(parts: PlanParts, plan: Plan) -> bool:
    """Whether there is something to be done for the plan, now that it knows what became of its jobs."""
    plan = parts.lifecycle.reconciled(parts.plans.get(plan.id))
    jobs = (parts.lifecycle.queueing.job_of(one) for one in (plan, *below(parts, plan)))
    return any(job is not None and not job.state.ended and not job.queue for job in jobs)
