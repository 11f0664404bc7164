"""`python -m cleveragents.interfaces.demo.worker`: one of the demo's workers.

It reads its name, its settings and its part (`graphs` or `plans`) from stdin, a line each, says `ready` on
stdout, works until its stdin ends (which it does when the demo dies, too), lets running jobs end, and exits
with 0. On SIGTERM it gives its jobs back at once.

One for plans then reads one more line: their ids. A plan's jobs are of a kind of its own, so a worker knows
from the beginning which plans are its to run.
"""

from __future__ import annotations

import signal
import sys

from cleveragents.application.container import Container
from cleveragents.application.services.job_handlers import JobHandler
from cleveragents.infrastructure.configuration.settings import Settings
from cleveragents.infrastructure.logging import configure_logging

__all__ = ["main"]

_DRAIN_SECONDS = 10.0


def main() -> int:
    """Runs a worker until nobody is interested any more."""
    signal.signal(signal.SIGTERM, _on_terminate)
    name = sys.stdin.readline().strip()
    settings = Settings.model_validate_json(sys.stdin.readline())
    part = sys.stdin.readline().strip()
    configure_logging(settings)
    with Container(settings) as container:
        if part == "plans":
            worker = container.worker(_plan_handlers(container), name=name)
            worker.start()
        else:
            worker = container.worker(_graph_handlers(container), name=name)
            worker.start()
            _say_ready()
        sys.stdin.read()
        worker.drain(_DRAIN_SECONDS)
    return 0


def _graph_handlers(container: Container) -> dict[str, JobHandler]:
    # The graphs' library is large, and the plans' workers do without it.
    from cleveragents.interfaces.demo.handlers import demo_handlers

    return demo_handlers(container)


def _plan_handlers(container: Container) -> dict[str, JobHandler]:
    from cleveragents.application.services.plan_run import kind_of_plan

    handler = JobHandler(run=container.plan_parts.run())
    _say_ready()
    return {kind_of_plan(plan_id): handler for plan_id in sys.stdin.readline().split()}


def _say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def _on_terminate(signum: int, frame: object) -> None:
    # As an exception, so that the container is closed, and with it the worker.
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
