"""The caller's side of a guard: the control pipe, the command's output and the report.

Only the end of a long output is kept, because commands report their errors there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from cleveragents.core.identifiers import MARKER_VARIABLE
from cleveragents.core.text.redaction import end_of_cut_secret
from cleveragents.core.text.secret_patterns import LONGEST_WORD
from cleveragents.processes.cgroup import end_cgroup, make_cgroup
from cleveragents.processes.guard_protocol import GuardProgram, GuardReport
from cleveragents.processes.passthrough import NO_SECRETS, SecretMask

__all__ = ["COMMAND_MARKER", "GuardProcess", "OutputTail"]


COMMAND_MARKER = "CLEVERAGENTS_COMMAND"
_GUARD = Path(__file__).with_name("guard.py")
_PACKAGES = Path(__file__).parents[2]
_CHUNK_BYTES = 65536
_MOST_LEFT_IN_A_PIPE = 1 << 20
_STUCK_SECONDS = 3.0
_MOST_LOOKS = 20
# For the guard's own interpreter; the command does not inherit them.
_GUARD_NEEDS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

_SLACK_BYTES = 65536
# Kept before the limit to detect a secret cut in two; one that begins earlier is not recognized.
_CONTEXT_BYTES = 2 * LONGEST_WORD
_LONGEST_CHARACTER = 4


class GuardProcess:
    """A guard process, from start to end. Not thread-safe: the thread that creates it uses and closes it.

    That thread must outlive the guard, because the guard treats the end of the thread as the caller's death.
    """

    def __init__(self, program: GuardProgram, feed: bytes) -> None:
        self.report: GuardReport | None = None
        self.lost = False
        self._marker = program["markers"][COMMAND_MARKER]
        self._cgroup = make_cgroup(program["markers"].get(MARKER_VARIABLE, ""))
        self._grace_seconds = program["grace_seconds"]
        self._said = bytearray()
        with ExitStack() as opened:
            self._output, output_in = os.pipe()
            opened.callback(os.close, output_in)
            unused = opened.enter_context(ExitStack())
            unused.callback(os.close, self._output)
            unused.callback(self._end_cgroup)
            source = _file_with(feed)
            opened.callback(os.close, source)
            program = {**program, "output": output_in, "input": source, "parent": os.getpid()}
            program["cgroup"] = None if self._cgroup is None else str(self._cgroup)
            program["path"] = [str(_PACKAGES), *(entry for entry in sys.path if entry.startswith("/"))]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", str(_GUARD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output_in,
                pass_fds=(output_in, source),
                env=_guard_environment(program["markers"]),
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
            unused.pop_all()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._control = self._process.stdin
        self._reports = self._process.stdout
        self._poller = select.poll()
        self._poller.register(self._output, select.POLLIN)
        self._poller.register(self._reports.fileno(), select.POLLIN)
        self._order(json.dumps(program).encode() + b"\n")

    def __enter__(self) -> GuardProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process of the command, whatever happened."""
        self._control.close()
        try:
            self._process.wait(self._grace_seconds + _STUCK_SECONDS)
            if self._process.returncode != 0:  # guard: a killed guard could not end the processes below it
                self.end_by_marker()
        except subprocess.TimeoutExpired:
            self.end_by_marker()
        finally:
            self._end_cgroup()  # guard: fully detached processes are still in it
            self._reports.close()
            os.close(self._output)

    def read(self, timeout: float) -> bytes:
        """Return new output, waiting at most `timeout` seconds; also read the report."""
        output = b""
        for descriptor, _ in self._poller.poll(timeout * 1000):
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if descriptor == self._output:
                output = chunk
                if not chunk:
                    self._poller.unregister(descriptor)
            else:
                self._hear(chunk)
        return output

    def rest(self) -> bytes:
        """Return the output left in the pipe after all writers have ended."""
        os.set_blocking(self._output, False)
        left = bytearray()
        with suppress(BlockingIOError):
            # Bounded: the command may have passed the descriptor to an unrelated process.
            while len(left) < _MOST_LEFT_IN_A_PIPE and (chunk := os.read(self._output, _CHUNK_BYTES)):
                left += chunk
        return bytes(left)

    def end(self) -> None:
        """Order the guard to end the whole tree; the report follows."""
        self._order(b"end\n")

    def end_by_marker(self) -> int:
        """Kill the processes that a killed or hanging guard could not end; return the guard's exit code."""
        from cleveragents.processes.process_tree import Tree, descendants, end_tree, marked

        def find() -> Tree:
            # A dead child of ours must not look alive; once it is reaped, its pid may be reused.
            guard = self._living()
            below = {} if guard is None else descendants(guard)
            return {**marked(COMMAND_MARKER, self._marker), **below}

        _kill_groups(self._marker, spare=self._living())
        end_tree(find, grace_seconds=0)
        return self._process.wait(_STUCK_SECONDS)

    def _end_cgroup(self) -> None:
        if self._cgroup is not None:
            end_cgroup(self._cgroup)

    def _living(self) -> int | None:
        """Return the guard's pid while it runs. The pid is not reused before we reap the guard."""
        return self._process.pid if self._process.poll() is None else None

    def _hear(self, chunk: bytes) -> None:
        self._said += chunk
        if self._said.endswith(b"\n"):
            self.report = json.loads(self._said)
        self.lost = not chunk and self.report is None

    def _order(self, line: bytes) -> None:
        view = memoryview(line)
        with suppress(BrokenPipeError):  # the guard is gone; its report, or the lack of one, shows why
            while view:
                view = view[self._control.write(view) or 0 :]


