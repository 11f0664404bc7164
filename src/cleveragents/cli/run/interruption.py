"""What Ctrl-C does to plans that run here: once stops them in order, twice kills their processes at once.

Both ways end in the same records: what a call had done is filed, the call says that it was cancelled, and
only then is the plan. Killed processes leave little to wait for; where something hangs all the same, be it
only that nobody reads our output, this process is gone after a few seconds. A third Ctrl-C makes the fourth
one end it on the spot. What is not recorded then, the next who looks at the plan or cancels it records.
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

from cleveragents.cli.output import counted, progress
from cleveragents.core.errors import CleverAgentsError, JobAlreadyEnded, PlanError, UnknownJob
from cleveragents.plans.family import below
from cleveragents.plans.model.sub_plan import waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "STOPPING",
    "ForcedStop",
    "Interrupts",
    "PlanDisplay",
    "give_back",
    "left_running_message",
    "stop_plans",
]

STOPPING = "interrupted: stopping"
"""So begins what is said when plans are told to stop."""

_END_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_KILL_AGAIN_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_WORDS_SECONDS = 1.0
_REASON = "interrupted by the user"
_INTERRUPTED = 130


class PlanDisplay(Protocol):
    """Where the plans are shown."""

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...


class Interrupts:
    """Ctrl-C while plans run here. Each raises `KeyboardInterrupt`, as ever, until they are stopped. From
    then on the next is only noted, so that what stops them is not interrupted itself, and the one after it
    makes Ctrl-C end the process, as it does where nobody listens. Left, it is what it was before.

    `stopping` is set by whoever caught the interrupt, with no call before it: Python runs the handler of a
    signal at calls, so that none can come between.

    Thread safety: the main thread makes and leaves it, for signals are its own; any may read `again`.
    """

    def __init__(self) -> None:
        self.stopping = False
        self.again = False
        self._former: object = None

    def __enter__(self) -> Interrupts:
        # guard: who was started with Ctrl-C ignored, or listens to it in a way of its own, goes on so
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler and _is_main_thread():
            self._former = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self.stopping:  # each of them, for one may be lost: where it hits a finalizer, Python drops it
            raise KeyboardInterrupt
        if self.again:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.again = True


def stop_plans(
    container: Container,
    plans: Sequence[Plan],
    worker: AsyncWorker | None,
    view: PlanDisplay,
    heard: Interrupts,
) -> None:
    """Cancels those that run, whether or not their jobs were begun; returns when nothing of them runs
    any more, and the view is closed.

    Another Ctrl-C meanwhile kills their processes; where that does not end it either, this one ends without a
    return.
    """
    with ForcedStop(heard, view, plans, lambda: _kill(container, plans)):
        try:
            stopped, failed = _cancel_each(container, plans, worker)
            if stopped:
                what = "the plan" if len(plans) == 1 else counted(stopped, "plan")
                # guard: not in this thread, which hears no Ctrl-C while another's line is stuck in the pipe
                telling = _begun(view.say, f"{STOPPING} {what} … (Ctrl-C once more ends it at once)")
                telling.join(_WORDS_SECONDS)
            if worker is not None:
                worker.run_until_idle(_END_SECONDS)
            if failed is not None:
                raise failed
        finally:
            view.close()


class ForcedStop:
    """Has the processes of plans killed once Ctrl-C is hit again, as long as the block lasts; if it lasts on
    after that, ends this process.

    Thread safety:
        Owner: the main thread, which stops the plans in the block. One thread kills; another does nothing but
            end this process, whatever hangs. What is said, which may hang as well, each has said by a third.
        Lock: none. `_over` is set by the owner; all else is read only.
        Guarantee: no kill begins after the block was left, and this process ends within `patience_seconds` of
            the second Ctrl-C, and of two seconds that the last words may take.
    Cancel safety: the block may be left in any way, at any time.
    """

    def __init__(
        self,
        heard: Interrupts,
        view: PlanDisplay,
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
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ForcedStop:
        self._threads = [_begun(self._leave_in_time), _begun(self._hurry)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(self._patience_seconds)

    def _leave_in_time(self) -> None:
        if not self._is_hit_again() or self._over.wait(self._patience_seconds):
            return
        for last in (self._view.close, self._tell_what_is_left):
            _begun(last).join(_WORDS_SECONDS)
            if self._over.is_set():  # guard: all was stopped and recorded meanwhile
                return
        self._leave(_INTERRUPTED)  # nothing is closed: that would be the orderly way, which takes its time

    def _hurry(self) -> None:
        if not self._is_hit_again():
            return
        telling: threading.Thread | None = None
        while not self._over.is_set():
            # Whatever goes wrong, it is tried again, as for what may just have been started.
            with suppress(Exception):
                self._kill()
            if telling is None:
                said = "interrupted again: killing what still runs, and recording what it did …"
                telling = _begun(self._view.say, said)
            self._over.wait(_KILL_AGAIN_SECONDS)
        if telling is not None:
            telling.join(_WORDS_SECONDS)

    def _is_hit_again(self) -> bool:
        """Waits for it; False if the block is left before."""
        # Looked at again and again, because nothing that wakes a thread can be done safely in a handler.
        while not self._heard.again:
            if self._over.wait(_LOOK_SECONDS):
                return False
        return True

    def _tell_what_is_left(self) -> None:
        for plan in self._plans:
            progress(f"plan {plan.id} was ended at once and may still count as running")
        named = self._plans[0].id if len(self._plans) == 1 else "PLAN"
        cancel = f"`agents plan cancel {named}`"
        progress(f"{cancel} settles it and records what it did, `agents doctor` finds whatever else is left")
        sys.stdout.flush()


def give_back(worker: AsyncWorker | None) -> None:
    """Stops what the worker runs, for another to go on with; what its jobs use is closed afterwards."""
    if worker is not None:
        worker.close()  # an actor whose runner is closed under it may fail, and its plan with it


def left_running_message(plan_id: str, prefix: str, *, told: bool) -> str:
    """What is true of a plan that a server runs when nobody waits any more for it to be stopped there; `told`
    if the server has heard that it is to be."""
    if told:
        show = f"`{prefix} plan show {plan_id}`"
        return f"the server is stopping plan {plan_id}, which is not waited for; {show} says where it stands"
    cancel = f"`{prefix} plan cancel {plan_id}`"
    return f"the server may not have heard that plan {plan_id} is to be stopped; {cancel} makes sure of it"


def _cancel_each(
    container: Container, plans: Sequence[Plan], worker: AsyncWorker | None
) -> tuple[int, CleverAgentsError | None]:
    """How many were told to stop, and the first error: one that cannot be told keeps no other running."""
    stopped, failed = 0, None
    for plan in plans:
        try:
            stopped += _cancel(container, plan, worker)
        except CleverAgentsError as error:
            failed = failed or error
    return stopped, failed


def _cancel(container: Container, plan: Plan, worker: AsyncWorker | None) -> bool:
    """The plan and all below it; one that is done, or waits for a person, stays as it is, which is False."""
    parts = container.plan_parts
    plan = parts.plans.get(plan.id)
    runs = plan.state.running or waits_for_sub_plans(plan)
    if runs:
        with suppress(PlanError):  # it ended at this moment
            parts.lifecycle.cancel(plan, _REASON)
    if worker is not None:
        for one in (plan, *below(parts, plan)):
            # At once, and not only when the worker looks next.
            with suppress(JobAlreadyEnded, UnknownJob):
                if one.state.running:
                    worker.cancel(str(one.job_id), _REASON)
    return runs


def _kill(container: Container, plans: Sequence[Plan]) -> None:
    parts = container.plan_parts
    for plan in plans:
        with suppress(CleverAgentsError):
            for one in (parts.plans.get(plan.id), *below(parts, plan)):
                _end_processes(container, one)


def _end_processes(container: Container, plan: Plan) -> None:
    from cleveragents.jobs.worker.attempt import marker_of

    with suppress(CleverAgentsError):
        job = container.jobs.get(str(plan.job_id))
        container.processes.end(marker_of(job.id, job.fence), grace_seconds=0)


def _begun(do: Callable[..., None], *arguments: object) -> threading.Thread:
    """A thread that does it, and that nobody has to wait for."""
    thread = threading.Thread(target=do, args=arguments, name=f"interrupted {do.__name__}", daemon=True)
    thread.start()
    return thread


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
