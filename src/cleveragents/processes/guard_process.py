"""The caller's end of a command's guard: a control pipe to it, the command's output and one report back.

What is kept of a command's output: the end, since that is where it says what went wrong.
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
# What the guard's own interpreter may need; the command gets none of it.
_GUARD_NEEDS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

_SLACK_BYTES = 65536
# Kept before the limit, to see whether a secret is cut in two; one that begins earlier is not recognized.
_CONTEXT_BYTES = 2 * LONGEST_WORD
_LONGEST_CHARACTER = 4


class GuardProcess:
    """One guard, from its start to its end. Not thread-safe: the thread that makes it uses and closes it.

    That thread must not end before: the guard takes its end for the caller's death.
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
        """Nothing of the command is alive afterwards, whatever happened."""
        self._control.close()
        try:
            self._process.wait(self._grace_seconds + _STUCK_SECONDS)
            if self._process.returncode != 0:  # guard: killed, so it could not end what is below it
                self.end_by_marker()
        except subprocess.TimeoutExpired:
            self.end_by_marker()
        finally:
            self._end_cgroup()  # guard: what left its session and its variables behind is in it still
            self._reports.close()
            os.close(self._output)

    def read(self, timeout: float) -> bytes:
        """What came of the output, waiting for it at most so long; takes up the report, too."""
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
        """What is still in the pipe when all who wrote have ended."""
        os.set_blocking(self._output, False)
        left = bytearray()
        with suppress(BlockingIOError):
            # Bounded, for a descriptor can be handed to a process that is none of ours.
            while len(left) < _MOST_LEFT_IN_A_PIPE and (chunk := os.read(self._output, _CHUNK_BYTES)):
                left += chunk
        return bytes(left)

    def end(self) -> None:
        """Orders the end of the whole tree; the report follows."""
        self._order(b"end\n")

    def end_by_marker(self) -> int:
        """Ends, by force, what a guard that was killed or hangs could not end; returns its exit code."""
        from cleveragents.processes.process_tree import Tree, descendants, end_tree, marked

        def find() -> Tree:
            # A dead child of ours must not look alive; once it is buried, its pid may be anybody's.
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
        """The guard's pid, which is nobody else's as long as we have not buried it."""
        return self._process.pid if self._process.poll() is None else None

    def _hear(self, chunk: bytes) -> None:
        self._said += chunk
        if self._said.endswith(b"\n"):
            self.report = json.loads(self._said)
        self.lost = not chunk and self.report is None

    def _order(self, line: bytes) -> None:
        view = memoryview(line)
        with suppress(BrokenPipeError):  # it is gone: its report, or the lack of one, tells
            while view:
                view = view[self._control.write(view) or 0 :]


def _kill_groups(marker: str, spare: int | None) -> None:
    """Kills the process groups of all who carry the marker, and of the guard's children: a group dies at
    once, and nobody forks out of it.

    So a chain of processes that fork and exit, too quick for a list of them, ends as well. Newest first, for
    those are the ones that are about to be gone. None of these groups is ours: the guard began a session.
    A guard that still lives is spared, because what carries no marker is found below it.
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
    """Whether there was a living one. The dead count, too: what a guard that hangs does not bury tells of
    which group it was, and whoever goes on there, however quickly, dies with that."""
    import psutil

    from cleveragents.processes.process_tree import DEAD, GROUP, PARENT, STATE, stat_of

    if not psutil.LINUX:
        return False
    found = False
    groups: set[int] = set()
    for pid in psutil.pids():
        with suppress(OSError):
            fields = stat_of(pid)
            # guard: the guard is spared, and so are we
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
    """A descriptor from which a command can read all of it, without anybody having to write meanwhile."""
    if not feed:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile() as file:
        file.write(feed)
        file.seek(0)
        return os.dup(file.fileno())


class OutputTail:
    """The last `limit` bytes of a stream, in bounded memory; `tell` is called with each chunk as it comes.
    Neither has the secrets that are masked, and the tail does not begin inside what a name or a shape shows
    to be a secret: masked later, the rest of one could not be recognized.

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
        """Nothing comes any more: what may have been the beginning of a secret is told."""
        self._take(self._masked.finish().encode("latin-1"))

    def _take(self, chunk: bytes) -> None:
        self._kept += chunk
        # guard: memory stays bounded; the slack makes cutting rare
        if len(self._kept) > self._limit + _SLACK_BYTES:
            self._cut()
        if chunk and self._tell is not None:
            self._tell(chunk)

    def finish(self) -> tuple[str, int]:
        """The text, with a first line that says how many bytes are missing, if any; and that number."""
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
    """Return where the first whole character begins."""
    rest = 0
    while rest < min(len(kept) - start, _LONGEST_CHARACTER) and kept[start + rest] & 0xC0 == 0x80:
        rest += 1
    return start if rest == _LONGEST_CHARACTER else start + rest  # no character is that long: not UTF-8


def _after_secret(kept: bytes, start: int) -> int:
    """Return where a secret ends that begins before `start`; `start` if there is none."""
    before = kept[max(start - _CONTEXT_BYTES, 0) : start].decode("utf-8", "surrogateescape")
    behind = kept[start : start + _CONTEXT_BYTES].decode("utf-8", "surrogateescape")
    cut = end_of_cut_secret(before, behind)
    return start + len(behind[:cut].encode("utf-8", "surrogateescape"))
