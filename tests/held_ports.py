"""Ports for servers of the tests that are told where to listen, and may come back there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["held_ports"]


@contextmanager
def held_ports(count: int = 1) -> Iterator[list[int]]:
    """So many of 127.0.0.1. Nobody who asks for any port is given one of them as long as the block runs.

    They are bound and not listened at: who is told of one may listen there, as often as it likes, and until
    then whoever connects is refused. A port that was merely found to be free can be another's by then.
    """
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in held]
