"""Where nothing of ours runs, or nothing new, nothing is traced: traced, every line takes twice as long."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["children_not_traced", "not_traced", "nothing_traced", "untraced"]

_FOR_CHILDREN = "COVERAGE_PROCESS_CONFIG"

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def not_traced() -> Iterator[None]:
    """This thread is not traced in the block; the others are, as they were."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@contextmanager
def children_not_traced() -> Iterator[None]:
    """What is started in the block is not traced: other tests do the same in this process."""
    kept = os.environ.pop(_FOR_CHILDREN, None)
    try:
        yield
    finally:
        if kept is not None:
            os.environ[_FOR_CHILDREN] = kept


@contextmanager
def nothing_traced() -> Iterator[None]:
    """Neither this thread, nor those that begin in the block, nor what is started in it."""
    for_threads = threading.gettrace()
    threading.settrace(None)
    try:
        with not_traced(), children_not_traced():
            yield
    finally:
        threading.settrace(for_threads)


def untraced(function: Callable[P, T]) -> Callable[P, T]:
    """The same, not traced."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with not_traced():
            return function(*args, **kwargs)

    return called
