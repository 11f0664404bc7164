"""A reader of a repository's objects by name, through one git process. (A process per read would be slow.)"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cleveragents.git.plumbing import ensure_no_sandbox, git_program, user_environment

__all__ = ["BlobReader"]

_ANSWER_SECONDS = 20.0


class BlobReader:
    """A reader of the repository at `directory`; its process starts at the first read.

    Thread safety:
        Owner: the creator closes it; any thread may read.
        Lock: `_lock` guards the process, and is held while it answers: its answers come in one stream.
        Guarantee: each caller gets the requested content; after `close` there is no process.
    Cancel safety: a caller interrupted in the middle of an answer would leave the process out of step; the
        process is ended, and the next caller starts another.
    """

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        answer_seconds: float = _ANSWER_SECONDS,
    ) -> None:
        self._directory = directory
        self._environment = environment
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self, name: str) -> bytes | None:
        """Return the content of the object `name`. Raises `ToolRefused` if there is no git program.

        Returns None if the object does not exist, git does not answer in time, or the reader is closed.
        """
        with self._lock:
            if self._closed:
                return None
            process = self._process or self._start()
            # A caller interrupted from here on must not leave half an answer for the next.
            self._process = None
            data: bytes | None = None
            # A timer instead of a poll of the pipe: git may also stop in the middle of its answer.
            alarm = threading.Timer(self._answer_seconds, process.kill)
            try:
                alarm.start()
                data = _asked(process, name)
            except (OSError, ValueError):
                _end(process)
                return None
            except BaseException:
                _end(process)
                raise
            finally:
                alarm.cancel()
            self._process = process
            return data

    def close(self) -> None:
        """End the process. Idempotent."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                _end(self._process)
                self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        ensure_no_sandbox(self._directory)
        return subprocess.Popen(
            [git_program(), "cat-file", "--batch"],
            cwd=self._directory,
            env=user_environment() if self._environment is None else dict(self._environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )


def _asked(process: subprocess.Popen[bytes], name: str) -> bytes | None:
    """Return the content. Raises `OSError` or `ValueError` if git does not answer properly."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name.encode("ascii") + b"\n")
    process.stdin.flush()
    words = process.stdout.readline().split()
    if len(words) == 2 and words[1] == b"missing":
        return None
    if len(words) != 3:
        raise ValueError(f"unexpected answer from git: {words!r}")
    size = int(words[2])
    data = process.stdout.read(size + 1)
    if len(data) != size + 1:
        raise ValueError("git exited before the end of its answer")
    return data[:-1] if words[1] == b"blob" else None


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    # git may be blocked until the rest of an answer is read.
    process.stdout.close()
    process.kill()
    process.wait()
