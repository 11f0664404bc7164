"""`python -m cleveragents.demo.worker`: a worker of the demo.

The worker reads its name and its settings from stdin, a line each, and prints `ready`. The next line contains
the ids of the plans that it may run. When stdin ends, also because the demo died, the worker waits for its
running jobs and exits with 0. On SIGTERM it returns its jobs to the queue immediately.
"""

from __future__ import annotations

import signal
import sys

import msgspec

from cleveragents.app.container import Container
from cleveragents.config.logging import configure_logging
from cleveragents.config.settings import Settings
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.run import kind_of_plan

__all__ = ["main"]

_DRAIN_SECONDS = 10.0


def main() -> int:
    """Run a worker until stdin ends."""
    signal.signal(signal.SIGTERM, _on_terminate)
    name = sys.stdin.readline().strip()
    settings = msgspec.json.decode(sys.stdin.readline(), type=Settings)
    configure_logging(settings)
    with Container(settings) as container:
        # The graph library is large: it is loaded before `ready`.
        _ = container.actor_runner
        handler = JobHandler(run=container.plan_parts.run())
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        plans = sys.stdin.readline().split()
        worker = container.worker({kind_of_plan(plan_id): handler for plan_id in plans}, name=name)
        worker.start()
        sys.stdin.read()
        worker.drain(_DRAIN_SECONDS)
    return 0


def _on_terminate(signum: int, frame: object) -> None:
    # As an exception, so that the container and the worker are closed.
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
