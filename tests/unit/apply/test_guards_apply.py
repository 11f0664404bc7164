"""The lock of a resource that is replaced at that moment."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from cleveragents.apply.lock import try_resource_lock


def test_a_lock_on_a_replaced_directory_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = tmp_path / "resource"
    resource.mkdir()
    flock = fcntl.flock

    def replaced(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        resource.rename(tmp_path / "away")
        resource.mkdir()

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", replaced)
        with try_resource_lock(resource) as held:
            assert not held
    with try_resource_lock(resource) as held:
        assert held
