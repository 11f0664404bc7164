"""Records changes from four threads and prints the acknowledgements, until it is done or killed.

Arguments: database URL, records per thread, fault point (or "-"), count of the fault point.
Lines on stdout, each after the store returned: `start <changeset>`, `<changeset> <sequence> <path>`.
"""

from __future__ import annotations

import os
import sys
import threading

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CrashAt

THREADS = 4


def say(line: str) -> None:
    # One write below PIPE_BUF: complete lines, and none in a buffer that a kill would lose.
    os.write(1, f"{line}\n".encode())


def main(url: str, records: str, point: str, nth: str) -> None:
    faults: FaultPoints = NoFaults() if point == "-" else CrashAt(point, int(nth))
    with open_database(url, faults=faults) as database:
        context = PlanExecutionContext("plan", SqlChangesetStore(database, UlidSource()))
        shared = context.start_changeset()
        say(f"start {shared}")

        def work(number: int) -> None:
            own = context.start_changeset()
            say(f"start {own}")
            for turn in range(int(records)):
                for changeset in (own, shared):
                    path = f"{number}/{turn}"
                    recorded = context.record_change(
                        ChangeEntry(ChangeKind.CREATE, path), changeset, key=path
                    )
                    say(f"{changeset} {recorded.sequence} {path}")
            context.close_changeset(own)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
