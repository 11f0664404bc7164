"""One generation of cancellation: what a run holds, and what `CancellationToken` replaces on `reset`.

Why generations: a flag that can be cleared loses cancels, lock or no lock: a waiter wakes up, and before it
looks, the flag is down again. So nothing is ever cleared here. A generation is cancelled once, for good, and
whoever waits or works under it keeps that answer.

Why a job is to end: because somebody wants that, or because what it is a part of stops for now.

Both come to a job as a reason. So that nobody's words are taken for a mere stop, those that begin like one
are put in quotes where they come in.
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

__all__ = ["CancellationView", "Registration", "is_mere_stop", "mere_stop", "said_by_somebody"]


_Listeners = dict[object, Callable[[], None]]

_MARK = "stopped, because "


class _Cause(NamedTuple):
    reason: str | None


class Registration:
    """A callback's place on a generation. Leaving the `with` block closes it.

    Thread safety: the cancelling thread and `close` claim the callback by the same atomic `dict.pop`, so it
        runs exactly once, or `close` returned True and it never runs. No lock: a finalizer may close.
    """

    __slots__ = ("_key", "_listeners", "_view")

    def __init__(self, view: CancellationView, listeners: _Listeners) -> None:
        self._view = view  # whoever keeps a registration keeps its generation within the parent's reach
        self._listeners = listeners
        self._key = object()

    def close(self) -> bool:
        """True for the one call that prevented the run; it does not wait for a run under way."""
        return self._listeners.pop(self._key, None) is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CancellationView:
    """One generation of a token, as a run sees it: cancelled once or never, whatever is reset meanwhile.

    Thread safety:
        Owner: the token that made it; any thread may hold it.
        Lock: the token's `_lock`, to attach and to cancel. Reading, waiting and registering take none.
        Guarantee: `is_cancelled` and `reason` change together, once; whoever sees a generation cancelled
            sees all below it cancelled; a registered callback runs exactly once or was closed in time.
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
        """What the cancel gave as its reason; None, too, while there was no cancel."""
        cause = self._cause
        return None if cause is None else cause.reason

    def raise_if_cancelled(self) -> None:
        """Returns, or raises `Cancelled` with the reason."""
        cause = self._cause
        if cause is not None:
            raise Cancelled(cause.reason)

    def wait(self, timeout: float | None) -> bool:
        """Blocks until this generation is cancelled (True) or the seconds have passed (False)."""
        gate = threading.Event()
        with self._listen(self._wakers, gate.set):
            gate.wait(timeout)
        return self._cause is not None

    async def wait_async(self) -> None:
        """Returns on the running loop once this generation is cancelled, from whichever thread."""
        import asyncio

        gate = asyncio.get_running_loop().create_future()
        # Weak, so that a task which was abandoned with its loop does not live on in a long-lived token.
        weak_gate = weakref.ref(gate)
        with self._listen(self._wakers, lambda: _open_on_its_loop(weak_gate)):
            await gate

    def on_cancel(self, callback: Callable[[], None]) -> Registration:
        """Has `callback` run once by the cancelling thread, or here and now if the cancel has been.

        Waiters wake before any callback runs; callbacks run in the order of registration, under no lock.
        What one raises is logged as `cancellation.callback_failed` and keeps no other from running.
        """
        return self._listen(self._callbacks, callback)

    def attach(self, parent: CancellationView) -> None:
        """For tokens: puts this fresh generation within the parent's reach. The caller holds the lock."""
        self._cause = parent._cause
        # The link goes by itself when this generation is garbage: by an atomic discard, since a finalizer
        # may interrupt the very thread that holds the lock.
        parent._children.add(weakref.ref(self, parent._children.discard))

    def detach(self, parent: CancellationView) -> None:
        """For tokens: takes this generation out of the parent's reach. Needs no lock."""
        parent._children.discard(weakref.ref(self))

    def cancel(self, reason: str | None) -> bool:
        """For tokens: cancels this generation and all below it; True for the one call that did."""
        cause = _Cause(reason)
        fallen = [self]
        with self._lock:
            if self._cause is not None:  # guard: one winner, one reason
                return False
            for view in fallen:  # grows while it is walked
                for link in list(view._children):
                    child = link()
                    if child is not None and child._cause is None:  # guard: its own first reason stays
                        fallen.append(child)
            for view in reversed(fallen):
                view._cause = cause
        _run_listeners(fallen)
        return True

    def _listen(self, listeners: _Listeners, callback: Callable[[], None]) -> Registration:
        # Enter first, then look: a cancel sets the cause first, then looks for entries. One of the two finds
        # the other, and if both do, the claim decides.
        registration = Registration(self, listeners)
        listeners[registration._key] = callback
        if self._cause is not None:  # guard: the cancel may have looked before we entered
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
    if callback is not None:  # guard: None was closed, or is run by another thread
        try:
            callback()
        except Exception:
            import structlog

            logger = structlog.get_logger(__name__)
            logger.exception("cancellation.callback_failed", callback=repr(callback))


def _open_on_its_loop(weak_gate: weakref.ref[asyncio.Future[None]]) -> None:
    gate = weak_gate()
    if gate is not None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits there any more
            gate.get_loop().call_soon_threadsafe(_open, gate)


def _open(gate: asyncio.Future[None]) -> None:
    if not gate.done():  # guard: its task was cancelled in the same turn of the loop
        gate.set_result(None)


def mere_stop(why: str) -> str:
    """The reason of a stop after which it can go on."""
    return f"{_MARK}{why}"


def is_mere_stop(reason: str | None) -> bool:
    """Whether nobody wants it cancelled: it can go on later."""
    return reason is not None and reason.startswith(_MARK)


def said_by_somebody(reason: str) -> str:
    """The reason as a person or another program gave it, which is never a mere stop."""
    return f'"{reason}"' if is_mere_stop(reason) else reason  # guard: nobody's words are taken for ours
