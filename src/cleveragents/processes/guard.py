"""The process that supervises one command and ends all its processes.

It runs as a file with `python -I -S`. A guard starts with every command, so it imports little, and no other
module of ours until there are processes to end. The guard is a subreaper: every orphan becomes its child, so
when no child is left, no process of the command is left. The guard ends the tree when the command exits,
times out or exceeds its process limit, on request (a second line, or SIGTERM), and when the caller dies. It
notices the caller's death by the end of the control pipe and by a signal from the kernel, since a forked
sibling may keep the pipe open.

The guard never runs foreign code: the command is exec'ed in a child, by this process's only thread, because
bubblewrap's `--die-with-parent` follows the thread.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from types import FrameType

TYPE_CHECKING = False  # avoids importing typing at every start
if TYPE_CHECKING:
    from cleveragents.processes.guard_protocol import GuardProgram, GuardReport

__all__ = ["NOT_EXECUTED", "main"]

NOT_EXECUTED = "bubblewrap"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CHUNK_BYTES = 65536
_LEFTOVER_GRACE_SECONDS = 0.5
_LOOK_AGAIN_SECONDS = 0.1
_FAST_KILL_SECONDS = 0.5
_REAP_SECONDS = 0.002
_STATUS_BYTES = 4096
_COUNT_SECONDS = 0.2
_LISTING_BYTES = 1 << 18
_LONGEST_WAIT_SECONDS = 3600.0
_BUBBLEWRAP_PROCESSES = 2


def main() -> int:
    """Run the command that the control pipe describes; return 0 once the report is delivered."""
    control = os.dup(0)
    reports = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    line = bytearray()
    while b"\n" not in line:
        chunk = os.read(control, _CHUNK_BYTES)
        if not chunk:
            return 1
        line += chunk
    first, _, orders = line.partition(b"\n")
    guard = _Guard(json.loads(first), control)
    if orders:
        guard.cause = "order"
    report = guard.run()
    try:
        os.write(reports, json.dumps(report).encode() + b"\n")
    except BrokenPipeError:
        return 1
    return 0


class _Guard:
    """The supervisor of one command, on one thread."""

    def __init__(self, program: GuardProgram, control: int) -> None:
        self.program = program
        self.cause: str | None = None
        self._control = control
        self._child = 0
        self._command: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._wake, wake_in = os.pipe()
        os.set_blocking(wake_in, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def run(self) -> GuardReport:
        """Start the command, watch it and end it. No process is left on return."""
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self.program["parent"]:  # guard: the caller died before the signal was set up
            return {"code": None, "cause": "parent", "refused": None}
        deadline = time.monotonic() + self.program["timeout_seconds"]
        refused, status = self._start()
        if refused is None:
            self._watch(deadline)
        self._end(self._grace())
        if self.cause == "parent":
            self._tidy_up()
        if refused is None and self.cause is None and status is not None:
            refused = self._never_executed(status)
        return {"code": self._status, "cause": self.cause, "refused": refused}

    def _prepare_command(self) -> None:
        """Prepare the command's process before it executes the program."""
        # guard: if the guard is killed by force, at least the command itself dies with it
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # guard: the command joins, not the guard: a process that ends the cgroups of dead callers must not
        # end the guard before it has cleaned up after its caller
        if self.program.get("cgroup") is not None:
            try:
                procs = os.open(f"{self.program['cgroup']}/cgroup.procs", os.O_WRONLY)
                os.write(procs, b"0")
                os.close(procs)
            except OSError:
                return  # not delegated to this user: the command runs without a cgroup

    def _tidy_up(self) -> None:
        """Remove the cgroup and the private directory in place of a dead caller."""
        sys.path[:0] = [path for path in self.program["path"] if path not in sys.path]
        cgroup, private = self.program.get("cgroup"), self.program["private"]
        if cgroup is not None:
            from pathlib import Path

            from cleveragents.processes.cgroup import end_cgroup

            end_cgroup(Path(cgroup))
        if private is not None:
            from cleveragents.processes.passthrough import remove_directory

            remove_directory(private)

    @property
    def _complaints(self) -> int:
        return self.program.get("errors", self.program["output"])

    def _grace(self) -> float:
        if self.cause == "processes":  # guard: a fork bomb gets no time to grow
            return 0.0
        return self.program["grace_seconds"] if self.cause else _LEFTOVER_GRACE_SECONDS

    def _start(self) -> tuple[str | None, int | None]:
        """Start the command; return the reason if that fails, and the descriptor of bubblewrap's status."""
        program = self.program
        argv = program["argv"]
        status, passed = None, []
        if program["arguments"] is not None:
            arguments = _file_with(b"".join(os.fsencode(word) + b"\0" for word in program["arguments"]))
            status, status_in = os.pipe()
            argv = [argv[0], "--args", str(arguments), "--json-status-fd", str(status_in), *argv[1:]]
            passed = [arguments, status_in]
            seccomp = program.get("seccomp")
            if seccomp is not None:
                passed.append(_file_with(bytes.fromhex(seccomp)))
                argv[1:1] = ["--seccomp", str(passed[-1])]
        try:
            # guard: an object that is dropped would reap the command before its exit status is read
            self._command = self._spawn(argv, passed)
            self._child = self._command.pid
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error), status
        finally:
            for descriptor in {*passed, program["input"], program["output"], self._complaints}:
                os.close(descriptor)
        return None, status

    def _spawn(self, argv: list[str], passed: list[int]) -> subprocess.Popen[bytes]:
        program = self.program

        def start(executable: str, argv: list[str]) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                argv,
                executable=executable,
                stdin=program["input"],
                stdout=program["output"],
                stderr=self._complaints,
                env=program["environment"],
                cwd=program["directory"],
                pass_fds=passed,
                start_new_session=True,
                preexec_fn=self._prepare_command,
            )

        try:
            return start(program["executable"], argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
        # Like every shell: run a script without a shebang with sh.
        return start("/bin/sh", ["sh", program["executable"], *argv[1:]])

    def _watch(self, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        bound = self.program.get("processes")
        look = _LONGEST_WAIT_SECONDS if bound is None else _COUNT_SECONDS
        counted = 0.0
        while self._status is None and self.cause is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self.cause = "timeout"
                return
            ready = dict(poller.poll(min(left, look) * 1000 + 1))
            if self._control in ready:
                self.cause = "order" if os.read(self._control, _CHUNK_BYTES) else "parent"
            if self._wake in ready:
                os.read(self._wake, _CHUNK_BYTES)
            self._reap()
            # By time, not by iteration: each death wakes this loop, so a tree with many short-lived processes
            # would be counted all the time.
            if bound is not None and time.monotonic() >= counted + look:
                counted = time.monotonic()
                if self._is_crowded(bound):
                    self.cause = self.cause or "processes"

    def _is_crowded(self, bound: int) -> bool:
        own = 0 if self.program["arguments"] is None else _BUBBLEWRAP_PROCESSES
        most = bound + own
        waiting = _children()
        if not waiting and self._status is None:
            return self._descendants() > most  # this kernel has no list of children
        found = len(waiting)
        while waiting and found <= most:
            below = _children_of(waiting.pop())
            found += len(below)
            waiting += below
        return found > most

    def _descendants(self) -> int:
        sys.path[:0] = [path for path in self.program["path"] if path not in sys.path]
        try:
            from cleveragents.processes.process_tree import descendants
        except ImportError:
            return 0
        return len(descendants(os.getpid()))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # The kernel's notice of the caller's death looks like any other SIGTERM.
        gone = os.getppid() != self.program["parent"]
        self.cause = self.cause or ("parent" if gone else "signal")

    def _reap(self) -> bool:
        """Reap dead children, including adopted children; return True if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._child:
                self._status = os.waitstatus_to_exitcode(status)

    def _end(self, grace_seconds: float) -> None:
        """End all processes. Every orphan becomes our child, so no child left means no descendant left."""
        if self._reap():
            return
        sys.path[:0] = self.program["path"]
        isolated = self.program["arguments"] is not None
        # If bubblewrap's own process has exited, the kernel is killing all others: SIGTERM is pointless.
        if grace_seconds > 0 and (self._status is None or not isolated):
            self._ask(grace_seconds)
        if self._status is None:
            _kill_group(self._child)
        while not self._reap():  # guard: a snapshot of the tree can miss a chain of forks; this loop cannot
            self._kill_children()
            self._kill_tree()

    def _ask(self, seconds: float) -> None:
        """Send SIGTERM to each process, including new processes, until all have exited or `seconds` have
        passed.
        """
        try:
            import psutil

            from cleveragents.processes.process_tree import descendants
        except ImportError:
            return  # without psutil, skip SIGTERM; the code in this file kills them
        over = time.monotonic() + seconds
        asked = set()
        if self.program["arguments"] is not None:
            asked.add(self._child)  # guard: if bubblewrap's own process exits, all others die at once
        while not self._reap() and time.monotonic() < over:
            for pid, process in descendants(os.getpid()).items():
                if pid not in asked:
                    asked.add(pid)
                    try:
                        process.terminate()
                    except psutil.Error:
                        continue  # it exited meanwhile
            self._sleep(min(_LOOK_AGAIN_SECONDS, max(0.0, over - time.monotonic())))

    def _kill_children(self) -> None:
        """Kill our children repeatedly, since the orphans of each become our children.

        This is exact, because a child's pid is not reused before we reap it, and fast enough for a chain of
        processes that fork and exit. `_kill_tree` handles a wide tree that keeps growing.
        """
        over = time.monotonic() + _FAST_KILL_SECONDS
        while not self._reap() and time.monotonic() < over:
            children = _children()
            if not children:
                return  # this kernel has no list of children
            for pid in children:
                _kill(pid)
            self._sleep(_REAP_SECONDS)

    def _kill_tree(self) -> None:
        if self._reap():
            return
        try:
            from cleveragents.core.errors import DeadlineExceeded
            from cleveragents.processes.process_tree import Tree, descendants, end_tree
        except ImportError:
            return

        def find() -> Tree:
            self._reap()
            return descendants(os.getpid())

        try:
            end_tree(find, grace_seconds=0)
        except DeadlineExceeded:
            return

    def _sleep(self, seconds: float) -> None:
        """Wait until a child dies, for at most `seconds`."""
        if select.select([self._wake], [], [], seconds)[0]:
            os.read(self._wake, _CHUNK_BYTES)

    def _never_executed(self, status: int) -> str | None:
        """Return `NOT_EXECUTED` if bubblewrap failed before the command started.

        bubblewrap reports an exit code only if the command started; its error message is in the output.
        """
        told = b""
        while chunk := os.read(status, _STATUS_BYTES):
            told += chunk
        os.close(status)
        failed = b'"exit-code"' not in told and (self._status or 0) > 0
        return NOT_EXECUTED if failed else None


def _children() -> list[int]:
    return _listed(f"/proc/self/task/{os.getpid()}/children")


def _children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process; empty once it is gone."""
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            return [child for thread in threads for child in _listed(f"{thread.path}/children")]
    except OSError:
        return []


def _listed(path: str) -> list[int]:
    try:
        listing = os.open(path, os.O_RDONLY)
    except OSError:
        return []
    words = b""
    try:
        # guard: a list that grows during the read would never end
        while len(words) < _LISTING_BYTES and (chunk := os.read(listing, _CHUNK_BYTES)):
            words += chunk
    except OSError:
        return []  # the process is gone
    finally:
        os.close(listing)
    return [int(word) for word in words.split()]


def _file_with(content: bytes) -> int:
    file = os.memfd_create("bubblewrap")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return  # gone, or owned by another user


def _kill_group(leader: int) -> None:
    # One signal for the whole group, so no fork escapes. The leader is not reaped, so the group id is still
    # ours.
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        return


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
