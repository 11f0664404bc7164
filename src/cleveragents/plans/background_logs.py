"""Logs of plans that run without a terminal.

A background process holds a lock on the log of its plan, which shows other processes that it is alive, even
while no job of the plan runs.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["is_in_background", "log_of", "logged_plans", "remove_log"]


def log_of(state_directory: Path, plan_id: str) -> Path:
    """Return the path of the log of a background plan."""
    return state_directory / "logs" / f"{plan_id}.log"


def is_in_background(state_directory: Path, plan_id: str) -> bool:
    """Return whether the background process of the plan is alive."""
    try:
        descriptor = os.open(log_of(state_directory, plan_id), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def logged_plans(state_directory: Path) -> list[str]:
    """Return the ids of the plans that have a log."""
    return sorted(log.stem for log in log_of(state_directory, "").parent.glob("*.log"))


def remove_log(state_directory: Path, plan_id: str) -> bool:
    """Remove the log unless a process writes to it, and return whether it was removed. If several plans share
    the log, the other plans keep it.
    """
    if is_in_background(state_directory, plan_id):  # guard: its lock shows that the process is alive
        return False
    log_of(state_directory, plan_id).unlink(missing_ok=True)
    return True
