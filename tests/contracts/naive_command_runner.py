"""Naive ways to run a command, which the contract must catch."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from cleveragents.processes.ports import Command, CommandResult, StopSignal

__all__ = ["KillsTheGroup", "WaitsWithATimeout"]


class WaitsWithATimeout:
    """`subprocess.run(timeout=…)`: ends only its own child after the timeout."""

    isolates = False

    def run(
        self, command: Command, stop: StopSignal, *, on_output: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        with subprocess.Popen(
            command.argv,
            cwd=command.directory,
            env={**os.environ, **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        ) as process:
            assert process.stdout is not None
            return self._watch(process, command, stop, on_output)

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        command: Command,
        stop: StopSignal,
        on_output: Callable[[bytes], None] | None,
    ) -> CommandResult:
        assert process.stdout is not None
        started = time.monotonic()
        os.set_blocking(process.stdout.fileno(), False)
        output = b""
        late = False
        while process.poll() is None and not late and not stop.is_cancelled:
            late = time.monotonic() - started > command.timeout_seconds
            chunk = process.stdout.read(65536)
            if chunk:
                output += chunk
                if on_output is not None:
                    on_output(chunk)
            stop.wait(0.01)
        if process.returncode is None:
            self.end(process)
        output += process.stdout.read(1 << 24) or b""
        ended = late or stop.is_cancelled
        return CommandResult(
            None if ended else process.returncode,
            output.decode("utf-8", "backslashreplace"),
            0,
            time.monotonic() - started,
            timed_out=late,
            cancelled=stop.is_cancelled,
        )

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()


class KillsTheGroup(WaitsWithATimeout):
    """The usual fix: a signal to the whole process group, which `setsid` escapes."""

    def end(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
