"""A cgroup for each command, so that none of its processes outlives the call.

A process can leave its session with `setsid`, its parent with a double fork and its markers with `env -i`,
but it stays in its cgroup, and the kernel kills a whole cgroup at once. Without a usable cgroup (no cgroup
v2, not delegated to this user, not Linux), the command's processes are found only by its guard and by the
markers in their environment.

A cgroup's name identifies the process that created it and the attempt, so any later process can end the
cgroups of a dead creator. The guard imports this module, so the module imports little. The guard itself stays
outside the cgroup, so that it survives the kill and can remove the cgroup.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = [
    "end_cgroup",
    "end_cgroups_of",
    "end_stale_cgroups",
    "make_cgroup",
    "own_cgroup",
]

_PREFIX = "cleveragents-command-"
_END_SECONDS = 3.0
_LOOK_SECONDS = 0.005


def make_cgroup(attempt: str) -> Path | None:
    """Create an empty cgroup below our own for a command of the attempt; return None if that fails."""
    here = own_cgroup()
    if here is None:
        return None
    _sweep_once()
    from cleveragents.processes.passthrough import owner_prefix

    made = here / f"{owner_prefix()}{_short(attempt)}-{uuid.uuid4().hex[:12]}"
    try:
        made.mkdir()
    except OSError:
        return None
    return made


def end_cgroup(cgroup: Path, *, seconds: float = _END_SECONDS) -> bool:
    """Kill every process in the cgroup and remove it; return False if the kernel did not end them in time."""
    over = time.monotonic() + seconds
    while not _is_removed(cgroup):
        if time.monotonic() >= over:
            return False
        _kill(cgroup)
        time.sleep(_LOOK_SECONDS)
    return True


def end_cgroups_of(attempt: str) -> None:
    """End the cgroups that any process on this machine created for commands of the attempt."""
    for cgroup in _all_cgroups():
        if cgroup.name.split("-")[3:4] == [_short(attempt)]:
            end_cgroup(cgroup)


def end_stale_cgroups() -> None:
    """End the cgroups whose creators are dead. The cgroups of other machines and namespaces
    are left alone.
    """
    from cleveragents.processes.passthrough import owner_lives

    for cgroup in _all_cgroups():
        if owner_lives(cgroup) is False:
            end_cgroup(cgroup)


def own_cgroup() -> Path | None:
    """Return the cgroup directory of this process; None without cgroup v2."""
    root = _root()
    if root is None:
        return None
    mounted, shown = root
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            hierarchy, _, path = line.partition("::")
            if hierarchy == "0" and Path(path).is_relative_to(shown):
                return mounted / Path(path).relative_to(shown)
    return None


@cache
def _root() -> tuple[Path, Path] | None:
    """Return the mount point of cgroup v2 (alone or beside v1), and the part of the hierarchy that is mounted
    there.
    """
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, kind = line.partition(" - ")
            if kind.split(" ")[0] == "cgroup2":
                shown, mounted = fields.split(" ")[3:5]
                return Path(mounted), Path(shown)
    return None


@cache
def _sweep_once() -> None:
    end_stale_cgroups()


def _all_cgroups() -> Iterator[Path]:
    root = _root()
    if root is None:
        return
    for place, below, _ in os.walk(root[0]):
        ours = [name for name in below if name.startswith(_PREFIX)]
        below[:] = [name for name in below if name not in ours]
        yield from (Path(place, name) for name in ours)


def _is_removed(cgroup: Path) -> bool:
    """Remove the cgroup and its nested cgroups; return whether they are gone."""
    try:
        for place, _, _ in os.walk(cgroup, topdown=False):
            Path(place).rmdir()
        return not cgroup.exists()
    except FileNotFoundError:
        return not cgroup.exists()
    except OSError:
        return False  # a process is still in it


def _kill(cgroup: Path) -> None:
    with suppress(OSError):
        _write(cgroup / "cgroup.kill", "1")
        return
    for place, _, _ in os.walk(cgroup):  # Linux before 5.14
        with suppress(OSError):
            for pid in Path(place, "cgroup.procs").read_text().split():
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY)  # no O_CREAT: fail if the kernel lacks the file
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
