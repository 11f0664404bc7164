"""Logs of plans that run without a terminal.

The process that runs a plan in the background holds a lock on its log. So others can tell whether it is still
at it, also in the moments in which no job of the plan runs.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["is_in_background", "log_of", "logged_plans", "remove_log"]


def log_of(state_directory: Path, plan_id: str) -> Path:
    """Where a plan that runs in the background writes what would be seen of it."""
    return state_directory / "logs" / f"{plan_id}.log"


def is_in_background(state_directory: Path, plan_id: str) -> bool:
    """Whether a process that was started for the plan is alive."""
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
    """Those that ran in the background and whose log is kept."""
    return sorted(log.stem for log in log_of(state_directory, "").parent.glob("*.log"))


def remove_log(state_directory: Path, plan_id: str) -> bool:
    """Whether it is gone; not while a process writes to it. Logs that several plans share stay with the
    others."""
    if is_in_background(state_directory, plan_id):  # guard: its lock is how others know of the process
        return False
    log_of(state_directory, plan_id).unlink(missing_ok=True)
    return True
