"""The handler side of a runner: imports the function, calls it, and reports the result in one line."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cleveragents.core.cancellation import CancellationToken
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.identifiers import MARKER_VARIABLE
from cleveragents.core.json_value import FrozenObject, freeze, thaw
from cleveragents.core.text.redaction import redact_text
from cleveragents.jobs.process.supervisor import Raised
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.jobs.worker.attempt import raised

__all__ = ["run_handler"]


def run_handler(program: dict[str, Any], orders: int) -> bytes:
    """Run the program's function and return its report, ending in a newline. Never raises."""
    token = CancellationToken()
    ending = _Ending(program, token)
    with ending:
        listener = threading.Thread(target=_listen, args=(orders, token), name="orders", daemon=True)
        listener.start()
        sys.path[:] = program["path"]
        handler = _resolve(program["target"])
        result = freeze(handler(_job(program, token)), where=f"result of a {program['kind']} job")
        ending.report = _line({"returned": True, "value": thaw(result)})
    return ending.report


@dataclass
class _Ending:
    """A context manager that turns any exception in its block into a report for the worker."""

    program: dict[str, Any]
    token: CancellationToken
    report: bytes = b""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is not None:
            what = raised(error, told_to_stop=self.token.is_cancelled)
            self.report = _raised(what)
            with contextlib.suppress(Exception):  # the report matters more than the log
                _log(self.program, what.problem, error)
        return True


def _log(program: dict[str, Any], problem: str, error: BaseException) -> None:
    """Write one line of JSON to stderr, like the worker's log: the traceback, but no values of variables.

    Does not use structlog, which is not configured in this process, prints all variables by default, and
    loads slowly.
    """
    import traceback

    told = {
        "event": "job.handler_raised",
        "level": "info",
        "timestamp": SystemClock().now().isoformat(),
        "job_id": program["job_id"],
        "kind": program["kind"],
        "problem": problem,
        "exception": redact_text("".join(traceback.format_exception(error))),
    }
    os.write(2, _line(told))


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
