"""What Ctrl-C does to plans that run here: once stops them in order, twice kills their processes at once.

Both ways end in the same records: what a call had done is filed, the call says that it was cancelled, and
only then is the plan. Killed processes leave little to wait for; where something hangs all the same, this
process is gone after a few seconds, and says so. Whoever cancels the plan then does what is left.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol

from cleveragents.application.services.plan_family import below
from cleveragents.domain.sub_plan import waits_for_sub_plans
from cleveragents.errors import CleverAgentsError, JobAlreadyEnded, PlanError, UnknownJob
from cleveragents.interfaces.cli.output import counted, progress

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.services.async_worker import AsyncWorker
    from cleveragents.domain.plan import Plan

__all__ = ["STOPPING", "Haste", "Interrupts", "Shown", "give_back", "left_to_server", "stop_plans"]

STOPPING = "interrupted: stopping"
"""So begins what is said when plans are told to stop."""

_END_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_KILL_AGAIN_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_REASON = "interrupted by the user"
_INTERRUPTED = 130


class Shown(Protocol):
    """Where the plans are shown."""

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...


class Interrupts:
    """Ctrl-C while plans run here. The first raises `KeyboardInterrupt`, as ever; those after it are only
    noted, so that what stops the plans is not interrupted itself, however often somebody hits the keys.

    Thread safety: the main thread makes and leaves it, for signals are its own; any may read `again`.
    """

    def __init__(self) -> None:
        self.again = False
        self._stopping = False
        self._former: object = None

    def __enter__(self) -> Interrupts:
        # guard: who was started with Ctrl-C ignored, or listens to it in a way of its own, goes on so
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler and _is_main_thread():
            self._former = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What was stopped is told and closed yet; `invoke` takes the handler away.
        if self._former is not None and not self._stopping:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def stopping(self) -> None:
        """From now on none raises anything."""
        self._stopping = True

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:  # guard: whoever stops the plans comes to an end
            self.again = True
            return
        self._stopping = True
        raise KeyboardInterrupt


def stop_plans(
    container: Container, plans: Sequence[Plan], worker: AsyncWorker | None, view: Shown, heard: Interrupts
) -> None:
    """Cancels them, whether or not their jobs were begun; returns when nothing of them runs any more.

    Another Ctrl-C meanwhile kills their processes; where they do not end then either, this one ends without a
    return.
    """
    heard.stopping()
    what = "the plan" if len(plans) == 1 else counted(len(plans), "plan")
    view.say(f"{STOPPING} {what} … (Ctrl-C once more ends it at once)")
    for plan in plans:
        _cancel(container, plan, worker)
    if worker is not None:
        with Haste(heard, view, plans, lambda: _kill(container, plans)):
            worker.run_until_idle(_END_SECONDS)


class Haste:
    """Has the processes of plans killed once Ctrl-C is hit again, as long as the block lasts; if it lasts on
    after that, ends this process.

    Thread safety:
        Owner: the main thread, which waits for the plans in the block; `_thread` is the one that kills.
        Lock: none. `_over` is set by the owner; all else is read only, or the thread's own.
        Guarantee: no kill begins after the block was left, and this process ends within `patience_seconds` of
            the second Ctrl-C and of what it takes to kill.
    Cancel safety: the block may be left in any way, at any time.
    """

    def __init__(
        self,
        heard: Interrupts,
        view: Shown,
        plans: Sequence[Plan],
        kill: Callable[[], None],
        *,
        patience_seconds: float = _PATIENCE_SECONDS,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._heard = heard
        self._view = view
        self._plans = plans
        self._kill = kill
        self._patience_seconds = patience_seconds
        self._leave = leave
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="haste", daemon=True)

    def __enter__(self) -> Haste:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(self._patience_seconds)

    def _watch(self) -> None:
        while not self._heard.again:
            if self._over.wait(_LOOK_SECONDS):
                return
        self._view.say("interrupted again: killing what still runs, and recording what it did …")
        left = self._patience_seconds
        while not self._over.is_set():
            self._kill()  # again and again, for one may just have been started
            self._over.wait(min(left, _KILL_AGAIN_SECONDS))
            left -= _KILL_AGAIN_SECONDS
            if left <= 0 and not self._over.is_set():
                self._give_up()
                return

    def _give_up(self) -> None:
        self._view.close()
        for plan in self._plans:
            progress(f"plan {plan.id} was ended at once and may still count as running")
        named = self._plans[0].id if len(self._plans) == 1 else "PLAN"
        progress(f"`agents plan cancel {named}` settles it, `agents doctor` finds whatever else is left")
        sys.stdout.flush()
        self._leave(_INTERRUPTED)  # nothing is closed: that would be the orderly way, which takes its time


def give_back(worker: AsyncWorker | None) -> None:
    """Stops what the worker runs, for another to go on with; what its jobs use is closed afterwards."""
    if worker is not None:
        worker.close()  # an actor whose runner is closed under it may fail, and its plan with it


def left_to_server(plan_id: str, prefix: str, *, told: bool) -> str:
    """What is true of a plan that a server runs when nobody waits any more for it to be stopped there; `told`
    if the server has heard that it is to be."""
    if told:
        show = f"`{prefix} plan show {plan_id}`"
        return f"the server is stopping plan {plan_id}, which is not waited for; {show} says where it stands"
    cancel = f"`{prefix} plan cancel {plan_id}`"
    return f"the server may not have heard that plan {plan_id} is to be stopped; {cancel} makes sure of it"


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


def _kill(container: Container, plans: Sequence[Plan]) -> None:
    parts = container.plan_parts
    for plan in plans:
        with suppress(CleverAgentsError):
            for one in (parts.plans.get(plan.id), *below(parts, plan)):
                _end_processes(container, one)


def _end_processes(container: Container, plan: Plan) -> None:
    from cleveragents.application.services.job_attempt import marker_of

    with suppress(CleverAgentsError):
        job = container.jobs.get(str(plan.job_id))
        container.processes.end(marker_of(job.id, job.fence), grace_seconds=0)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
