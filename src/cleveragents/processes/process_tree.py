"""Find every process of a tree and end it.

A tree is found by two signs, because a process can lose either of them. The *marker* in the environment
survives a double fork and `setsid`, but not `env -i`. *Descent* survives `env -i`, but not the parent's
death, unless a subreaper adopts the orphan. All processes are first stopped, so that none can fork, and then
killed from the leaves up. The roots, such as a subreaper, are killed last, because the other processes are
found through them.

On Linux, the environment of a process looks empty in the middle of an exec: of 20,000 reads from a program
that only execs itself, 630 missed the marker. The order of the kernel's steps in an exec distinguishes an
empty environment from an incomplete one: the kernel first creates an empty memory, then copies the
environment into it, and then records the end of the code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path

import psutil
from msgspec import Struct

from cleveragents.core.errors import DeadlineExceeded

__all__ = [
    "DEAD",
    "GROUP",
    "PARENT",
    "STATE",
    "THREADS",
    "EnvironmentOf",
    "Tree",
    "descendants",
    "end_tree",
    "environment_of",
    "marked",
    "stat_of",
]


Tree = Mapping[int, psutil.Process]
_FORCE_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.02
_WAIT_SECONDS = 0.5
_MOST_LOOKS = 8
_EXEC_SECONDS, _EXEC_STEP_SECONDS = 5.0, 0.001

EnvironmentOf = Callable[[int], bytes | None]
_CHUNK_BYTES = 1 << 16
# Fields of /proc/PID/stat, counted from the one after the name.
STATE = 0
PARENT = 1
GROUP = 2
THREADS = 17
_FLAGS, _CODE_ENDS, _ENVIRONMENT_STARTS, _ENVIRONMENT_ENDS = 6, 24, 47, 48
DEAD = (b"Z", b"X")
_EXITING, _KERNEL_THREAD = 0x4, 0x200000


def descendants(root: int) -> Tree:
    """Return the living processes below `root`, without `root` itself."""
    return _below({root})


def _below(roots: Collection[int]) -> dict[int, psutil.Process]:
    """Return the living processes below any of the roots; a root may lie below another.

    Reads the process table once, and skips zombies: a hanging process may have left thousands unreaped.
    """
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for pid, parent, is_dead in _table():
        children.setdefault(parent, []).append(pid)
        if is_dead:
            dead.add(pid)
    found: dict[int, psutil.Process] = {}
    waiting = [(root, 0.0) for root in roots]
    while waiting:
        pid, began = waiting.pop()
        for child in children.get(pid, ()):
            if child in found or child in dead:
                continue
            with suppress(psutil.Error):
                process = psutil.Process(child)
                # A process older than its parent is not its child: the pid was reused.
                if process.create_time() >= began and _lives(process):
                    found[child] = process
                    waiting.append((child, process.create_time()))
    return found


def _table() -> Iterator[tuple[int, int, bool]]:
    """Yield each process, its parent, and whether it is a zombie without further threads."""
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            if psutil.LINUX:
                fields = stat_of(pid)
                yield pid, int(fields[PARENT]), fields[STATE] in DEAD and int(fields[THREADS]) < 2
            else:
                yield pid, psutil.Process(pid).ppid(), False


def environment_of(pid: int, proc: str = "/proc") -> bytes | None:
    """Return the environment as `name=value` items between NULs; None if it cannot be determined yet.

    Raises `psutil.Error` or `OSError` if the process does not exist or may not be examined. Does not use
    psutil on Linux: it would also read the start time, and each attempt of a job may examine hundreds of
    processes.
    """
    if not psutil.LINUX:
        content = os.fsencode("\0".join(f"{n}={v}" for n, v in psutil.Process(pid).environ().items()))
        return b"\0" + content + b"\0"
    place = f"{proc}/{pid}"
    content = b""
    # Newer kernels raise ProcessLookupError for a process without memory; the code below finds out why.
    with suppress(ProcessLookupError):
        content = _at_once(f"{place}/environ")
    if not content:
        # Read after the environment, so that it is not older.
        fields = stat_of(pid, proc)
        if _is_dead(fields):
            content = _of_another_thread(place) if int(fields[THREADS]) > 1 else b""
        elif not _has_none(fields):  # guard: it may carry the marker
            return None
    return b"\0" + content + b"\0"


def marked(
    variable: str, value: str, *, stopping: bool = False, environment_of: EnvironmentOf = environment_of
) -> Tree:
    """Return the living processes that carry the variable, and their descendants, but never this process.

    A process that forks and exits may escape one scan of the process table, so scans are repeated until one
    shows no new pid. With `stopping`, processes with the variable are stopped as they are found, because the
    fastest would fork again before the scan ends. A process in the middle of an exec is examined again until
    its environment is known, for at most 5 s.
    """
    found: dict[int, psutil.Process] = {}
    examined: set[int] = set()
    unsure: set[int] = set()
    look = _Look(os.fsencode(f"\0{variable}={value}\0"), environment_of, found)
    for _ in range(_MOST_LOOKS):
        fresh = set(psutil.pids()) - examined
        if not fresh:
            break
        before = set(found)
        examined |= look.at(fresh, stopping=stopping)
        unsure = fresh - examined
        if stopping and set(found) == before:
            break
    else:
        _wait_for_execs(unsure, look)
    found.update(_below(found.keys()))
    found.pop(os.getpid(), None)
    return found


def _wait_for_execs(unsure: set[int], look: _Look) -> None:
    """Wait for processes in the middle of an exec, and find those with the marker.

    A busy machine or a slow disk can delay an exec beyond all scans. Only the processes in `unsure` are
    waited for, since new ones appear all the time, and only for a limited time, since an unrelated exec may
    hang.
    """
    give_up = time.monotonic() + _EXEC_SECONDS
    while unsure and time.monotonic() < give_up:  # guard: they may carry the marker
        time.sleep(_EXEC_STEP_SECONDS)
        unsure = unsure - look.at(unsure, stopping=False)


class _Look(Struct, frozen=True):
    """A search for a marker in the environments of processes; `found` gets the processes with the marker."""

    sign: bytes
    environment_of: EnvironmentOf
    found: dict[int, psutil.Process]

    def at(self, pids: set[int], *, stopping: bool) -> set[int]:
        """Examine the pids; return those that need not be examined again."""
        settled: set[int] = set()
        for pid in sorted(pids, reverse=True):  # newest first
            try:
                environment = self.environment_of(pid)
                if environment is not None and self.sign in environment:
                    process = psutil.Process(pid)
                    # Read again, because the pid may have been reused.
                    environment = self.environment_of(pid)
                    if environment is not None and self.sign in environment and _lives(process):
                        self.found[pid] = process
                        if stopping and pid != os.getpid():
                            process.suspend()
                if environment is None:  # guard: unknown yet, or unknown again at the second read
                    continue
            except (psutil.Error, OSError):
                pass  # it exited, or belongs to another user
            settled.add(pid)
        return settled


def end_tree(
    find: Callable[[], Tree], *, grace_seconds: float, stop: Callable[[], Tree] | None = None
) -> Collection[int]:
    """End all processes that `find` finds, including new ones; return their pids.

    `stop` finds the same processes and also suspends them. Raises `DeadlineExceeded`.
    """
    ended: set[int] = set()
    if grace_seconds > 0 and _end_politely(find, time.monotonic() + grace_seconds, ended):
        return ended
    give_up = time.monotonic() + _FORCE_SECONDS
    while True:
        found = (stop or find)()
        if not found and not (found := find()):
            return ended
        if time.monotonic() > give_up:
            raise DeadlineExceeded(f"ending {len(found)} processes", _FORCE_SECONDS)
        ended |= found.keys()
        _signal(found.values(), psutil.Process.suspend)
        if find().keys() <= found.keys():
            _kill_leaves_first(found)


def _end_politely(find: Callable[[], Tree], deadline: float, asked: set[int]) -> bool:
    """Send SIGTERM to each process once and add it to `asked`; return whether all have exited."""
    while found := find():
        newcomers = [process for pid, process in found.items() if pid not in asked]
        _signal(newcomers, psutil.Process.terminate)
        asked |= found.keys()
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        psutil.wait_procs(list(found.values()), timeout=min(left, _LOOK_AGAIN_SECONDS))
    return True


def _kill_leaves_first(found: Tree) -> None:
    roots = {pid for pid, process in found.items() if _parent(process) not in found}
    victims = [process for pid, process in found.items() if pid not in roots] or list(found.values())
    _signal(victims, psutil.Process.kill)
    give_up = time.monotonic() + _WAIT_SECONDS
    # A stopped parent does not reap, so a killed child may remain as a zombie; that counts as dead.
    while any(_lives(process) for process in victims) and time.monotonic() < give_up:
        time.sleep(0.001)


def _signal(processes: Collection[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            send(process)
        except psutil.Error:
            continue  # it exited meanwhile


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _lives(process: psutil.Process) -> bool:
    try:
        if not process.is_running():
            return False
        # Its first thread may have ended before the others.
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.Error:
        return False


def stat_of(pid: int, proc: str = "/proc") -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name, which may contain anything. Raises `OSError`."""
    return _at_once(f"{proc}/{pid}/stat").rpartition(b")")[2].split()


def _is_dead(fields: list[bytes]) -> bool:
    """Return whether the first thread is dead; others may still run."""
    return fields[STATE] in DEAD or bool(int(fields[_FLAGS]) & _EXITING)


def _has_none(fields: list[bytes]) -> bool:
    """Return whether the process really has no environment, or is a kernel thread.

    Call it after an empty environment was read: if the process has one now, an exec has completed in between.
    """
    if int(fields[_FLAGS]) & _KERNEL_THREAD:
        return True
    if fields[_CODE_ENDS] == b"0":  # guard: not copied yet, so it seems to end where it starts
        return False
    return fields[_ENVIRONMENT_STARTS] == fields[_ENVIRONMENT_ENDS]


def _of_another_thread(place: str) -> bytes:
    for thread in Path(f"{place}/task").iterdir():
        with suppress(OSError):  # the thread just ended
            if content := _at_once(f"{thread}/environ"):
                return content
    return b""


def _at_once(path: str) -> bytes:
    """Read the whole file with one call. A file opened before an exec shows the old program, and seems to end
    when that program is gone.
    """
    size = _CHUNK_BYTES
    while True:
        with FileIO(path) as file:
            content = file.read(size) or b""
        if len(content) < size:
            return content
        size *= 8
