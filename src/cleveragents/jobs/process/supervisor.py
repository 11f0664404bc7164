"""The processes of jobs on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cleveragents.core.markers import MARKER_VARIABLE
from cleveragents.core.worker_identity import WorkerIdentity
from cleveragents.jobs.process.job_process import RunnerProcess
from cleveragents.jobs.process.ports import JobProcess, JobProgram
from cleveragents.processes.process_identity import is_alive, own_identity

__all__ = ["PsutilProcessSupervisor"]


class PsutilProcessSupervisor:
    """`ProcessSupervisor` for the processes that this machine (and this container) can see.

    Stateless: the process table is the state, so any thread may share it. psutil is imported at first use.
    """

    def identity(self, worker_id: str) -> WorkerIdentity:
        return own_identity(worker_id)

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        return is_alive(worker)

    def environment(self, marker: str) -> Mapping[str, str]:
        return {MARKER_VARIABLE: marker}

    def alive(self, marker: str) -> Sequence[int]:
        from cleveragents.processes.process_tree import marked

        return sorted(marked(MARKER_VARIABLE, marker))

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        from cleveragents.processes.cgroup import end_cgroups_of
        from cleveragents.processes.process_tree import Tree, end_tree, marked

        def find() -> Tree:
            return marked(MARKER_VARIABLE, marker)

        def stop() -> Tree:
            return marked(MARKER_VARIABLE, marker, stopping=True)

        ended = sorted(end_tree(find, grace_seconds=grace_seconds, stop=stop))
        end_cgroups_of(marker)  # guard: what emptied its variables carries no marker
        return ended

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        return RunnerProcess(program, {**os.environ, **self.environment(marker)})