def _kill_groups(marker: str, spare: int | None) -> None:
    """Kill the process groups of all marked processes and of the guard's children.

    A whole group is killed at once and no fork escapes it, so this also ends a chain of processes that fork
    and exit faster than they can be listed. The newest processes are killed first, since they are about to
    fork and exit. None of these groups is ours, because the guard started a session. `spare`, a living guard,
    is not killed: unmarked processes are found below it.
    """
    import psutil

    from cleveragents.processes.process_tree import environment_of

    sign = os.fsencode(f"\0{COMMAND_MARKER}={marker}\0")
    for _ in range(_MOST_LOOKS):
        found = spare is not None and _kill_groups_below(spare)
        for pid in sorted(set(psutil.pids()) - {spare}, reverse=True):
            with suppress(psutil.Error, OSError):
                if sign in (environment_of(pid) or b""):
                    os.killpg(os.getpgid(pid), signal.SIGKILL)
                    found = True
        if not found:
            return


def _kill_groups_below(guard: int) -> bool:
    """Kill the groups of the guard's children; return whether a living child was found.

    Zombies count, too: a child that a hanging guard has not reaped reveals its group, and any process that
    still forks in that group dies with it.
    """
    import psutil

    from cleveragents.processes.process_tree import DEAD, GROUP, PARENT, STATE, stat_of

    if not psutil.LINUX:
        return False
    found = False
    groups: set[int] = set()
    for pid in psutil.pids():
        with suppress(OSError):
            fields = stat_of(pid)
            # guard: spare the guard and ourselves
            if int(fields[PARENT]) == guard and int(fields[GROUP]) not in (guard, os.getpgrp()):
                groups.add(int(fields[GROUP]))
                found = found or fields[STATE] not in DEAD
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    return found


def _guard_environment(markers: Mapping[str, str]) -> dict[str, str]:
    needed = {name: os.environ[name] for name in _GUARD_NEEDS if name in os.environ}
    return {**needed, **markers}


def _file_with(feed: bytes) -> int:
    """Return a descriptor from which a command can read `feed`, without a process that writes to it."""
    if not feed:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile() as file:
        file.write(feed)
        file.seek(0)
        return os.dup(file.fileno())


class OutputTail:
    """The last `limit` bytes of a stream, in bounded memory; `tell` is called with each chunk as it arrives.

    Known secrets are masked in the tail and in the chunks. The tail does not begin inside a secret that is
    recognized by its name or shape, because a later mask could not recognize the rest of that secret.

    Not thread-safe: one reader fills it.
    """

    def __init__(
        self, limit: int, tell: Callable[[bytes], None] | None = None, mask: SecretMask = NO_SECRETS
    ) -> None:
        self._limit = max(limit, 0)
        self._tell = tell
        self._kept = bytearray()
        self._dropped = 0
        self._masked = mask.stream_of_bytes()

    def append(self, chunk: bytes) -> None:
        self._take(self._masked.feed(chunk.decode("latin-1")).encode("latin-1"))

    def close(self) -> None:
        """Mark the end of the stream, and release text held back as the possible beginning of a secret."""
        self._take(self._masked.finish().encode("latin-1"))

    def _take(self, chunk: bytes) -> None:
        self._kept += chunk
        # guard: memory stays bounded; the slack makes cutting rare
        if len(self._kept) > self._limit + _SLACK_BYTES:
            self._cut()
        if chunk and self._tell is not None:
            self._tell(chunk)

    def finish(self) -> tuple[str, int]:
        """Return the text and the number of missing bytes. If bytes are missing, the first line is a note."""
        kept = bytes(self._kept) + self._masked.rest.encode("latin-1")
        start = max(len(kept) - self._limit, 0)
        if start:
            start = _after_secret(kept, _after_character(kept, start))
        text = kept[start:].decode("utf-8", "backslashreplace")
        missing = self._dropped + start
        return f"[the first {missing} bytes of output are missing]\n{text}" if missing else text, missing

    def _cut(self) -> None:
        excess = len(self._kept) - self._limit - _CONTEXT_BYTES
        del self._kept[:excess]
        self._dropped += excess


def _after_character(kept: bytes, start: int) -> int:
    """Return the position at or after `start` where the first complete UTF-8 character begins."""
    rest = 0
    while rest < min(len(kept) - start, _LONGEST_CHARACTER) and kept[start + rest] & 0xC0 == 0x80:
        rest += 1
    return start if rest == _LONGEST_CHARACTER else start + rest  # no UTF-8 character is that long


def _after_secret(kept: bytes, start: int) -> int:
    """Return the end of a secret that begins before `start`, or `start` if there is none."""
    before = kept[max(start - _CONTEXT_BYTES, 0) : start].decode("utf-8", "surrogateescape")
    behind = kept[start : start + _CONTEXT_BYTES].decode("utf-8", "surrogateescape")
    cut = end_of_cut_secret(before, behind)
    return start + len(behind[:cut].encode("utf-8", "surrogateescape"))
