"""The processes of jobs on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from cleveragents.application.ports.processes import JobProcess, JobProgram
from cleveragents.domain.job import WorkerIdentity
from cleveragents.infrastructure.jobs.job_process import RunnerProcess
from cleveragents.infrastructure.jobs.markers import MARKER_VARIABLE

__all__ = ["PsutilProcessSupervisor"]


class PsutilProcessSupervisor:
    """`ProcessSupervisor` for the processes that this machine (and this container) can see.

    Stateless: the process table is the state, so any thread may share it. psutil is imported at first use.
    """

    def identity(self, worker_id: str) -> WorkerIdentity:
        pid = os.getpid()
        return WorkerIdentity(worker_id, _host(), pid, _started_ticks(pid) or 0)

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        # Without /proc nothing tells a process from a later one of the same pid: leases must do.
        if worker.host != _host() or worker.started_ticks == 0:
            return None
        return _started_ticks(worker.pid) == worker.started_ticks

    def environment(self, marker: str) -> Mapping[str, str]:
        return {MARKER_VARIABLE: marker}

    def alive(self, marker: str) -> Sequence[int]:
        from cleveragents.infrastructure.jobs.process_tree import marked

        return sorted(marked(MARKER_VARIABLE, marker))

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        from cleveragents.infrastructure.commands.cgroup import end_cgroups_of
        from cleveragents.infrastructure.jobs.process_tree import Tree, end_tree, marked

        def find() -> Tree:
            return marked(MARKER_VARIABLE, marker)

        def stop() -> Tree:
            return marked(MARKER_VARIABLE, marker, stopping=True)

        ended = sorted(end_tree(find, grace_seconds=grace_seconds, stop=stop))
        end_cgroups_of(marker)  # guard: what emptied its variables carries no marker
        return ended

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        return RunnerProcess(program, {**os.environ, **self.environment(marker)})


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
