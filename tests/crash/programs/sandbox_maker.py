"""Creates and removes sandboxes, until it is done or killed.

Arguments: database URL, directory of sandboxes, resource, prefix of plan ids, how many, fault point (or "-").
Lines on stdout: `ready` when it waits for a line on stdin, `made <plan>` and `removed <plan>` after each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CrashAt


def say(line: str) -> None:
    # One write below PIPE_BUF: complete lines, and none in a buffer that a kill would lose.
    os.write(1, f"{line}\n".encode())


def main(url: str, directory: str, resource: str, prefix: str, count: str, point: str) -> None:
    faults: FaultPoints = NoFaults() if point == "-" else CrashAt(point)
    with open_database(url, faults=faults) as database:
        registry = SandboxRegistry(database, Path(directory), faults=faults)
        say("ready")
        sys.stdin.readline()
        for number in range(int(count)):
            plan_id = f"{prefix}-{number}"
            sandbox = registry.create(SandboxRequest(plan_id, Path(resource)))
            assert sandbox.scan() == {}
            say(f"made {plan_id}")
            registry.remove(plan_id)
            say(f"removed {plan_id}")


if __name__ == "__main__":
    main(*sys.argv[1:])
