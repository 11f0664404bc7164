"""Writes every state file repeatedly until it is killed: `home resource name [fault-point]`.

A line on stdout after each complete write: `config`, `sandbox`, `log`. The second time that the fault point
is reached, the next file is written partially, and the kernel ends the process there.
"""

from __future__ import annotations

import logging
import os
import resource as limits
import signal
import sys
from itertools import count
from pathlib import Path

import structlog

from cleveragents.app.container import Container
from cleveragents.config.document import set_value
from cleveragents.config.settings import known_keys
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.demo.story import demo_settings
from cleveragents.events.audit import DurableAuditLog
from cleveragents.sandboxes.ports import SandboxRequest

_FEW_BYTES = 10


class CutShortAfter:
    """From the second time that `name` is reached, no file can grow beyond a few bytes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen = 0

    def reach(self, name: str) -> None:
        self._seen += name == self._name
        if self._seen == 2:
            # The fitting part is written; the attempt to write the rest ends the process.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            limits.setrlimit(limits.RLIMIT_FSIZE, (_FEW_BYTES, _FEW_BYTES))


def say(line: str) -> None:
    # One write below PIPE_BUF: complete lines, and none in a buffer that a kill would lose.
    os.write(1, f"{line}\n".encode())


def main(home: str, resource: str, name: str, *point: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    faults: FaultPoints = CutShortAfter(point[0]) if point else NoFaults()
    key = known_keys()["worker.concurrency"]
    with Container(demo_settings(Path(home, "state")), faults=faults) as container:
        registry = container.plan_parts.sandboxes
        log = DurableAuditLog(container.database, container.state_directory, faults=faults)
        for number in count():
            set_value(Path(home, "config.toml"), key, str(1 + number % 60), faults=faults)
            say("config")
            registry.create(SandboxRequest(f"{name}-{number}", Path(resource)))
            say("sandbox")
            log.sequence_pending()
            say("log")
            if number % 2:
                registry.remove(f"{name}-{number}")


if __name__ == "__main__":
    main(*sys.argv[1:])
