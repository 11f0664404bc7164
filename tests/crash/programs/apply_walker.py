"""Forks a process for each requested apply, undo or recovery, and prints how it ended.

A line of JSON on stdin: `home`, `plan`, `tree`, `deed` (apply, commit, undo, recover, naive), `point`, `nth`,
`durability`. A line on stdout for each: `exit 0`, or `signal 9`. It imports everything once, because a
new process for each fault point would spend its time importing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.apply_bench import open_sandbox
from tests.races.naive_apply import WritesFilesOneByOne


def act(order: dict[str, Any], faults: FaultPoints) -> None:
    home = Path(order["home"])
    with open_database(f"sqlite:///{home}/state.db", durability=order["durability"]) as database:
        applier = TreeApplier(database, UlidSource(), faults=faults, durability=order["durability"])
        if order["deed"] == "recover":
            applier.recover()
            return
        sandbox = open_sandbox(home / "project", order["plan"], home / "sandboxes" / order["plan"])
        if order["deed"] == "naive":
            WritesFilesOneByOne(faults).apply(sandbox, order["tree"])
            return
        commit = CommitRequest("from a plan") if order["deed"] == "commit" else None
        prepared = (
            applier.prepare_undo(order["plan"], sandbox)
            if order["deed"] == "undo"
            else applier.prepare(order["plan"], sandbox, order["tree"])
        )
        with prepared as preparation:
            preparation.apply(commit)


def child(order: dict[str, Any]) -> None:
    """Run the operation and end the process, by an exit or a kill."""
    code = 1
    try:
        faults: FaultPoints = NoFaults()
        if order["point"] == "record":
            faults = RecordFaultPoints()
        elif order["point"]:
            faults = CrashAt(order["point"], order["nth"])
        act(order, faults)
        if isinstance(faults, RecordFaultPoints):
            Path(order["home"], "points.json").write_text(json.dumps(faults.reached))
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line))
            except BaseException:
                os.kill(os.getpid(), signal.SIGABRT)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os.write(1, f"signal {-code}\n".encode() if code < 0 else f"exit {code}\n".encode())


if __name__ == "__main__":
    main()
