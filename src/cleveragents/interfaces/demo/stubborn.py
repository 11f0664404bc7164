"""A job that does not want to end. It has a module of its own, so that its process starts quickly."""

from __future__ import annotations

import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from cleveragents.errors import DeadlineExceeded

if TYPE_CHECKING:
    from cleveragents.application.services.async_worker import AsyncJob

__all__ = ["refuse_to_stop"]

_SECONDS = 120.0


def refuse_to_stop(job: AsyncJob, seconds: float = _SECONDS) -> object:
    """Starts processes that ignore being asked to end, ignores it as well, and does not come back."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Neither shell heeds a SIGTERM, and the inner one leaves the session: no terminal reaches it either.
    subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            "trap '' TERM INT HUP; "
            "setsid sh -c \"trap '' TERM INT HUP; while :; do sleep 1; done\" & "
            "while :; do sleep 1; done",
        ],
        stdin=subprocess.DEVNULL,
    )
    threading.Event().wait(seconds)
    raise DeadlineExceeded("the stubborn job", seconds)
