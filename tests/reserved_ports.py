"""Reserved ports for test servers that listen at a given address, possibly repeatedly."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["held_ports"]


@contextmanager
def held_ports(count: int = 1) -> Iterator[list[int]]:
    """Reserve this many ports on 127.0.0.1: no process that asks for any port gets one of them in the block.

    They are bound without listening: a server that is given one may listen there repeatedly; until then
    connections are refused. A port that was only found free could be taken in the meantime.
    """
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in held]
