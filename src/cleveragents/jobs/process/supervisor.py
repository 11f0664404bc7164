"""The processes of jobs on this machine, and the worker's end of a job's runner.

The control pipe carries lines of JSON to the runner: the program first, then `{"lease_until": …}` after every
heartbeat and at most one `{"cancel": …}`. Its end of file means that the worker died. The other pipe returns
one line when the handler and everything it started have ended. Several threads write to the control pipe and
never wait.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from cleveragents.core.identifiers import MARKER_VARIABLE, WorkerIdentity
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.jobs.model.job import Job
from cleveragents.processes.identity import is_alive, own_identity

__all__ = [
    "REPORT_LIMIT_BYTES",
    "ControlPipe",
    "JobProcess",
    "JobProgram",
    "ProcessSupervisor",
    "PsutilProcessSupervisor",
    "Raised",
    "Returned",
    "RunnerProcess",
]


REPORT_LIMIT_BYTES = 4 * 1024 * 1024
_EXIT_SECONDS = 5.0
_REASON_LIMIT = 500


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
        end_cgroups_of(marker)  # guard: a process that cleared its environment has no marker
        return ended

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        return RunnerProcess(program, {**os.environ, **self.environment(marker)})


class RunnerProcess:
    """`JobProcess` over `python -m cleveragents.jobs.process.runner`.

    Any thread may call `renew` and `cancel`; only the launching thread calls `wait` and `close`. An abandoned
    `wait` may be called again: input read so far is kept.
    """

    def __init__(self, program: JobProgram, environment: Mapping[str, str]) -> None:
        self._report = bytearray()
        # A separate session: Ctrl-C at the worker's terminal is for the worker to handle.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cleveragents.jobs.process.runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reports = self._process.stdout
        _send_program(self._process.stdin.fileno(), program)
        self._control = ControlPipe(self._process.stdin, program.lease_until)

    def renew(self, lease_until: float) -> None:
        self._control.renew(lease_until)

    def cancel(self, reason: str) -> None:
        self._control.cancel(reason)

    def wait(self, timeout: float) -> Returned | Raised | None:
        ready, _, _ = select.select([self._reports], [], [], timeout)
        if not ready:
            return None
        chunk = os.read(self._reports.fileno(), 65536)
        self._report += chunk
        if chunk and len(self._report) <= REPORT_LIMIT_BYTES:
            return None
        return self._read_report(bytes(self._report))

    def close(self) -> None:
        self._control.close()
        self._reports.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_EXIT_SECONDS)

    def _read_report(self, line: bytes) -> Returned | Raised:
        try:
            report = json.loads(line)
        except ValueError:
            return Raised(f"the process {self._how_it_ended()} without a report")
        if report["returned"]:
            return Returned(report["value"])
        return Raised(report["problem"], report["permanent"], report["cancelled"])

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "went silent"
        return f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"


def _send_program(control: int, program: JobProgram) -> None:
    """Send the program as the first line, then make the pipe non-blocking."""
    job = program.job
    line = {
        "target": program.target,
        "job_id": job.id,
        "kind": job.kind,
        "payload": thaw(job.payload),
        "attempt": job.attempt,
        "fence": job.fence,
        "lease_until": program.lease_until,
        "path": [str(entry) for entry in sys.path],
    }
    view = memoryview(json.dumps(line).encode() + b"\n")
    with contextlib.suppress(BrokenPipeError):  # it died already: `wait` reports how
        while view:
            view = view[os.write(control, view) :]
    os.set_blocking(control, False)


class WritableEnd(Protocol):
    """An unbuffered, non-blocking end of a pipe."""

    def write(self, data: bytes, /) -> int | None: ...

    def close(self) -> None: ...


class ControlPipe:
    """The worker's end of the control pipe, which sends lease renewals and a cancel to the runner.

    Thread safety:
        Owner: the `RunnerProcess` that made it; heartbeats, cancels and the close come from several threads.
        Lock: `_lock` guards the pipe's end and the lease, held for one write that never waits.
        Guarantee: nothing is written after `close`, and the lease sent to the other side only grows.
    Cancel safety: no call waits.
    """

    def __init__(self, end: WritableEnd, lease_until: float) -> None:
        self._lock = threading.Lock()
        self._end = end
        self._lease_until = lease_until
        self._closed = False

    def renew(self, lease_until: float) -> None:
        with self._lock:
            if lease_until <= self._lease_until:  # guard: an overtaken renewal never shortens the lease
                return
            self._lease_until = lease_until
            self._write({"lease_until": lease_until})

    def cancel(self, reason: str) -> None:
        with self._lock:
            self._write({"cancel": reason[:_REASON_LIMIT]})

    def close(self) -> None:
        """Close the pipe; the other side sees the end of file. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            self._end.close()

    def _write(self, message: Mapping[str, object]) -> None:
        if self._closed:  # guard: the pipe is closed
            return
        # A dead runner needs no message; one that does not read lets its lease expire.
        with contextlib.suppress(BrokenPipeError):
            self._end.write(json.dumps(message).encode() + b"\n")


class Returned(Struct, frozen=True):
    """The return value of a handler, which may or may not be JSON."""

    value: object


class Raised(Struct, frozen=True):
    """The failure of a handler: it raised, or its process died.

    `permanent`: another attempt would fail in the same way. `cancelled`: the handler reports that it stopped
    on request. `refusal`: code and fields of the error, if it is a permanent `CleverAgentsError`.
    """

    problem: str
    permanent: bool = False
    cancelled: bool = False
    refusal: JsonValue = None


class JobProgram(Struct, frozen=True):
    """The program of a separate process: `target` is `package.module:function`.

    `lease_until` is a value of `Clock.monotonic`, the same clock for all processes since the boot. At that
    time the process ends itself and its whole tree, unless the lease is renewed.
    """

    job: Job
    target: str
    lease_until: float


class JobProcess(Protocol):
    """An attempt in a separate process. Any thread may call it; only `wait` blocks."""

    def renew(self, lease_until: float) -> None:
        """Extend the worker's lease until this time."""
        ...

    def cancel(self, reason: str) -> None:
        """Cancel the handler's token in the process."""
        ...

    def wait(self, timeout: float) -> Returned | Raised | None:
        """Return the result of the handler once it and all its processes ended; None after the timeout."""
        ...

    def close(self) -> None:
        """Close the connection; a process that still runs ends itself and its tree."""
        ...


class ProcessSupervisor(Protocol):
    """Finds and ends whole process trees, by the marker they inherit and by descent.

    Any thread may call it. A *marker* identifies one attempt of one job; processes started with
    `environment(marker)` inherit it, and so do their children, including double-forked processes and
    processes in a new session.
    """

    def identity(self, worker_id: str) -> WorkerIdentity:
        """Return the identity of this process, which any process can check."""
        ...

    def is_alive(self, worker: WorkerIdentity) -> bool | None:
        """Return whether the process is alive; None if it is on another machine."""
        ...

    def environment(self, marker: str) -> Mapping[str, str]:
        """Return environment variables that mark a process as belonging to `marker`."""
        ...

    def alive(self, marker: str) -> Sequence[int]:
        """Return the pids of live processes with the marker (never this process)."""
        ...

    def end(self, marker: str, *, grace_seconds: float) -> Sequence[int]:
        """End all processes with the marker, by force after the grace period; return their pids.

        When it returns, none is alive. A process that appears meanwhile is ended, too. Raises
        `DeadlineExceeded` if they multiply faster than they can be ended.
        """
        ...

    def launch(self, marker: str, program: JobProgram) -> JobProcess:
        """Start the program in a process with the marker."""
        ...
