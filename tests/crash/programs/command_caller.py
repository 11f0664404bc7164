"""Runs one command like a worker; made to be killed. Prints how the command ended, if it gets that far."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from msgspec.structs import asdict

from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import Command


def main() -> None:
    isolation, root, timeout, sibling = sys.argv[1:]
    script = sys.stdin.read()  # not an argument, because tests search command lines for remaining processes
    runner = GuardedCommandRunner(isolation=isolation, grace_seconds=0.2)

    def tell(chunk: bytes) -> None:
        if sibling and b"ready" in chunk:
            _fork_a_sibling()
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()

    command = Command(("sh", "-c", script), Path(root), Path(root), timeout_seconds=float(timeout))
    result = runner.run(command, CancellationToken().view(), on_output=tell)
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


def _fork_a_sibling() -> None:
    """Fork like `multiprocessing`: the child has all our descriptors, including the guard's control pipe."""
    child = os.fork()
    if child == 0:
        signal.pause()
    sys.stdout.write(f"{child}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
