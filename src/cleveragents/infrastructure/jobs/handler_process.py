"""The handler's half of a runner: imports the function, calls it, puts what it did into one line."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from cleveragents.application.ports.processes import Raised
from cleveragents.application.services.async_worker import AsyncJob, CancellationToken
from cleveragents.application.services.job_outcome import raised
from cleveragents.application.services.worker_log import worker_log
from cleveragents.domain.json_value import FrozenObject, freeze, thaw
from cleveragents.errors import ConfigurationError
from cleveragents.infrastructure.jobs.markers import MARKER_VARIABLE

__all__ = ["run_handler"]


def run_handler(program: dict[str, Any], orders: int) -> bytes:
    """Runs the program's function; the report, ending in a newline. Never raises."""
    token = CancellationToken()
    listener = threading.Thread(target=_listen, args=(orders, token), name="orders", daemon=True)
    listener.start()
    try:
        sys.path[:] = program["path"]
        handler = _resolve(program["target"])
        result = freeze(handler(_job(program, token)), where=f"result of a {program['kind']} job")
        return _line({"returned": True, "value": thaw(result)})
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        logger = worker_log()
        logger.info("job.handler_raised", job_id=program["job_id"], kind=program["kind"], exc_info=True)
        return _raised(raised(error))


def _job(program: dict[str, Any], token: CancellationToken) -> AsyncJob:
    markers = {MARKER_VARIABLE: os.environ[MARKER_VARIABLE]}
    return AsyncJob(
        program["job_id"],
        program["kind"],
        FrozenObject(program["payload"]),
        program["attempt"],
        program["fence"],
        token,
        markers,
    )


def _resolve(target: str) -> Callable[[AsyncJob], object]:
    module, _, name = target.partition(":")
    try:
        found: Callable[[AsyncJob], object] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"job handler {target!r}", f"cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"job handler {target!r}", "is not a function")
    return found


def _listen(orders: int, token: CancellationToken) -> None:
    with os.fdopen(orders) as lines:
        for line in lines:
            token.cancel(json.loads(line)["cancel"])


def _raised(what: Raised) -> bytes:
    return _line(
        {
            "returned": False,
            "problem": what.problem,
            "permanent": what.permanent,
            "cancelled": what.cancelled,
        }
    )


def _line(report: dict[str, object]) -> bytes:
    return json.dumps(report).encode() + b"\n"
