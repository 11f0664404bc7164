"""Background runs: plans in a separate process, independent of this terminal.

The process writes to a log and holds a lock on it while it lives. Other commands test the lock to see whether
the process still runs, even while no job of the plan runs.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.api.plans.details import fields_of
from cleveragents.cli.output import progress
from cleveragents.plans.background_logs import is_in_background, log_of
from cleveragents.plans.jobs.names import queue_of
from cleveragents.plans.model.status import status_of

if TYPE_CHECKING:
    from cleveragents.cli.output import Output
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "StartedWorker",
    "print_started",
    "start_in_background",
    "start_unless_running",
]


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A background process that runs plans."""

    pid: int
    log: Path


def start_in_background(
    state_directory: Path, plans: Sequence[Plan], overrides: Sequence[str], options: Sequence[str]
) -> StartedWorker:
    """Start a process that runs these plans; `options` are further options of `agents run`."""
    logs = [log_of(state_directory, plan.id) for plan in plans]
    logs[0].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = [word for pair in overrides for word in ("--set", pair)]
    named = [word for plan in plans for word in ("--plan", plan.id)]
    # -P: do not import from the current directory, which may hold foreign code.
    command = [sys.executable, "-P", "-m", "cleveragents", *settings, "run", *named, *options]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(logs[0], flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # guard: only the process inherits the lock
        for log in logs[1:]:
            os.link(logs[0], log)
        process = subprocess.Popen(
            [*command, "--format", "plain"],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,  # survives Ctrl-C and the end of this terminal
        )
    finally:
        os.close(descriptor)
    return StartedWorker(process.pid, logs[0])


def start_unless_running(state_directory: Path, plan: Plan, overrides: Sequence[str]) -> bool:
    """Start a process that runs the plan and leaves its result for review. Return False if the background
    process of the plan still lives. A plan with a queue is left to its worker.
    """
    if queue_of(plan.request):
        return True
    if is_in_background(state_directory, plan.id):
        return False
    start_in_background(state_directory, [plan], overrides, ["--review"])
    return True


def print_started(plans: Sequence[Plan], started: StartedWorker, output: Output) -> None:
    """Print the plans that were started, and the commands to follow them."""
    for plan in plans:
        progress(f"plan {plan.id} runs in the background")
    named = plans[0].id if len(plans) == 1 else "PLAN"
    steps = (("watch", "follow the plan"), ("show", "show the plan"), ("cancel", "cancel the plan"))
    for step, what in steps:
        progress(f"  {f'agents plan {step} {named}'.ljust(19 + len(named))}  {what}")
    rows: list[dict[str, JsonValue]] = []
    for plan in plans:
        known = fields_of(plan)
        states: dict[str, JsonValue] = {"status": status_of(plan.phase, plan.state).value}
        if output.machine_readable:
            states["state"] = known["state"]
        facts: dict[str, JsonValue] = {"log": str(started.log), "process": started.pid}
        # Programs find the id under the same name as in other runs.
        name: dict[str, JsonValue] = {"id": plan.id} if output.machine_readable else {}
        rows.append({**name, "plan": plan.id, "goal": known["goal"], **states, **facts})
    if len(rows) == 1:
        output.record(rows[0])
    else:
        output.table(rows, ["plan", "status", "log", "goal"], empty="", cut=["goal", "log"], spare=["log"])
