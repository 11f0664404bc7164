"""`python -m tests.crash.programs.machine_worker '{…}'`: like `agents worker`, but dies on request.

The argument is JSON: `directory`, its own state; `url`, the shared database; `crash_at` or `stop_at`, a
fault point, and `nth`. SIGTERM ends it. It logs to stderr.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import structlog

from cleveragents.app.container import Container
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.config.settings import Settings
from cleveragents.core.faults import FaultPoints
from cleveragents.testing.clock import CrashAt
from tests.crash.programs.run_worker import StopAt
from tests.remote_bench import machine_settings

SHORT = {
    "lease_seconds": 3.0,
    "heartbeat_seconds": 0.5,
    "poll_seconds": 0.1,
    "cancel_grace_seconds": 1.0,
    "concurrency": 2,
}


def settings_of(directory: Path, url: str) -> Settings:
    facts = msgspec.to_builtins(machine_settings(directory, url))
    database = {"url": url, "busy_timeout_seconds": 5.0}
    return msgspec.convert(
        {**facts, "worker": SHORT, "database": database, "sandbox": {"isolation": "off"}}, Settings
    )


def main(told: dict[str, Any]) -> None:
    # Plain output: rendering the repeated messages about an unreachable database is expensive.
    processors = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(processors=processors, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    faults: FaultPoints | None = None
    if "crash_at" in told:
        faults = CrashAt(told["crash_at"], told.get("nth", 1))
    elif "stop_at" in told:
        faults = StopAt(told["stop_at"], told.get("nth", 1))
    directory = Path(told["directory"])
    with (
        Container(settings_of(directory, told["url"]), faults=faults) as container,
        WorkerParts(container).start(name=directory.name),
    ):
        while not stop.wait(0.2):
            pass


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
