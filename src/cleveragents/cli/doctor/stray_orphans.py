"""Orphans outside of plans: processes of jobs, drafts of the setup cache, temporary directories.

A directory is removed only if no living process uses it, it belongs to this user, and its creator is dead. If
the creator is unknown, nothing in the directory may have changed for a long time.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.cli.doctor.orphans import NotRemoved, Orphan
from cleveragents.core.errors import UnknownJob
from cleveragents.core.identifiers import MARKER_VARIABLE
from cleveragents.jobs.model.job import JobState
from cleveragents.processes.passthrough import PREFIX, owner_lives

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["setup_drafts", "stray_processes", "temporary_directories"]

_HOUR = 3600.0
_DRAFTS = ("draft-*", "thrown-*")
# A failed demo keeps its directory for inspection.
_TEMPORARY = {
    # No process shows the name of an isolated command's directory: its creator or its age decides.
    f"{PREFIX}*": 24 * _HOUR,
    "cleveragents-merge-*": _HOUR,
    "cleveragents-demo-*": 24 * _HOUR,
}


def stray_processes(container: Container) -> Sequence[Orphan]:
    """Return processes that still run although the job attempt that started them has ended or its worker is
    dead.
    """
    markers: dict[str, list[int]] = {}
    for pid, marker in _marked():
        markers.setdefault(marker, []).append(pid)

    def fix(marker: str) -> str:
        if marker == os.environ.get(MARKER_VARIABLE):  # guard: `doctor` would end itself
            raise NotRemoved("this command was started by one of them")
        grace = container.settings.worker.cancel_grace_seconds
        ended = container.processes.end(marker, grace_seconds=grace)
        return f"ended {_pids(ended)} of job {marker}" if ended else ""

    return [
        Orphan(f"{_pids(pids)} of job {marker}", partial(fix, marker), "stop the processes with `kill`")
        for marker, pids in sorted(markers.items())
        if _is_over(container, marker)
    ]


def _pids(pids: Sequence[int]) -> str:
    return f"{'process' if len(pids) == 1 else 'processes'} {', '.join(str(pid) for pid in pids)}"


def _marked() -> Iterator[tuple[int, str]]:
    """Yield each process of this machine that was started for a job, with the attempt's marker."""
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marker = process.environ().get(MARKER_VARIABLE)
            if marker:
                yield process.pid, marker


def _is_over(container: Container, marker: str) -> bool:
    job_id, _, fence = marker.rpartition(":")
    try:
        job = container.jobs.get(job_id)
    except UnknownJob:
        return False  # of another database
    if job.state is not JobState.RUNNING or str(job.fence) != fence:
        return True
    return job.owner is not None and container.processes.is_alive(job.owner) is False


def setup_drafts(directory: Path, now: float) -> Sequence[Orphan]:
    """Return entries of the setup cache that were never completed or never fully removed."""
    found = [path for pattern in _DRAFTS for path in sorted(directory.glob(pattern))]
    return [_removable(path, "never completed") for path in found if _is_abandoned(path, _HOUR, now)]


def temporary_directories(parent: Path, now: float) -> Sequence[Orphan]:
    """Return temporary directories of CleverAgents that are no longer used."""
    limits = {
        path: limit if (lives := owner_lives(path)) is None else math.inf if lives else -math.inf
        for pattern, limit in _TEMPORARY.items()
        for path in sorted(parent.glob(pattern))
    }
    old = [path for path, limit in limits.items() if _is_abandoned(path, limit, now)]
    used = _in_use(old)
    return [_removable(path, "not in use") for path in old if path not in used]


def _removable(path: Path, reason: str) -> Orphan:
    from cleveragents.storage.files.paths import remove_all

    def fix() -> str:
        if _in_use([path]):
            raise NotRemoved("a process uses the directory")
        remove_all(path)
        return f"removed {path}: {reason}"

    return Orphan(f"{path}: {reason}", fix, f"look at {path}, then delete it")


def _is_abandoned(path: Path, limit: float, now: float) -> bool:
    """Return whether `path` is a directory of this user without changes or moves for `limit` seconds."""
    try:
        facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():  # guard: not another user's
            return False
        if now - facts.st_ctime <= limit:
            return False
        inside = (Path(place, name) for place, below, files in os.walk(path) for name in (*below, *files))
        return all(now - one.lstat().st_ctime > limit for one in inside)
    except OSError:
        return False  # in use: it changes now


def _in_use(paths: Sequence[Path]) -> set[Path]:
    """Return the paths that a process has open, works in, or names in its arguments or environment."""
    names = {path: str(path) for path in paths}
    used: set[Path] = set()
    for known in _known_to_processes() if paths else ():
        used |= {path for path, name in names.items() if name in known}
    return used


def _known_to_processes() -> Iterator[str]:
    """Yield the paths that readable processes use."""
    import psutil

    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error):
            yield process.cwd()
        with suppress(psutil.Error):
            yield "\0".join(process.cmdline())
        with suppress(psutil.Error):
            yield "\0".join(process.environ().values())
        with suppress(psutil.Error):
            yield "\0".join(file.path for file in process.open_files())
