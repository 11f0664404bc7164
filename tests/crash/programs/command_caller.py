"""Runs one command, as a worker would; meant to be killed. Says how it ended, should it get that far."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from cleveragents.application.ports.commands import Command
from cleveragents.application.services.async_worker import CancellationToken
from cleveragents.infrastructure.commands.guarded_runner import GuardedCommandRunner


def main() -> None:
    isolation, root, timeout = sys.argv[1:]
    script = sys.stdin.read()  # not an argument, for those are looked through for what the command left
    runner = GuardedCommandRunner(isolation=isolation, grace_seconds=0.2)

    def tell(chunk: bytes) -> None:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()

    command = Command(("sh", "-c", script), Path(root), Path(root), timeout_seconds=float(timeout))
    result = runner.run(command, CancellationToken().view(), on_output=tell)
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
