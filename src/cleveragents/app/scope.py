"""Lifetimes of components: built at first use, closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Generic, TypeVar, cast

from cleveragents.core.errors import Closed

__all__ = ["Once", "Part", "Scope", "Shared", "later", "shared"]

T = TypeVar("T")


class Scope:
    """The lifetime of components: built once, closed together, in reverse order.

    Thread safety:
        Owner: the code that made it closes it; any thread may request components.
        Lock: `_lock` guards the closed flag and the stack of components to close. Unlike other locks of ours
            it is held while a component is built: other callers of the same component must wait anyway, and
            two half-built components would be worse. It is reentrant, because building a component requests
            others.
        Guarantee: a component is built at most once; one that was built is closed exactly once; after `close`
            began, no caller gets one.
    Cancel safety: a build that is interrupted or fails leaves nothing behind, and the next caller tries
        again. `close` continues with the other components when one fails, and raises afterwards.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._closers = ExitStack()
        self._closed = False

    def close(self) -> None:
        """Close all built components in reverse order; raise errors after all are closed."""
        with self._lock:
            if self._closed:  # guard: each component is closed once
                return
            self._closed = True
        # Outside the lock, because closing waits; the stack no longer changes.
        self._closers.close()


class Part(Generic[T]):
    """A component that a scope builds on first use. Thread and cancel safety are those of the scope."""

    def __init__(
        self, scope: Scope, build: Callable[[], T], close: Callable[[T], object] | None = None
    ) -> None:
        self._scope = scope
        self._scope_lock = scope._lock
        self._build = build
        self._close = close
        self._built: list[T] = []

    def get(self) -> T:
        """Return the component. Raises `Closed` once the scope is closed."""
        with self._scope_lock:
            if self._scope._closed:  # guard: a component built now would never be closed
                raise Closed(self._scope._name)
            if not self._built:  # guard: built once
                self._built.append(self._construct())
            return self._built[0]

    def _construct(self) -> T:
        part = self._build()
        close = self._close
        if close is not None:
            self._scope._closers.callback(close, part)
        return part


class Shared(Generic[T]):
    """A property that is a `Part` of its owner's `_scope`: built on first use and closed with the owner.

    The decorator `shared` makes such a property from a method.
    """

    def __init__(self, build: Callable[[Any], T], close: Callable[[T], object] | None) -> None:
        self._build = build
        self._close = close
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        parts = vars(instance)
        if self._name not in parts:
            parts.setdefault(self._name, Part(instance._scope, lambda: self._build(instance), self._close))
        part: Part[T] = parts[self._name]
        return part.get()

    def __set__(self, instance: object, value: object) -> None:
        raise AttributeError(f"{self._name} cannot be assigned")


def shared(
    close: Callable[[Any], object] | None = None,
) -> Callable[[Callable[[Any], T]], Shared[T]]:
    """Make the method a component of its owner's scope: built once, and closed with the scope."""
    return lambda build: Shared(build, close)


class Once(Generic[T]):
    """A property that is built on first use and kept by its owner.

    Use it for components that only hold other components and need no closing.

    Safe in any thread, without a lock, so that it cannot deadlock with the lock of the scope: two threads
    that build it concurrently both get the first result.
    """

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        # Only at first: afterwards Python finds the kept value before it calls this.
        kept: T = vars(instance).setdefault(self._name, self._build(instance))
        return kept


class _Later(Generic[T]):
    """A proxy for a component that is built on the first attribute access.

    Use it for components that most commands never use. Safe in any thread if `build` is.
    """

    __slots__ = ("_build",)

    def __init__(self, build: Callable[[], T]) -> None:
        self._build = build

    def __getattr__(self, name: str) -> Any:
        return getattr(self._build(), name)


def later(build: Callable[[], T]) -> T:
    """Return a proxy; `build` is called for each access and must build the component once."""
    return cast("T", _Later(build))
