"""A wait at startup until the database and the job engine are available, because machines may start in any
order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleveragents.cli.output import progress
from cleveragents.core.errors import DatabaseUnreachable, EngineUnavailable

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.worker_parts import WorkerParts

__all__ = ["wait_until_reachable"]

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0


def wait_until_reachable(container: Container, *, engine: bool = True) -> WorkerParts:
    """Wait, however long it takes, until the database answers and, with `engine`, the job engine, too.
    Nothing has been started at this point, so a signal ends the process at once.
    """
    from cleveragents.app.worker_parts import WorkerParts

    pause = _FIRST_PAUSE_SECONDS
    said = ""
    while True:
        try:
            parts = WorkerParts(container)
            parts.ensure_reachable(engine=engine)
            return parts
        except (DatabaseUnreachable, EngineUnavailable) as error:
            problem = str(error)
        words = "".join(filter(str.isalpha, problem))  # the message may contain the time
        if words != said:
            progress(problem)
            progress("retrying every few seconds; stop with Ctrl-C")
            said = words
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
