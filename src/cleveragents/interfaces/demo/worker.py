"""`python -m cleveragents.interfaces.demo.worker`: one of the demo's workers.

It reads its name and its settings from stdin, a line each, says `ready` on stdout, works until its
stdin ends (which it does when the demo dies, too), lets running jobs end, and exits with 0. On SIGTERM it
gives its jobs back at once.
"""

from __future__ import annotations

import signal
import sys

from cleveragents.application.container import Container
from cleveragents.infrastructure.configuration.settings import Settings
from cleveragents.infrastructure.logging import configure_logging
from cleveragents.interfaces.demo.handlers import demo_handlers

__all__ = ["main"]

_DRAIN_SECONDS = 10.0


def main() -> int:
    """Runs a worker until nobody is interested any more."""
    signal.signal(signal.SIGTERM, _on_terminate)
    name = sys.stdin.readline().strip()
    settings = Settings.model_validate_json(sys.stdin.readline())
    configure_logging(settings)
    with Container(settings) as container:
        worker = container.worker(demo_handlers(container), name=name)
        worker.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()
        worker.drain(_DRAIN_SECONDS)
    return 0


def _on_terminate(signum: int, frame: object) -> None:
    # As an exception, so that the container is closed, and with it the worker.
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
