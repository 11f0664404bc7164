"""`python -m cleveragents.context.index.build.worker`: analyses the batches that it receives.

The process exits when its input ends, even in the middle of a batch, so no worker outlives a killed parent.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import sys
import threading

from cleveragents.context.index.build.batch import AnalysisRequest, analysis_named, filled
from cleveragents.context.index.build.segment import TermNumbers

__all__ = ["LENGTH", "main"]

LENGTH = struct.Struct("<Q")
_MOST_REMEMBERED = 200_000
_LEAVE_SECONDS = 1.0


def main() -> int:
    """Serve until the input ends."""
    # Ctrl-C reaches all processes of a terminal; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)
    first = _message()
    if first is None:
        return 0
    program = json.loads(first)
    sys.path[:] = program["path"]
    analyse = analysis_named(program["analyse"])
    orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), name="orders", daemon=True).start()
    numbers = TermNumbers()
    _write(answers, LENGTH.pack(0))  # a process that dies before this was not killed by a file
    while (order := orders.get()) is not None:
        batch = filled(AnalysisRequest.from_bytes(order), analyse, numbers).to_bytes()
        if len(numbers) > _MOST_REMEMBERED:
            numbers.clear()
        _write(answers, LENGTH.pack(len(batch)) + batch)
    return 0


def _listen(orders: queue.SimpleQueue[bytes | None]) -> None:
    while (order := _message()) is not None:
        orders.put(order)
    orders.put(None)
    threading.Event().wait(_LEAVE_SECONDS)
    os._exit(0)  # guard: the answer has no reader any more, and an analysis may never end


def _message() -> bytes | None:
    head = _read(LENGTH.size)
    return None if head is None else _read(LENGTH.unpack(head)[0])


def _read(count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(0, min(count - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    sys.exit(main())
