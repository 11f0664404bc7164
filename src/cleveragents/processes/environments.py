"""The environment that a process was started with, and whether that can be told at all.

On Linux it cannot while the process is in the middle of an exec: it looks empty then. Of 20,000 looks at a
program that does nothing but exec itself, 630 once took it for a stranger. What tells the two apart is the
order in which the kernel goes about an exec: first there is a new, empty memory, then the environment is laid
out in it, and only then is it noted where the code ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

import psutil

__all__ = ["DEAD", "GROUP", "PARENT", "STATE", "THREADS", "EnvironmentOf", "environment_of", "stat_of"]

EnvironmentOf = Callable[[int], bytes | None]

_CHUNK_BYTES = 1 << 16
# Fields of /proc/PID/stat, counted from after the name.
STATE = 0
PARENT = 1
GROUP = 2
THREADS = 17
_FLAGS, _CODE_ENDS, _ENVIRONMENT_STARTS, _ENVIRONMENT_ENDS = 6, 24, 47, 48
DEAD = (b"Z", b"X")
_EXITING, _KERNEL_THREAD = 0x4, 0x200000


def environment_of(pid: int, proc: str = "/proc") -> bytes | None:
    """Each `name=value` between two NULs; nothing where there is none; None where it cannot be told yet.

    `psutil.Error` or `OSError` if there is no such process, or it is not ours to look into. psutil would read
    when it started, too, and there may be hundreds to look at for each attempt of a job.
    """
    if not psutil.LINUX:
        content = os.fsencode("\0".join(f"{n}={v}" for n, v in psutil.Process(pid).environ().items()))
        return b"\0" + content + b"\0"
    place = f"{proc}/{pid}"
    content = b""
    with suppress(
        ProcessLookupError
    ):  # so say newer kernels where there is no memory: the rest must tell why
        content = _at_once(f"{place}/environ")
    if not content:
        # After the environment, so that what it tells is not older.
        fields = stat_of(pid, proc)
        if _is_dead(fields):
            content = _of_another_thread(place) if int(fields[THREADS]) > 1 else b""
        elif not _has_none(fields):  # guard: it may carry what is looked for
            return None
    return b"\0" + content + b"\0"


def stat_of(pid: int, proc: str = "/proc") -> list[bytes]:
    """What the kernel tells about a process, after its name, which may itself hold anything. `OSError`."""
    return _at_once(f"{proc}/{pid}/stat").rpartition(b")")[2].split()


def _is_dead(fields: list[bytes]) -> bool:
    """Whether its first thread is; the others may go on."""
    return fields[STATE] in DEAD or bool(int(fields[_FLAGS]) & _EXITING)


def _has_none(fields: list[bytes]) -> bool:
    """Whether it was given none, or is a part of the kernel. If it has one, an exec came between our opening
    and our reading."""
    if int(fields[_FLAGS]) & _KERNEL_THREAD:
        return True
    if fields[_CODE_ENDS] == b"0":  # guard: it is not laid out yet, so it seems to end where it starts
        return False
    return fields[_ENVIRONMENT_STARTS] == fields[_ENVIRONMENT_ENDS]


def _of_another_thread(place: str) -> bytes:
    for thread in Path(f"{place}/task").iterdir():
        with suppress(OSError):  # it ended just now
            if content := _at_once(f"{thread}/environ"):
                return content
    return b""


def _at_once(path: str) -> bytes:
    """All of it, by one read: what was opened belongs to the program before an exec, and ends with that."""
    size = _CHUNK_BYTES
    while True:
        with FileIO(path) as file:
            content = file.read(size) or b""
        if len(content) < size:
            return content
        size *= 8
