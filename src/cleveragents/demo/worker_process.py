"""The demo's side of its worker processes: started, killed for good, or told to finish."""

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
    """One worker in a process of its own. Not thread-safe: used by the thread that tells the story."""

    def __init__(self, name: str, settings: Settings, log: Path) -> None:
        self.name = name
        # What a killed one leaves there goes with the demo's directory.
        temporary = log.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        with log.open("ab") as errors:
            # A session of its own: a Ctrl-C is the demo's to interpret.
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
        """Returns when it can be given plans. `DeadlineExceeded`, also when it died before."""
        readable, _, _ = select.select([self._output], [], [], _READY_SECONDS)
        if not readable or self._output.readline() != b"ready\n":
            raise DeadlineExceeded(f"starting {self.name}", _READY_SECONDS)

    def assign(self, plans: Sequence[str]) -> None:
        """Says which plans it may run."""
        self._input.write(f"{' '.join(plans)}\n".encode())
        self._input.flush()

    def kill(self) -> None:
        """kill -9: no clean-up of its own will run."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_FINISH_SECONDS)

    def stop(self) -> None:
        """Asks it to end now, giving its jobs back; does not wait. Harmless once it has ended."""
        self._process.terminate()

    def retire(self) -> None:
        """Lets it complete what it runs, and end; does not wait. Twice is harmless."""
        with suppress(BrokenPipeError):
            self._input.close()

    def finish(self) -> int:
        """Lets it complete what it runs; returns its exit code. One that hangs is killed."""
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
