"""The process that stands above one command and leaves nothing of it behind.

Run as a file by `python -I -S`: it starts with every command, so it imports little and nothing of ours until
there are processes to be ended. It is the subreaper below which every orphan stays, so that having no child
left means that nothing of the command is left. It ends the tree when the command is done, when its time is
up, when it has more processes than it may, when told to (a second line, or SIGTERM), and when its caller
dies, however that happens: the control pipe ends, and the kernel says so too, since a forked sibling of ours
may hold that pipe open.

Never runs foreign code: the command is exec'ed in a child, by this process's only thread, because
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

TYPE_CHECKING = False  # spares the import of typing, at every start
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
    """Runs the command that the control pipe names; 0 when its report was delivered."""
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
    """One command. One thread."""

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
        """Starts it, watches it, ends it: nothing is left when this returns."""
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self.program["parent"]:  # guard: it died before we could be told
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
        """Runs in the command's process, before it executes the program."""
        # guard: if we are killed by force, at least the command itself goes with us
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # guard: the command joins, not we: a process that ends the cgroups of dead callers must not end us
        # before we have removed what the caller left
        if self.program.get("cgroup") is not None:
            try:
                procs = os.open(f"{self.program['cgroup']}/cgroup.procs", os.O_WRONLY)
                os.write(procs, b"0")
                os.close(procs)
            except OSError:
                return  # not delegated to this user: then commands do without

    def _tidy_up(self) -> None:
        """What the caller would have removed, had it not died."""
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
        if self.cause == "processes":  # guard: what multiplies is not given the time to
            return 0.0
        return self.program["grace_seconds"] if self.cause else _LEFTOVER_GRACE_SECONDS

    def _start(self) -> tuple[str | None, int | None]:
        """Why it cannot be run, if so; where bubblewrap tells what became of it."""
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
            # guard: an object that is dropped would reap the command before we see how it ended
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
        # As every shell does with a script that does not say what runs it.
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
            # By the clock, not by the turn: what dies wakes us, and a tree that comes and goes would have us
            # count all the time.
            if bound is not None and time.monotonic() >= counted + look:
                counted = time.monotonic()
                if self._is_crowded(bound):
                    self.cause = self.cause or "processes"

    def _is_crowded(self, bound: int) -> bool:
        own = 0 if self.program["arguments"] is None else _BUBBLEWRAP_PROCESSES
        most = bound + own
        waiting = _children()
        if not waiting and self._status is None:
            return self._descendants() > most  # this kernel does not tell
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
        # The kernel's word that our caller is gone looks like anybody's SIGTERM.
        gone = os.getppid() != self.program["parent"]
        self.cause = self.cause or ("parent" if gone else "signal")

    def _reap(self) -> bool:
        """Buries the dead, adopted ones included; True if there is none left to die."""
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
        """No child left means no descendant left, because every orphan becomes our child."""
        if self._reap():
            return
        sys.path[:0] = self.program["path"]
        isolated = self.program["arguments"] is not None
        # With bubblewrap's own process all others are being killed already: there is nobody to ask.
        if grace_seconds > 0 and (self._status is None or not isolated):
            self._ask(grace_seconds)
        if self._status is None:
            _kill_group(self._child)
        while not self._reap():  # guard: a snapshot of the tree can miss a forking chain; this cannot
            self._kill_children()
            self._kill_tree()

    def _ask(self, seconds: float) -> None:
        """SIGTERM to each, newcomers included, until all are gone or the time is over."""
        try:
            import psutil

            from cleveragents.processes.process_tree import descendants
        except ImportError:
            return  # no politeness then; they are ended by what this file has
        over = time.monotonic() + seconds
        asked = set()
        if self.program["arguments"] is not None:
            asked.add(self._child)  # guard: with bubblewrap's own process all others die at once
        while not self._reap() and time.monotonic() < over:
            for pid, process in descendants(os.getpid()).items():
                if pid not in asked:
                    asked.add(pid)
                    try:
                        process.terminate()
                    except psutil.Error:
                        continue  # it ended by itself
            self._sleep(min(_LOOK_AGAIN_SECONDS, max(0.0, over - time.monotonic())))

    def _kill_children(self) -> None:
        """Kills whoever is our child, again and again, since the orphans of each become our children.

        Exact, for a child's pid cannot be another's before we reap it; quick enough for a chain of processes
        that fork and exit. A wide tree that keeps growing is left to `_kill_tree`.
        """
        over = time.monotonic() + _FAST_KILL_SECONDS
        while not self._reap() and time.monotonic() < over:
            children = _children()
            if not children:
                return  # this kernel does not tell
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
        """Until a child dies, or for so long."""
        if select.select([self._wake], [], [], seconds)[0]:
            os.read(self._wake, _CHUNK_BYTES)

    def _never_executed(self, status: int) -> str | None:
        """bubblewrap tells an exit code only if the command began; its own words are in the output."""
        told = b""
        while chunk := os.read(status, _STATUS_BYTES):
            told += chunk
        os.close(status)
        failed = b'"exit-code"' not in told and (self._status or 0) > 0
        return NOT_EXECUTED if failed else None


def _children() -> list[int]:
    return _listed(f"/proc/self/task/{os.getpid()}/children")


def _children_of(pid: int) -> list[int]:
    """Whoever was started by any thread of that process; none, once it is gone."""
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
        # guard: a list that grows while it is read would never end
        while len(words) < _LISTING_BYTES and (chunk := os.read(listing, _CHUNK_BYTES)):
            words += chunk
    except OSError:
        return []  # it is gone
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
        return  # gone, or somebody else's


def _kill_group(leader: int) -> None:
    # One signal for the whole group: no fork slips through. Its leader is not reaped, so the group is ours.
    try:
        os.killpg(leader, signal.SIGKILL)
    except OSError:
        return


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
