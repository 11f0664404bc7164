"""Plans that run without a terminal: in a process of its own, which nothing here can interrupt.

The process writes to a log, and as long as it lives it holds a lock on that file: so others can tell whether
somebody is still at it, also in the moments in which no job of the plan runs.
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
from cleveragents.plans.background_logs import log_of

if TYPE_CHECKING:
    from cleveragents.cli.output import Output
    from cleveragents.core.json_value import JsonValue
    from cleveragents.plans.model.plan import Plan

__all__ = [
    "StartedWorker",
    "print_started",
    "start_in_background",
]


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A process that works on plans by itself."""

    pid: int
    log: Path


def start_in_background(
    state_directory: Path, plans: Sequence[Plan], overrides: Sequence[str], options: Sequence[str]
) -> StartedWorker:
    """Starts a process that works on these plans; `options` are more of `agents run`."""
    logs = [log_of(state_directory, plan.id) for plan in plans]
    logs[0].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = [word for pair in overrides for word in ("--set", pair)]
    named = [word for plan in plans for word in ("--plan", plan.id)]
    # Not from the current directory, -P: whatever lies there is not ours to import.
    command = [sys.executable, "-P", "-m", "cleveragents", *settings, "run", *named, *options]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(logs[0], flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # guard: the process inherits it, and nobody else has it
        for log in logs[1:]:
            os.link(logs[0], log)
        process = subprocess.Popen(
            [*command, "--format", "plain"],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,  # Ctrl-C and the end of this terminal are nothing to it
        )
    finally:
        os.close(descriptor)
    return StartedWorker(process.pid, logs[0])


def print_started(plans: Sequence[Plan], started: StartedWorker, output: Output) -> None:
    """Which plans run, and how they are followed."""
    for plan in plans:
        progress(f"plan {plan.id} runs in the background")
    named = plans[0].id if len(plans) == 1 else "PLAN"
    steps = (("watch", "follows it"), ("show", "says where it stands"), ("cancel", "stops it"))
    for step, what in steps:
        progress(f"  {f'agents plan {step} {named}'.ljust(19 + len(named))}  {what}")
    rows: list[dict[str, JsonValue]] = []
    for plan in plans:
        known = fields_of(plan)
        facts: dict[str, JsonValue] = {"log": str(started.log), "process": started.pid}
        # As other runs name it, for programs.
        name: dict[str, JsonValue] = {"id": plan.id} if output.machine_readable else {}
        rows.append({**name, "plan": plan.id, "goal": known["goal"], "state": known["state"], **facts})
    if len(rows) == 1:
        output.record(rows[0])
    else:
        output.table(rows, ["plan", "state", "log", "goal"], empty="", cut=["goal", "log"], spare=["log"])
