"""Ctrl-C while plans run here: the first pauses them, the second kills their processes.

Both end in the same records: finished calls stay, the call in progress stays open and is made again after a
resume, and the plan is paused. If something hangs after the kill, such as the reader of our output, this
process ends within a few seconds. The third Ctrl-C restores the default handler, so the fourth ends the
process at once. The next command that reads the plan records the pause.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Protocol

from cleveragents.cli.output import counted, progress
from cleveragents.core.errors import CleverAgentsError, JobAlreadyEnded, PlanError, UnknownJob
from cleveragents.plans.family import below
from cleveragents.plans.jobs.names import should_run
from cleveragents.plans.model.sub_plan import PAUSED, waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.app.container import Container
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "PAUSING",
    "ForcedStop",
    "Interrupts",
    "PlanDisplay",
    "give_back",
    "interrupt_deferred",
    "left_running_message",
    "pause_plans",
    "pause_unfollowed",
]

PAUSING = "interrupted: pausing"
"""The beginning of the message that plans are being paused."""

_END_SECONDS = 120.0
_LOOK_SECONDS = 0.05
_KILL_AGAIN_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_WORDS_SECONDS = 1.0
_INTERRUPTED = 130


class PlanDisplay(Protocol):
    """The view of the plans."""

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...


class Interrupts:
    """The handler of Ctrl-C while plans run here.

    Each Ctrl-C raises `KeyboardInterrupt` until `stopping` is set. The next Ctrl-C only sets `again`, so that
    it does not interrupt the stop. The one after that restores the default handler, so that a further Ctrl-C
    ends the process. On exit the previous handler is restored.

    Set `stopping` in the first statement of the `except` block, without a call before it: Python runs signal
    handlers at calls, so no handler can run in between.

    Thread safety: the main thread makes and leaves it, because signals belong to that thread; any thread may
    read `again`.
    """

    def __init__(self) -> None:
        self.stopping = False
        self.again = False
        self._former: object = None

    def __enter__(self) -> Interrupts:
        # guard: a process started with Ctrl-C ignored, or with its own handler, keeps that
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler and _is_main_thread():
            self._former = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._former is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if (
            not self.stopping
        ):  # each of them, because one may be lost: Python drops an exception inside a finalizer
            raise KeyboardInterrupt
        if self.again:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.again = True


def pause_plans(
    container: Container,
    plans: Sequence[Plan],
    worker: AsyncWorker | None,
    view: PlanDisplay,
    heard: Interrupts,
) -> None:
    """Pause the running plans, also those with queued jobs. Return when nothing of them runs and the view is
    closed.

    Another Ctrl-C kills their processes. If the kill does not end them, this process exits.
    """
    with ForcedStop(heard, view, plans, lambda: _kill(container, plans)):
        try:
            paused, failed = _pause_each(container, plans, worker)
            if paused:
                what = "the plan" if len(plans) == 1 else counted(paused, "plan")
                # guard: not in this thread, which hears no Ctrl-C while another line is stuck in the pipe
                telling = _begun(view.say, f"{PAUSING} {what} … (Ctrl-C again kills it)")
                telling.join(_WORDS_SECONDS)
            if worker is not None:
                worker.run_until_idle(_END_SECONDS)
            if failed is not None:
                raise failed
        finally:
            view.close()


class ForcedStop:
    """A block in which a second Ctrl-C kills the processes of plans. If the block does not end soon after
    that, this process exits.

    Thread safety:
        Owner: the main thread, which stops the plans in the block. One thread kills; another only ends this
        process, whatever hangs. A third thread prints for each of them, because printing may hang as well.
        Lock: none. `_over` is set by the owner; all else is read-only.
        Guarantee: no kill begins after the block was left, and this process ends within `patience_seconds` of
        the second Ctrl-C, plus two seconds for the last message.
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
            if self._over.is_set():  # guard: all plans were stopped and recorded by now
                return
        self._leave(_INTERRUPTED)  # nothing is closed: closing takes time

    def _hurry(self) -> None:
        if not self._is_hit_again():
            return
        telling: threading.Thread | None = None
        while not self._over.is_set():
            # Errors are retried: a process may have just been started.
            with suppress(Exception):
                self._kill()
            if telling is None:
                said = "interrupted again: killing running processes …"
                telling = _begun(self._view.say, said)
            self._over.wait(_KILL_AGAIN_SECONDS)
        if telling is not None:
            telling.join(_WORDS_SECONDS)

    def _is_hit_again(self) -> bool:
        """Wait for the next Ctrl-C and return True; return False if the block is left first."""
        # Polling, because a signal handler cannot safely wake a thread.
        while not self._heard.again:
            if self._over.wait(_LOOK_SECONDS):
                return False
        return True

    def _tell_what_is_left(self) -> None:
        for plan in self._plans:
            progress(f"plan {plan.id} was killed and may still be listed as running")
        named = self._plans[0].id if len(self._plans) == 1 else "PLAN"
        resume = f"`agents plan resume {named}`"
        progress(f"continue with {resume}; find orphaned files and processes with `agents doctor`")
        sys.stdout.flush()


