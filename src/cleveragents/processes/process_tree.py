"""Finding every process of a tree, and ending it for good.

A tree is found by two signs, because each alone can be shed: the *marker* in the environment survives a
double fork and `setsid` but not `env -i`; *descent* survives `env -i` but not a parent's death, unless a
subreaper stands above, and then the orphan stays below that. Hence the order of ending: all are stopped
first, so that none can fork while we look, then killed from the leaves up, the roots (a subreaper is one)
last, because they keep the others findable.

The environment that a process was started with, and whether that can be told at all.

On Linux it cannot while the process is in the middle of an exec: it looks empty then. Of 20,000 looks at a
program that does nothing but exec itself, 630 once took it for a stranger. What tells the two apart is the
order in which the kernel goes about an exec: first there is a new, empty memory, then the environment is laid
out in it, and only then is it noted where the code ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import psutil

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
# Fields of /proc/PID/stat, counted from after the name.
STATE = 0
PARENT = 1
GROUP = 2
THREADS = 17
_FLAGS, _CODE_ENDS, _ENVIRONMENT_STARTS, _ENVIRONMENT_ENDS = 6, 24, 47, 48
DEAD = (b"Z", b"X")
_EXITING, _KERNEL_THREAD = 0x4, 0x200000


def descendants(root: int) -> Tree:
    """Living processes below `root`, without it."""
    return _below({root})


def _below(roots: Collection[int]) -> dict[int, psutil.Process]:
    """Living processes below any of the roots, which may be found below each other.

    By one look at the table for all of them, and without a closer look at the dead: of these, one that hangs
    may have left thousands unburied.
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
                # Who is older than its parent is not its child: the pid has become another one's since.
                if process.create_time() >= began and _lives(process):
                    found[child] = process
                    waiting.append((child, process.create_time()))
    return found


def _table() -> Iterator[tuple[int, int, bool]]:
    """Each process, its parent, and whether it is dead and has nobody below it."""
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            if psutil.LINUX:
                fields = stat_of(pid)
                yield pid, int(fields[PARENT]), fields[STATE] in DEAD and int(fields[THREADS]) < 2
            else:
                yield pid, psutil.Process(pid).ppid(), False


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


def marked(
    variable: str, value: str, *, stopping: bool = False, environment_of: EnvironmentOf = environment_of
) -> Tree:
    """Living processes that carry the variable, and their descendants; never this process itself.

    A process that forks and exits may hop over a single look at the table. So looks are repeated until one
    shows no pid that was not examined before: whoever lives then was seen alive. Where all are to be ended
    anyway, they may be stopped as they are found: by the end of a look the quickest have gone on.
    One that is in the middle of an exec is looked at again until it can be told whose it is, for 5 s at most.
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
    """Finds the carriers among those that are in the middle of an exec, as soon as they are through.

    A busy machine or a slow disk can keep one there for longer than all looks take. Only these are waited
    for, since there is always a newcomer somewhere; and not for ever, since a stranger may hang there.
    """
    give_up = time.monotonic() + _EXEC_SECONDS
    while unsure and time.monotonic() < give_up:  # guard: they may be carriers
        time.sleep(_EXEC_STEP_SECONDS)
        unsure = unsure - look.at(unsure, stopping=False)


@dataclass(frozen=True, slots=True)
class _Look:
    """At processes, for a sign in their environment; carriers are added to `found`."""

    sign: bytes
    environment_of: EnvironmentOf
    found: dict[int, psutil.Process]

    def at(self, pids: set[int], *, stopping: bool) -> set[int]:
        """Those of the pids that need not be looked at again."""
        settled: set[int] = set()
        for pid in sorted(pids, reverse=True):  # the latest first
            try:
                environment = self.environment_of(pid)
                if environment is not None and self.sign in environment:
                    process = psutil.Process(pid)
                    # Again, because the pid may have become another one's since.
                    environment = self.environment_of(pid)
                    if environment is not None and self.sign in environment and _lives(process):
                        self.found[pid] = process
                        if stopping and pid != os.getpid():
                            process.suspend()
                if environment is None:  # guard: it cannot be told yet, or, read again, no more
                    continue
            except (psutil.Error, OSError):
                pass  # it ended, or belongs to somebody else
            settled.add(pid)
        return settled


def end_tree(
    find: Callable[[], Tree], *, grace_seconds: float, stop: Callable[[], Tree] | None = None
) -> Collection[int]:
    """Ends all that `find` finds, newcomers included; returns their pids. `stop` finds the same, and stops
    them meanwhile. `DeadlineExceeded`."""
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
    """Asks them to end, and adds whom it asked; whether nobody is left."""
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
    # A stopped parent does not reap, so a killed child may stay as a zombie: that is dead enough.
    while any(_lives(process) for process in victims) and time.monotonic() < give_up:
        time.sleep(0.001)


def _signal(processes: Collection[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            send(process)
        except psutil.Error:
            continue  # it ended by itself


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
