"""Cancellation, and the worker that runs jobs in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from cleveragents.application.services.cancellation import CancellationView, Registration

__all__ = ["CancellationToken"]


class CancellationToken:
    """Asks work to stop, from any thread; `reset` makes it ready for the next run.

    Every cancel belongs to one generation, for good. A run that must not miss it holds its own `view()`.

    Thread safety:
        Owner: whoever starts the work; any thread may share it.
        Lock: `_lock`, one for a token and all below it, guards the moves (cancel, reset, a child's birth).
            It is held for assignments only, never in a callback or while waiting. Reading takes no lock.
        Guarantee: of all cancels of a generation one returns True, and its reason stays; a waiter of a
            cancelled generation returns True however soon `reset` follows; each callback runs exactly once
            or was closed in time; a child made during a cancel is cancelled.
        Signal handlers and finalizers may read, register and close. They must not cancel, reset or make a
            child, because the thread they interrupt may hold the lock: set a flag or write to a pipe.
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
        """True for the one call that cancelled this generation; any other changes nothing."""
        return self._cancelled.cancel(reason)

    def reset(self) -> bool:
        """True if this call began a new generation, one that is not cancelled.

        A token that was not cancelled stays as it is, and so do its waiters, callbacks and children. A child
        stays cancelled once the generation it was made under is.
        """
        with self._lock:
            before = self._cancelled
            if not before.is_cancelled:  # guard: nobody could cancel the waiters of a generation cast aside
                return False
            parent = self._parent
            fresh = CancellationView(self._lock, before.generation + 1)
            if parent is not None:
                fresh.attach(parent)
            self._cancelled = fresh
        if parent is not None and self._parent is None:  # guard: closed meanwhile
            fresh.detach(parent)
        return not fresh.is_cancelled

    def view(self) -> CancellationView:
        """The current generation, for a run to hold: a reset cannot un-cancel it."""
        return self._cancelled

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled._cause is not None  # not by way of the view's property: loops poll this

    @property
    def reason(self) -> str | None:
        """The reason of the current generation's cancel, if there was one and it gave one."""
        return self._cancelled.reason

    def raise_if_cancelled(self) -> None:
        """Returns, or raises `Cancelled` with the reason."""
        self._cancelled.raise_if_cancelled()

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the generation that is current now is cancelled (True), or for so many seconds."""
        return self._cancelled.wait(timeout)

    async def wait_async(self) -> None:
        """Returns once the generation that is current when awaited is cancelled."""
        await self._cancelled.wait_async()

    def on_cancel(self, callback: Callable[[], None]) -> Registration:
        """Registers with the current generation (see there); the next one knows nothing of it."""
        return self._cancelled.on_cancel(callback)

    def child(self) -> CancellationToken:
        """A token that is cancelled with the current generation (at once, if that has been), never upward.

        It is out of reach once closed, or when nobody holds it, a view or a registration of it any more.
        """
        return CancellationToken(self._cancelled)

    def close(self) -> None:
        """Ends a child: a cancel of its parent that begins after this does not reach it. Takes no lock."""
        parent = self._parent
        self._parent = None
        if parent is not None:
            self._cancelled.detach(parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
