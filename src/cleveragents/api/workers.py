"""Workers: their state, and their JSON."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from cleveragents.api.wording import timestamp
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from datetime import datetime

    from cleveragents.jobs.worker_ports import WorkerRecord

__all__ = ["is_silent", "worker_account", "worker_state"]

_SILENT = timedelta(minutes=1)
"""A worker says how it is every few seconds; one that was not heard of for so long does nothing any more."""

_OVER = ("lost", "gone")


def is_silent(worker: WorkerRecord, *, now: datetime) -> bool:
    """Whether it has said nothing for longer than any worker does that lives."""
    return now - worker.seen_at > _SILENT


def _is_dead(worker: WorkerRecord, home: str) -> bool:
    """Whether it worked on the state of this home, on this machine, and its process is not there any more."""
    if (worker.home, worker.host) != (home, socket.gethostname()):
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's
    return False


def worker_state(worker: WorkerRecord, *, now: datetime, home: str) -> str:
    """As it last said it is; `lost` if it has said nothing for long, or its process is gone, without having
    left; `idle` if it could run something and does not."""
    if worker.state != "gone" and (is_silent(worker, now=now) or _is_dead(worker, home)):
        return "lost"
    return "idle" if worker.state == "working" and not worker.running else worker.state


def worker_account(worker: WorkerRecord, *, now: datetime, home: str) -> dict[str, JsonValue]:
    """A worker, and how it is."""
    state = worker_state(worker, now=now, home=home)
    return {
        "id": worker.id,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "engine": worker.engine,
        "queue": worker.queue,
        "concurrency": worker.concurrency,
        "running": 0 if state in _OVER else worker.running,
        "state": state,
        "started": timestamp(worker.started_at),
        "seen": timestamp(worker.seen_at),
        "isolation": worker.isolation,
    }
