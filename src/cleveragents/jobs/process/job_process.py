"""The worker's end of a job's runner: a control pipe to it, one report back.

Down the control pipe go lines of JSON: the program first, then `{"lease_until": …}` after every heartbeat
and at most one `{"cancel": …}`. The pipe's end-of-file is the worker's death. Up the other pipe comes one
line, when the handler and everything it started have ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping

from cleveragents.core.json_value import thaw
from cleveragents.jobs.process.control_pipe import ControlPipe
from cleveragents.jobs.process.ports import JobProgram, Raised, Returned

__all__ = ["REPORT_LIMIT_BYTES", "RunnerProcess"]

REPORT_LIMIT_BYTES = 4 * 1024 * 1024
_EXIT_SECONDS = 5.0


class RunnerProcess:
    """`JobProcess` over `python -m cleveragents.jobs.process.runner`.

    `renew` and `cancel` may come from any thread; `wait` and `close` are the launching thread's. A `wait`
    that is given up may be called again: what was read so far is kept.
    """

    def __init__(self, program: JobProgram, environment: Mapping[str, str]) -> None:
        self._report = bytearray()
        # A session of its own: a Ctrl-C at the worker's terminal is the worker's to interpret.
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
            return Raised(f"its process {self._how_it_ended()} without a report")
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
    """The first line; then the pipe no longer waits for anybody."""
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
    with contextlib.suppress(BrokenPipeError):  # it died already: `wait` tells how
        while view:
            view = view[os.write(control, view) :]
    os.set_blocking(control, False)
