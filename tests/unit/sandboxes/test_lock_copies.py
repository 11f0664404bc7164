"""A released lock is free, even if a process being started has a copy of its descriptor."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from cleveragents.apply.lock import resource_lock, try_resource_lock
from cleveragents.sandboxes.lock import is_locked, locked

Held = Callable[[Path], AbstractContextManager[object]]


def descriptor_of(path: Path) -> int:
    """Return this process's descriptor of an open file."""
    for number in (int(entry.name) for entry in Path("/proc/self/fd").iterdir()):
        try:
            if os.path.samestat(os.fstat(number), path.stat()):
                return number
        except OSError:
            continue
    raise LookupError(path)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors cannot be listed")
@pytest.mark.parametrize(
    ("held", "is_free", "is_directory"),
    [
        (lambda path: locked(path, "plan"), lambda path: not is_locked(path), False),
        (lambda path: resource_lock(path, timeout_seconds=0), None, True),
        (try_resource_lock, None, True),
    ],
    ids=["sandbox", "resource", "resource, tried"],
)
def test_a_duplicated_descriptor_holds_no_lock(
    tmp_path: Path, held: Held, is_free: Callable[[Path], bool] | None, is_directory: bool
) -> None:
    """Like the copy of a fork before its exec, which can take seconds on a busy machine."""
    path = tmp_path / "lock"
    if is_directory:
        path.mkdir()
    else:
        path.touch()
    with held(path):
        copy = os.dup(descriptor_of(path))
    try:
        if is_free is not None:
            assert is_free(path)
        else:
            with try_resource_lock(path) as free:
                assert free
    finally:
        os.close(copy)


@pytest.mark.parametrize(
    "held",
    [lambda path: locked(path / "file", "plan"), lambda path: resource_lock(path, timeout_seconds=0)],
    ids=["sandbox", "resource"],
)
def test_a_failing_unlock_does_not_raise(tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    flock = fcntl.flock

    def away(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, "No locks available")
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", away)
    for _ in range(2):  # free once it is closed
        with held(tmp_path):
            pass
