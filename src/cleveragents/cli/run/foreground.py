"""Foreground runs: a worker of this command runs plans until they come to rest or are interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.status_text import goal_of
from cleveragents.cli.output import progress
from cleveragents.cli.plan.exit_codes import INTERRUPTED
from cleveragents.cli.plan.view import print_next_steps
from cleveragents.cli.render.board import Board, PlainBoard, board_for
from cleveragents.cli.run.interruption import Interrupts, give_back, pause_plans
from cleveragents.jobs.worker.log import NO_STORE
from cleveragents.plans.family import below
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.client import LocalClient
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.cli.output import Output
    from cleveragents.core.tool import ToolCall
    from cleveragents.jobs.ports import JobHandler
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.output_recorder import OutputRecorder

__all__ = ["end_interrupted", "handler_of", "run_in_front", "run_until_rest", "work_in_front"]

_FOREVER = 30 * 24 * 3600.0


def work_in_front(
    client: LocalClient,
    plan: PlanView,
    output: Output | None = None,
    *,
    parallel: int | None = None,
    quiet: bool = False,
    answered: tuple[str, int] | None = None,
) -> PlanView:
    """Run the plan and return it once no job of its tree is left.

    Ctrl-C pauses the tree and exits with 130 when its processes are gone; the next steps are printed. A
    second Ctrl-C kills the processes. `quiet` omits the goal. `answered` is the call that the user has just
    answered: the line of its step is not printed again.
    """
    from cleveragents.plans.jobs.names import kind_of_plan

    container = client.access.container
    parts = container.plan_parts
    root = parts.plans.get(plan.root)

    def hire(board: Board, recorder: OutputRecorder) -> AsyncWorker:
        view = board.view_of(root)
        if not quiet and plan.parent is None:
            view.say(f"plan {root.id}: {goal_of(root)}")
        handlers = {kind_of_plan(root.id): handler_of(container, board, recorder, _call(parts, answered))}
        at_once = parallel or _asked_parallel(root) or container.settings.plan.max_parallel
        return container.worker(handlers, name=f"run-{os.getpid()}", concurrency=at_once)

    show = partial(board_for, container, [root], output, alone=True)
    interrupted = run_in_front(container, [root], show, hire)
    if interrupted:
        end_interrupted(client.plans.get(root.id))
    return client.plans.get(plan.id)


def _call(parts: PlanParts, answered: tuple[str, int] | None) -> ToolCall | None:
    if answered is None:
        return None
    plan_id, number = answered
    return next(call for call in parts.history.calls(plan_id) if call.number == number)


def _asked_parallel(plan: Plan) -> int | None:
    """Return the maximum number of parallel plans that the user requested for the tree."""
    asked = plan.request.get("max_parallel")
    return asked if isinstance(asked, int) else None


def handler_of(
    container: Container, board: Board, recorder: OutputRecorder, answered: ToolCall | None = None
) -> JobHandler:
    """Return the handler of a tree of plans. It shows each plan on the board and records its output."""
    from cleveragents.jobs.ports import JobHandler
    from cleveragents.plans.output_recorder import PlanWatch, joined

    known = None if answered is None else f"step {answered.step} of "

    def watch(plan: Plan) -> PlanWatch:
        view = board.view_of(plan)

        def told(message: str) -> None:
            if known is None or plan.id != answered_plan or not message.startswith(known):
                view.say(message)

        return joined(PlanWatch(told, view.output, view.seen), recorder.watch(plan))

    answered_plan = None if answered is None else answered.plan_id
    return JobHandler(run=container.plan_parts.run(watch=watch))


def run_in_front(
    container: Container,
    plans: Sequence[Plan],
    show: Callable[[], Board],
    hire: Callable[[Board, OutputRecorder], AsyncWorker],
) -> bool:
    """Run plans on the main thread and return whether they were interrupted.

    `show` creates the board. `hire` prints the plans and creates the worker, which this function starts. When
    the function returns, no plan runs in this process, and the board is closed.

    Ctrl-C pauses running plans; results and waiting plans stay as they are, and the user is not asked about
    them. After SIGTERM, all plans can be resumed, and the signal is raised again. If the store is unusable
    for a whole lease, all plans can be resumed, and `StoreFull` is raised.
    """
    from cleveragents.plans.output_recorder import OutputRecorder
    from cleveragents.plans.store.sql_plan_output import SqlPlanOutput

    worker: AsyncWorker | None = None
    board: Board = PlainBoard(plans, alone=len(plans) == 1)
    recorder = OutputRecorder(SqlPlanOutput(container.database), container.clock)
    with Interrupts() as heard:
        try:
            board = show()
            recorder.start()
            worker = hire(board, recorder)
            worker.start()
            run_until_rest(container, plans, worker)
            # guard: the worker would take the jobs that the next answer queues
            worker.close()
        except KeyboardInterrupt:
            heard.stopping = True
            try:
                pause_plans(container, plans, worker, board, heard)
            except NO_STORE:
                _tell_unrecorded(plans)
                raise
            return True
        except SystemExit:
            give_back(worker)
            board.close()
            for plan in plans:
                progress(f"stopped; resume with `agents plan resume {plan.id}`")
            raise
        except NO_STORE:
            give_back(worker)
            board.close()
            _tell_unrecorded(plans)
            raise
        finally:
            recorder.close()
            board.close()
    return False


def _tell_unrecorded(plans: Sequence[Plan]) -> None:
    for plan in plans:
        progress(f"stopped: the progress of plan {plan.id} cannot be recorded; earlier records are safe")
        progress(f"fix this, then run `agents plan resume {plan.id}`")


def end_interrupted(plan: PlanView) -> None:
    """Print the next steps of an interrupted plan and exit, without a question about the result. Return if
    another command cancelled the plan.
    """
    if plan.state is PlanState.CANCELLED:
        return
    paused = plan.status is PlanStatus.PAUSED
    unchanged = f"interrupted; plan {plan.id} is unchanged: {plan.meaning}"
    progress(f"plan {plan.id} is paused" if paused else unchanged)
    print_next_steps(plan)
    raise click.exceptions.Exit(INTERRUPTED)


def run_until_rest(container: Container, plans: Sequence[Plan], worker: AsyncWorker) -> None:
    """Return when neither these plans nor their sub-plans have a queued or running job of this command.

    Also notices a job that ended without an event, because its worker was killed too often.
    """
    parts = container.plan_parts
    taken_up = True
    while taken_up:
        worker.run_until_idle(_FOREVER)
        taken_up = any(_is_taken_up(parts, plan) for plan in plans)


def _is_taken_up(parts: PlanParts, plan: Plan) -> bool:
    """Update the plan to the state of its jobs. Return whether the plan or a plan below it has a job for this
    command.
    """
    plan = parts.lifecycle.reconciled(parts.plans.get(plan.id))
    jobs = (parts.lifecycle.queueing.job_of(one) for one in (plan, *below(parts, plan)))
    return any(job is not None and not job.state.ended and not job.queue for job in jobs)
