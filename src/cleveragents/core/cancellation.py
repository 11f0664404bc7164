"""Cancellation tokens, and their generations: the view that a run holds and that `reset` replaces.

A generation is cancelled once and stays cancelled for every thread that waits or works under it. A flag that
can be cleared would lose cancels, even with a lock: a waiter wakes up, and another thread clears the flag
before the waiter reads it.

A job may end because of a cancel, or because its process stops for now and the job can resume later (a
resumable stop). Both are passed as the reason of a cancellation. A reason from a person or another program
that looks like a resumable stop is quoted, so that it is not mistaken for one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from cleveragents.core.errors import Cancelled

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "CancellationToken",
    "CancellationView",
    "Registration",
    "is_resumable_stop",
    "resumable_stop",
    "user_reason",
]


_Listeners = dict[object, Callable[[], None]]

_MARK = "stopped, because "


class _Cause(NamedTuple):
    reason: str | None


class Registration:
    """A callback registered on a generation. Leaving the `with` block closes it.

    Thread safety: the cancelling thread and `close` claim the callback by the same atomic `dict.pop`, so it
        runs exactly once, or `close` returned True and it never runs. There is no lock, because a finalizer
        may call `close`.
    """

    __slots__ = ("_key", "_listeners", "_view")

    def __init__(self, view: CancellationView, listeners: _Listeners) -> None:
        self._view = view  # a live registration keeps its generation reachable from the parent
        self._listeners = listeners
        self._key = object()

    def close(self) -> bool:
        """Return True if this call prevented the callback from running.

        Does not wait for a running callback.
        """
        return self._listeners.pop(self._key, None) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CancellationView:
    """One generation of a token as a run sees it: cancelled at most once, regardless of resets.

    Thread safety:
        Owner: the token that made it; any thread may hold it.
        Lock: the token's `_lock`, to attach and to cancel. Reading, waiting and registering take none.
        Guarantee: `is_cancelled` and `reason` change together, once; a thread that sees a generation
            cancelled sees all generations below it cancelled; a registered callback runs exactly once or was
            closed in time.
    Cancel safety: an interrupted `wait` or `wait_async` leaves nothing behind, nor does a closed loop.
    """

    __slots__ = ("__weakref__", "_callbacks", "_cause", "_children", "_lock", "_wakers", "generation")

    def __init__(self, lock: threading.Lock, generation: int) -> None:
        self.generation = generation
        self._lock = lock
        self._cause: _Cause | None = None
        self._wakers: _Listeners = {}
        self._callbacks: _Listeners = {}
        self._children: set[weakref.ref[CancellationView]] = set()

    @property
    def is_cancelled(self) -> bool:
        return self._cause is not None

    @property
    def reason(self) -> str | None:
        """The reason of the cancel; None if there was no cancel, or if it has no reason."""
        cause = self._cause
        return None if cause is None else cause.reason

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` with the reason if this generation is cancelled."""
        cause = self._cause
        if cause is not None:
            raise Cancelled(cause.reason)

    def wait(self, timeout: float | None) -> bool:
        """Block until this generation is cancelled (True) or the seconds have passed (False)."""
        gate = threading.Event()
        with self._listen(self._wakers, gate.set):
            gate.wait(timeout)
        return self._cause is not None

    async def wait_async(self) -> None:
        """Wait on the running loop until this generation is cancelled, by any thread."""
        import asyncio

        gate = asyncio.get_running_loop().create_future()
        # Weak, so that a task that was abandoned with its loop does not live on in a long-lived token.
        weak_gate = weakref.ref(gate)
        with self._listen(self._wakers, lambda: _open_on_its_loop(weak_gate)):
            await gate

    def on_cancel(self, callback: Callable[[], None]) -> Registration:
        """Run `callback` once in the cancelling thread, or immediately if already cancelled.

        Waiters wake before any callback runs; callbacks run in the order of registration, under no lock. An
        exception in a callback is logged as `cancellation.callback_failed`; the other callbacks still run.
        """
        return self._listen(self._callbacks, callback)

    def attach(self, parent: CancellationView) -> None:
        """For tokens: attach this new generation to the parent. The caller holds the lock."""
        self._cause = parent._cause
        # The link disappears when this generation is garbage-collected, by an atomic discard: a finalizer
        # may interrupt the very thread that holds the lock.
        parent._children.add(weakref.ref(self, parent._children.discard))

    def detach(self, parent: CancellationView) -> None:
        """For tokens: detach this generation from the parent. Needs no lock."""
        parent._children.discard(weakref.ref(self))

    def cancel(self, reason: str | None) -> bool:
        """For tokens: cancel this generation and all below it. Return True for the one call that cancelled
        it.
        """
        cause = _Cause(reason)
        fallen = [self]
        with self._lock:
            if self._cause is not None:  # guard: one winner, one reason
                return False
            for view in fallen:  # grows during the iteration
                for link in list(view._children):
                    child = link()
                    if child is not None and child._cause is None:  # guard: its own first reason stays
                        fallen.append(child)
            for view in reversed(fallen):
                view._cause = cause
        _run_listeners(fallen)
        return True

    def _listen(self, listeners: _Listeners, callback: Callable[[], None]) -> Registration:
        # Register first, then look: a cancel sets the cause first, then looks for callbacks. One of the two
        # finds the other, and if both do, the claim decides.
        registration = Registration(self, listeners)
        listeners[registration._key] = callback
        if self._cause is not None:  # guard: the cancel may have looked before we registered
            _claim_and_run(listeners, registration._key)
        return registration


