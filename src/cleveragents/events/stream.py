"""The bus as a reactivex `Observable`.

A bare `Subject` is not serialised across threads, and one observer that raises starves the rest. So each
observer is a separate ordered subscriber: it gets one event at a time, in sequence order, on its own thread.
A slow observer, or an exception in one, does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable

import reactivex
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from cleveragents.core.event import DomainEvent, EventHandler
from cleveragents.events.subscription import Subscription

__all__ = ["observable_of"]


def observable_of(
    subscribe: Callable[[EventHandler, Callable[[], None]], Subscription],
) -> Observable[DomainEvent]:
    """Return an Observable that calls `subscribe(on_next, on_completed)` for each observer."""

    def on_subscribe(
        observer: abc.ObserverBase[DomainEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        subscription = subscribe(observer.on_next, observer.on_completed)
        # Without waiting: operators dispose under their own locks, which a running on_next may need.
        return Disposable(lambda: _forget(subscription))

    return reactivex.create(on_subscribe)


def _forget(subscription: Subscription) -> None:
    subscription.unsubscribe(wait=False)
