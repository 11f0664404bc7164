"""The identity of a process, and a check of whether that process is alive.

Pids are reused. A pid together with the start time of its process is unique on one machine since its boot.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cleveragents.core.identifiers import WorkerIdentity

__all__ = ["is_alive", "own_identity"]


def own_identity(worker_id: str) -> WorkerIdentity:
    """Return the identity of this process, in a form that any process can check."""
    pid = os.getpid()
    return WorkerIdentity(worker_id, _host(), pid, _started_ticks(pid) or 0)


def is_alive(worker: WorkerIdentity) -> bool | None:
    """Return whether that process still runs; None if it is on another machine."""
    # Without /proc a process cannot be distinguished from a later one with the same pid: rely on leases.
    if worker.host != _host() or worker.started_ticks == 0:
        return None
    return _started_ticks(worker.pid) == worker.started_ticks


def _host() -> str:
    """Return a name of this machine since its last boot, with its pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return socket.gethostname()
    return f"{boot.read_text().strip()}/{Path('/proc/self/ns/pid').readlink()}"


def _started_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks; None if it is gone or a zombie."""
    try:
        # The process name, in parentheses, may contain anything; the fields after it are plain.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])