def give_back(worker: AsyncWorker | None) -> None:
    """Stop the jobs of the worker and return them to the queue. Call it before closing the components that
    the jobs use.
    """
    if worker is not None:
        worker.close()  # an actor whose runner closes too early may fail, and its plan with it


def left_running_message(plan_id: str, prefix: str, *, told: bool) -> str:
    """Return the message for a plan on a server when this command no longer waits for its pause. `told`: the
    server has received the request.
    """
    if told:
        show = f"`{prefix} plan show {plan_id}`"
        return f"the server is pausing plan {plan_id}; check with {show}"
    pause = f"`{prefix} plan pause {plan_id}`"
    return f"the server may not have received the request to pause plan {plan_id}; run {pause}"


def pause_unfollowed(client: Client, plan_id: str, prefix: str) -> None:
    """Pause a plan that workers run, after a Ctrl-C before this command follows the plan. Print the
    outcome.
    """
    told = False
    try:
        client.plans.pause(plan_id)
        told = True
    except PlanError as ended:  # it has a result, or waits for a person
        progress(str(ended))
        return
    except CleverAgentsError as failed:
        progress(str(failed))
    progress(left_running_message(plan_id, prefix, told=told))


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Defer the `KeyboardInterrupt` of a Ctrl-C to the end of the block, so that the block is completed. If
    another handler than Python's own is installed, nothing is deferred.
    """
    former = signal.getsignal(signal.SIGINT)
    if not _is_main_thread() or former is not signal.default_int_handler:
        yield
        return
    heard = threading.Event()
    signal.signal(signal.SIGINT, lambda number, frame: heard.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
    if heard.is_set():
        raise KeyboardInterrupt


def _pause_each(
    container: Container, plans: Sequence[Plan], worker: AsyncWorker | None
) -> tuple[int, CleverAgentsError | None]:
    """Pause the plans. Return the number of running plans, and the first error. After an error, the other
    plans are still paused.
    """
    paused, failed = 0, None
    for plan in plans:
        try:
            paused += _pause(container, plan, worker)
        except CleverAgentsError as error:
            failed = failed or error
    return paused, failed


def _pause(container: Container, plan: Plan, worker: AsyncWorker | None) -> bool:
    """Pause the plan and its sub-plans. A plan that has a result or waits for a person stays unchanged:
    return False.
    """
    parts = container.plan_parts
    plan = parts.plans.get(plan.id)
    runs = should_run(plan) or waits_for_sub_plans(plan)
    if runs:
        with suppress(PlanError):  # it ended at this moment
            parts.lifecycle.stop(plan, PAUSED)
    if worker is not None:
        for one in (plan, *below(parts, plan)):
            # guard: at once, so that a killed process counts as stopped, not as failed
            with suppress(JobAlreadyEnded, UnknownJob):
                if should_run(one):
                    worker.stop(str(one.job_id), PAUSED)
    return runs


def _kill(container: Container, plans: Sequence[Plan]) -> None:
    parts = container.plan_parts
    for plan in plans:
        with suppress(CleverAgentsError):
            for one in (parts.plans.get(plan.id), *below(parts, plan)):
                _end_processes(container, one)


def _end_processes(container: Container, plan: Plan) -> None:
    from cleveragents.jobs.model.job import marker_of

    with suppress(CleverAgentsError):
        job = container.jobs.get(str(plan.job_id))
        container.processes.end(marker_of(job.id, job.fence), grace_seconds=0)


def _begun(do: Callable[..., None], *arguments: object) -> threading.Thread:
    """Start a daemon thread that runs the function, and return it."""
    thread = threading.Thread(target=do, args=arguments, name=f"interrupted {do.__name__}", daemon=True)
    thread.start()
    return thread


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