class CancellationToken:
    """A flag that asks work to stop, set from any thread; `reset` prepares the token for the next run.

    The time between two resets is a *generation*. A cancel belongs to one generation, permanently. A run that
    must not miss a cancel holds its own `view()` of the generation.

    Thread safety:
        Owner: the code that starts the work; any thread may share it.
        Lock: `_lock`, one for a token and all its descendants, guards `cancel`, `reset` and `child`. It is
            held for assignments only, never in a callback or while waiting. Reading takes no lock.
        Guarantee: of all cancels of a generation one returns True, and its reason stays; a waiter of a
            cancelled generation returns True however soon `reset` follows; each callback of a cancelled
            generation runs exactly once, unless its registration was closed before; a child made during a
            cancel is cancelled.
        Signal handlers and finalizers may read, register and close. They must not cancel, reset or make a
            child, because the thread they interrupt may hold the lock; they can
            set a flag or write to a pipe.
    Cancel safety: `cancel` returns when its callbacks have run; the rest run even if one is interrupted.
    """

    def __init__(self, parent: CancellationView | None = None) -> None:
        self._parent = parent
        self._lock = threading.Lock() if parent is None else parent._lock
        self._cancelled = CancellationView(self._lock, 1)
        if parent is not None:
            with self._lock:
                self._cancelled.attach(parent)

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel the current generation; return False if it was already cancelled."""
        return self._cancelled.cancel(reason)

    def reset(self) -> bool:
        """Start a new generation if the current one is cancelled; return whether this call started one.

        A token that was not cancelled is unchanged, and so are its waiters, callbacks and children. A child
        of a cancelled generation stays cancelled.
        """
        with self._lock:
            before = self._cancelled
            if (
                not before.is_cancelled
            ):  # guard: waiters of a discarded generation could not be cancelled any more
                return False
            parent = self._parent
            fresh = CancellationView(self._lock, before.generation + 1)
            if parent is not None:
                fresh.attach(parent)
            born_cancelled = fresh.is_cancelled
            self._cancelled = fresh
        if parent is not None and self._parent is None:  # guard: closed meanwhile
            fresh.detach(parent)
        return not born_cancelled

    def view(self) -> CancellationView:
        """Return the current generation, for a run to hold: a reset cannot un-cancel it."""
        return self._cancelled

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled._cause is not None  # not through the view's property: loops poll this

    @property
    def reason(self) -> str | None:
        """The reason for the cancel of the current generation; None without a cancel or a reason."""
        return self._cancelled.reason

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` with the reason if the current generation is cancelled."""
        self._cancelled.raise_if_cancelled()

    def wait(self, timeout: float | None) -> bool:
        """Block until the generation that is current now is cancelled (True) or the time is up (False)."""
        return self._cancelled.wait(timeout)

    async def wait_async(self) -> None:
        """Return once the generation that is current when awaited is cancelled."""
        await self._cancelled.wait_async()

    def on_cancel(self, callback: Callable[[], None]) -> Registration:
        """Register a callback with the current generation only. See `CancellationView.on_cancel`."""
        return self._cancelled.on_cancel(callback)

    def child(self) -> CancellationToken:
        """Return a token that is cancelled with the current generation, but does not cancel its parent.

        If the current generation is already cancelled, so is the child. The link ends when the child is
        closed, or when the child, its views and its registrations are garbage-collected.
        """
        return CancellationToken(self._cancelled)

    def close(self) -> None:
        """End a child: later cancels of its parent do not reach it. Takes no lock."""
        parent = self._parent
        self._parent = None
        if parent is not None:
            self._cancelled.detach(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run_listeners(fallen: list[CancellationView]) -> None:
    kinds = [view._wakers for view in fallen] + [view._callbacks for view in fallen]
    pending = [(listeners, key) for listeners in kinds for key in list(listeners)]
    if not pending:
        return
    with ExitStack() as stack:  # so that not even a KeyboardInterrupt in one keeps the others from running
        for listeners, key in reversed(pending):
            stack.callback(_claim_and_run, listeners, key)


def _claim_and_run(listeners: _Listeners, key: object) -> None:
    callback = listeners.pop(key, None)
    if callback is not None:  # guard: None was closed, or another thread runs it
        try:
            callback()
        except Exception:
            import structlog

            logger = structlog.get_logger(__name__)
            logger.exception("cancellation.callback_failed", callback=repr(callback))


def _open_on_its_loop(weak_gate: weakref.ref[asyncio.Future[None]]) -> None:
    gate = weak_gate()
    if gate is not None:
        with suppress(RuntimeError):  # the loop is closed: no task waits there any more
            gate.get_loop().call_soon_threadsafe(_open, gate)


def _open(gate: asyncio.Future[None]) -> None:
    if not gate.done():  # guard: its task was cancelled in the same iteration of the loop
        gate.set_result(None)


def resumable_stop(why: str) -> str:
    """Return the reason of a stop after which the work can resume."""
    return f"{_MARK}{why}"


def is_resumable_stop(reason: str | None) -> bool:
    """Return whether the reason is a resumable stop, after which the work can resume, and not a cancel."""
    return reason is not None and reason.startswith(_MARK)


def user_reason(reason: str) -> str:
    """Return the reason given by a person or another program, quoted if it looks like a resumable stop."""
    # guard: foreign text is not mistaken for ours
    return f'"{reason}"' if is_resumable_stop(reason) else reason
