"""What Ctrl-C does to plans that run here: once stops them in order, twice ends this process at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from cleveragents.application.services.plan_family import below
from cleveragents.domain.sub_plan import waits_for_sub_plans
from cleveragents.errors import CleverAgentsError, JobAlreadyEnded, PlanError, UnknownJob
from cleveragents.interfaces.cli.output import counted, progress

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.services.async_worker import AsyncWorker
    from cleveragents.domain.plan import Plan

__all__ = ["STOPPING", "Shown", "give_back", "stop_plans"]

STOPPING = "interrupted: stopping"
"""So begins what is said when plans are told to stop."""

_END_SECONDS = 30.0
_REASON = "interrupted by the user"
_INTERRUPTED = 130


class Shown(Protocol):
    """Where the plans are shown."""

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...


def stop_plans(container: Container, plans: Sequence[Plan], worker: AsyncWorker | None, view: Shown) -> None:
    """Cancels them, whether or not their jobs were begun; returns when nothing of them runs any more.

    Another Ctrl-C meanwhile ends their processes and this one, without a return.
    """
    try:
        what = "the plan" if len(plans) == 1 else counted(len(plans), "plan")
        view.say(f"{STOPPING} {what} … (Ctrl-C once more ends it at once)")
        for plan in plans:
            _cancel(container, plan, worker)
        if worker is not None:
            worker.run_until_idle(_END_SECONDS)
    except KeyboardInterrupt:
        _end_at_once(container, plans, view)


def give_back(worker: AsyncWorker | None) -> None:
    """Stops what the worker runs, for another to go on with; what its jobs use is closed afterwards."""
    if worker is not None:
        worker.close()  # an actor whose runner is closed under it may fail, and its plan with it


def _cancel(container: Container, plan: Plan, worker: AsyncWorker | None) -> None:
    """The plan and all below it; one that is done, or waits for a person, stays as it is."""
    parts = container.plan_parts
    plan = parts.plans.get(plan.id)
    if plan.state.running or waits_for_sub_plans(plan):
        with suppress(PlanError):  # it ended at this moment
            parts.lifecycle.cancel(plan, _REASON)
    if worker is None:
        return
    for one in (plan, *below(parts, plan)):
        # At once, and not only when the worker looks next.
        with suppress(JobAlreadyEnded, UnknownJob):
            if one.state.running:
                worker.cancel(str(one.job_id), _REASON)


def _end_at_once(container: Container, plans: Sequence[Plan], view: Shown) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a third one need not wait for this either
    view.close()
    parts = container.plan_parts
    for plan in plans:
        with suppress(CleverAgentsError):
            for one in (parts.plans.get(plan.id), *below(parts, plan)):
                _end_processes(container, one)
    for plan in plans:
        progress(f"plan {plan.id} was ended at once and may still count as running")
    named = plans[0].id if len(plans) == 1 else "PLAN"
    progress(f"`agents plan cancel {named}` settles it, `agents doctor` finds whatever else is left")
    sys.stdout.flush()
    os._exit(_INTERRUPTED)  # nothing is closed: that would be the orderly way, which takes its time


def _end_processes(container: Container, plan: Plan) -> None:
    from cleveragents.application.services.job_attempt import marker_of

    with suppress(CleverAgentsError):
        job = container.jobs.get(str(plan.job_id))
        container.processes.end(marker_of(job.id, job.fence), grace_seconds=0)
