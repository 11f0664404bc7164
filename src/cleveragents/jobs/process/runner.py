"""`python -m cleveragents.jobs.process.runner`: a job's handler in a process that can be killed.

There are two processes. The *guard* (this process) never runs foreign code. As a subreaper it adopts every
orphan of the attempt. It holds the worker's lease, and ends the whole tree when the handler is done, when the
lease expires, or when the worker dies (end of file on the control pipe). So an attempt never outlives its
worker or the worker's claim to the job, even if the worker is stopped or killed. The *handler* is a fork of
the guard; it may hang, crash or ignore signals.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
from dataclasses import dataclass, field

from cleveragents.core.clock import SystemClock
from cleveragents.jobs.process.supervisor import REPORT_LIMIT_BYTES

__all__ = ["main"]

_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_SECONDS = 1.0
_CHUNK_BYTES = 65536
_LONGEST_SLEEP_SECONDS = 1.0


def main() -> int:
    """Run the program from the control pipe; return 0 when its report was delivered."""
    control = os.dup(sys.stdin.fileno())
    reports = os.dup(sys.stdout.fileno())
    lines = _Lines(control)
    while (program := lines.take()) is None:
        lines.read()
        if lines.ended:
            return 1
    _become_subreaper()
    orders_out, orders_in = os.pipe()
    answers_out, answers_in = os.pipe()
    handler = os.fork()
    if handler == 0:
        for descriptor in (control, reports, orders_in, answers_out):
            os.close(descriptor)
        return _become_handler(program, orders_out, answers_in)
    os.close(orders_out)
    os.close(answers_in)
    guard = _Guard(lines, handler, orders_in, answers_out, float(str(program["lease_until"])))
    report = guard.watch()
    if report is None:
        return 1
    _write_all(reports, report)
    return 0


@dataclass
class _Lines:
    """Lines of JSON from a pipe."""

    descriptor: int
    ended: bool = False
    _buffer: bytearray = field(default_factory=bytearray)

    def read(self) -> None:
        """Wait for more input."""
        chunk = os.read(self.descriptor, _CHUNK_BYTES)
        self.ended = not chunk
        self._buffer += chunk

    def take(self) -> dict[str, object] | None:
        """Return the next complete line, or None."""
        line, end, rest = self._buffer.partition(b"\n")
        if not end:
            return None
        self._buffer = rest
        taken: dict[str, object] = json.loads(line)
        return taken


@dataclass
class _Guard:
    """Watches the handler, the lease and the worker. One thread, no foreign code."""

    lines: _Lines
    handler: int
    orders: int
    answers: int
    lease_until: float
    _answer: bytearray = field(default_factory=bytearray)
    _answered: bool = False
    _status: int | None = None

    def watch(self) -> bytes | None:
        """Return the report once no process of the attempt is left; None if the worker is gone."""
        wake_out, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            # Signals to this process do not end the tree: cancel through the worker.
            signal.signal(number, lambda *_: None)
        clock = SystemClock()
        self._obey()  # commands that arrived together with the program
        while not self._answered and self._status is None:
            left = self.lease_until - clock.monotonic()
            if left <= 0 or self.lines.ended:
                self._end_all(0)
                return None
            self._serve(wake_out, min(left, _LONGEST_SLEEP_SECONDS))
        self._drain_answers()
        self._let_handler_exit(clock, wake_out)
        self._end_all(min(_LEFTOVER_GRACE_SECONDS, self.lease_until - clock.monotonic()))
        return self._report()

    def _serve(self, wake: int, timeout: float) -> None:
        sources = [self.lines.descriptor, wake]
        if not self._answered:
            sources.append(self.answers)
        ready, _, _ = select.select(sources, [], [], max(timeout, 0))
        if wake in ready:
            os.read(wake, _CHUNK_BYTES)
        if self.lines.descriptor in ready and not self.lines.ended:
            self.lines.read()
        self._obey()
        if self.answers in ready:
            self._hear(os.read(self.answers, _CHUNK_BYTES))
        self._reap()

    def _hear(self, chunk: bytes) -> None:
        # A newline ends the answer; so does the end of file, which a forked grandchild may delay.
        self._answer += chunk
        self._answered = not chunk or chunk.endswith(b"\n") or len(self._answer) > REPORT_LIMIT_BYTES

    def _drain_answers(self) -> None:
        """Read the data that the handler wrote to the pipe just before it died."""
        os.set_blocking(self.answers, False)
        with contextlib.suppress(BlockingIOError):
            while not self._answered:
                self._hear(os.read(self.answers, _CHUNK_BYTES))

    def _let_handler_exit(self, clock: SystemClock, wake: int) -> None:
        """Give a handler that has answered a grace period to exit by itself, before it is signalled."""
        deadline = min(clock.monotonic() + _LEFTOVER_GRACE_SECONDS, self.lease_until)
        while self._status is None and clock.monotonic() < deadline and not self.lines.ended:
            self._serve(wake, deadline - clock.monotonic())

    def _obey(self) -> None:
        while (order := self.lines.take()) is not None:
            if "lease_until" in order:
                self.lease_until = float(str(order["lease_until"]))
            else:
                _write_all(self.orders, json.dumps(order).encode() + b"\n")

    def _reap(self) -> bool:
        """Reap dead children, including adopted children; return whether no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.handler:
                self._status = os.waitstatus_to_exitcode(status)

    def _end_all(self, grace_seconds: float) -> None:
        # No child left means no descendant left, because every orphan becomes our child.
        if self._reap():
            return
        from cleveragents.processes.process_tree import Tree, descendants, end_tree

        def find() -> Tree:
            self._reap()
            return descendants(os.getpid())

        # `find` takes a snapshot, which a chain of forks may escape; having no child left is exact.
        while not self._reap():
            end_tree(find, grace_seconds=grace_seconds)

    def _report(self) -> bytes:
        if len(self._answer) > REPORT_LIMIT_BYTES:
            problem = f"the result is larger than {REPORT_LIMIT_BYTES} bytes"
            return _raised(problem, permanent=True)
        if self._answer:
            return bytes(self._answer)
        code = self._status or 0
        how = f"was ended by signal {-code}" if code < 0 else f"exited with code {code}"
        return _raised(f"the process {how} without a result")


def _become_handler(program: dict[str, object], orders: int, answers: int) -> int:
    """Run the handler in the forked process, where all foreign code runs."""
    from cleveragents.jobs.process.handler_process import run_handler

    # Handlers print; neither pipe to the worker is theirs.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    _write_all(answers, run_handler(program, orders))
    os.close(answers)
    return 0


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _raised(problem: str, *, permanent: bool = False) -> bytes:
    report = {"returned": False, "problem": problem, "permanent": permanent, "cancelled": False}
    return json.dumps(report).encode() + b"\n"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        return  # the reader is gone


if __name__ == "__main__":
    sys.exit(main())
