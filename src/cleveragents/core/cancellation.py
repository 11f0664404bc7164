"""One generation of cancellation: the view that a run holds and `CancellationToken` replaces on `reset`.

A flag that can be cleared loses cancels, even with a lock: a waiter wakes up, and before it reads the flag,
another thread clears it. So nothing is ever cleared here. A generation is cancelled once and stays cancelled
for every thread that waits or works under it.

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

__all__ = ["CancellationView", "Registration", "is_resumable_stop", "resumable_stop", "user_reason"]


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
        exception in one is logged as `cancellation.callback_failed` and does not prevent the others.
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
        # finds
        # the other, and if both do, the claim decides.
        registration = Registration(self, listeners)
        listeners[registration._key] = callback
        if self._cause is not None:  # guard: the cancel may have looked before we registered
            _claim_and_run(listeners, registration._key)
        return registration


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
