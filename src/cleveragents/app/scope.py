"""How long parts of a process live: built at their first use, closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Generic, TypeVar, cast

from cleveragents.core.errors import Closed

__all__ = ["Once", "Part", "Scope", "Shared", "later", "shared"]

T = TypeVar("T")


class Scope:
    """How long parts live: built once, closed together, the last one built first.

    Thread safety:
        Owner: who made it closes it; any thread may ask for parts.
        Lock: `_lock` guards the closed flag and the stack of what to close. Unlike other locks of ours it is
            held while a part is built: whoever asks for the same part has to wait for it anyway, and two
            half-built ones would be worse. It is reentrant, because building a part asks for those below it.
        Guarantee: a part is built at most once; a part that was built is closed exactly once; after `close`
            began, nobody gets a part.
    Cancel safety: a build that is interrupted or fails leaves nothing behind, and the next caller tries
        again. `close` goes on to the other parts when one fails, and raises afterwards.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._closers = ExitStack()
        self._closed = False

    def close(self) -> None:
        """Closes what was built, the last one first; what goes wrong is raised when all had their turn."""
        with self._lock:
            if self._closed:  # guard: each part is closed once
                return
            self._closed = True
        # Outside the lock, because closing waits; nobody adds to it any more.
        self._closers.close()


class Part(Generic[T]):
    """Something that a scope builds on first use. Thread and cancel safety are the scope's."""

    def __init__(
        self, scope: Scope, build: Callable[[], T], close: Callable[[T], object] | None = None
    ) -> None:
        self._scope = scope
        self._scope_lock = scope._lock
        self._build = build
        self._close = close
        self._built: list[T] = []

    def get(self) -> T:
        """The part. `Closed` once the scope was closed."""
        with self._scope_lock:
            if self._scope._closed:  # guard: what is built now would never be closed
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
    """A property that is a `Part` of its owner's `_scope`: built when it is first asked for, then closed with
    the owner. `shared` makes one of a method."""

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
        raise AttributeError(f"{self._name} is built, not set")


def shared(
    close: Callable[[Any], object] | None = None,
) -> Callable[[Callable[[Any], T]], Shared[T]]:
    """Has the scope of its owner build what the method returns, once, and `close` it."""
    return lambda build: Shared(build, close)


class Once(Generic[T]):
    """A property that is built when it is first asked for, and kept by its owner: for parts that hold nothing
    but other parts, and need no closing.

    Safe in any thread, without a lock, so that it cannot be in the way of the scope's: of two threads that
    build it at the same time both get what the first one kept.
    """

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> T:
        # Only at first: from then on Python finds what is kept before it looks here.
        kept: T = vars(instance).setdefault(self._name, self._build(instance))
        return kept


class _Later(Generic[T]):
    """Stands for a part that is built when something of it is first used: for parts that most commands hold
    and never use. Safe in any thread, as what `build` asks for is."""

    __slots__ = ("_build",)

    def __init__(self, build: Callable[[], T]) -> None:
        self._build = build

    def __getattr__(self, name: str) -> Any:
        return getattr(self._build(), name)


def later(build: Callable[[], T]) -> T:
    """The part, built when something of it is first used; `build` is asked each time, and builds it once."""
    return cast("T", _Later(build))
