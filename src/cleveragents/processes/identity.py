"""The identity of a process, and whether the process that has one is alive.

A pid is used again; a pid with the moment its process started, on a machine since its last boot, is not.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cleveragents.core.identifiers import WorkerIdentity

__all__ = ["is_alive", "own_identity"]


def own_identity(worker_id: str) -> WorkerIdentity:
    """Return the identity of this process, in terms that any process can check."""
    pid = os.getpid()
    return WorkerIdentity(worker_id, _host(), pid, _started_ticks(pid) or 0)


def is_alive(worker: WorkerIdentity) -> bool | None:
    """Return whether that process still runs; None if it is on another machine."""
    # Without /proc nothing tells a process from a later one of the same pid: leases must do.
    if worker.host != _host() or worker.started_ticks == 0:
        return None
    return _started_ticks(worker.pid) == worker.started_ticks


def _host() -> str:
    """This machine since its last boot, and the namespace in which its pids mean something."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return socket.gethostname()
    return f"{boot.read_text().strip()}/{Path('/proc/self/ns/pid').readlink()}"


def _started_ticks(pid: int) -> int | None:
    """When the process started, in the kernel's own count; None if it is gone or only a zombie."""
    try:
        # The name, in parentheses, may itself hold anything; the fields after it are plain.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])
