"""Start, kill and stop the worker processes of the demo."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from cleveragents.core.errors import DeadlineExceeded

if TYPE_CHECKING:
    from cleveragents.config.settings import Settings

__all__ = ["WorkerProcess"]

_READY_SECONDS = 180.0
_FINISH_SECONDS = 120.0


class WorkerProcess:
    """A worker in its own process. Not thread-safe: use it in the thread of the story."""

    def __init__(self, name: str, settings: Settings, log: Path) -> None:
        self.name = name
        # Files of a killed worker are removed with the directory of the demo.
        temporary = log.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        with log.open("ab") as errors:
            # Its own session: only the demo handles Ctrl-C.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cleveragents.demo.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TMPDIR": str(temporary)},
                start_new_session=True,
            )
        self._input = _pipe(self._process.stdin)
        self._output = _pipe(self._process.stdout)
        self._input.write(b"%b\n%b\n" % (name.encode(), msgspec.json.encode(settings)))
        self._input.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until the worker is ready for plans. Raises `DeadlineExceeded`, also if it died."""
        readable, _, _ = select.select([self._output], [], [], _READY_SECONDS)
        if not readable or self._output.readline() != b"ready\n":
            raise DeadlineExceeded(f"starting {self.name}", _READY_SECONDS)

    def assign(self, plans: Sequence[str]) -> None:
        """Tell the worker the ids of the plans that it may run."""
        self._input.write(f"{' '.join(plans)}\n".encode())
        self._input.flush()

    def kill(self) -> None:
        """Send kill -9; no clean-up of the worker runs."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_FINISH_SECONDS)

    def stop(self) -> None:
        """Ask the worker to return its jobs and exit now. Does not wait; harmless if it has ended."""
        self._process.terminate()

    def retire(self) -> None:
        """Ask the worker to finish its running jobs and exit. Does not wait; may be called repeatedly."""
        with suppress(BrokenPipeError):
            self._input.close()

    def finish(self) -> int:
        """Let the worker finish its running jobs and exit; return its exit code. Kills a hanging worker."""
        self.retire()
        try:
            return self._process.wait(_FINISH_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(_FINISH_SECONDS)
        finally:
            self._output.close()


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream
