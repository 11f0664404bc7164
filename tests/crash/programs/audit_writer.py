"""Emits durably and prints the acknowledgements: `url data-directory name count [fault-point nth]`."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from cleveragents.core.event import DomainEvent, EventType, Receipt
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.events.audit import DurableAuditLog
from cleveragents.events.reactive import ReactiveEventBus
from cleveragents.events.sink import DurableAuditSink
from cleveragents.storage.database import open_database
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.testing.clock import CrashAt


def main(url: str, directory: str, name: str, count: str, *fault: str) -> None:
    faults: FaultPoints = CrashAt(fault[0], int(fault[1])) if fault else NoFaults()
    with open_database(url) as database:
        log = DurableAuditLog(database, Path(directory), faults=faults)
        log.begin()
        with DurableAuditSink(log) as sink:
            bus = ReactiveEventBus(sink=sink)
            for number in range(0, int(count), 2):
                # One through the outbox, one through the sink: its receipt acknowledges both.
                outboxed = _event(name, number)
                database.write(lambda c, outboxed=outboxed: append_to_outbox(c, outboxed))
                receipts: list[Receipt] = []
                bus.emit(_event(name, number + 1), receipts)
                receipts[0].wait(60.0)
                os.write(1, f"{name}-{number:05}\n{name}-{number + 1:05}\n".encode())


def _event(name: str, number: int) -> DomainEvent:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return DomainEvent(EventType.JOB_CLAIMED, name, f"{name}-{number:05}", moment, {"n": number})


if __name__ == "__main__":
    main(*sys.argv[1:])
