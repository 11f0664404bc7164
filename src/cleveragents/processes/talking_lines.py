"""What a program says, one message a line: bounded, and what is no message passed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["GARBAGE_BYTES", "Faults", "next_message"]

GARBAGE_BYTES = 1 << 20
"""Of what is no message. Some programs greet or log on the wrong stream; one that goes on is lost."""

_PRINTED_BYTES = 4_000

T = TypeVar("T")


class Faults:
    """Why we stopped listening to a program, if we did. Used by the loop that owns the connection."""

    def __init__(self) -> None:
        self.found = ""
        self.printed = ""
        """The last that it wrote where only messages belong."""
        self.garbage_bytes = 0

    def pass_over(self, line: bytes) -> None:
        """It is no message; `found`, once that is too much."""
        self.garbage_bytes += len(line)
        self.printed = line[-_PRINTED_BYTES:].decode("utf-8", "replace").strip() or self.printed
        if self.garbage_bytes > GARBAGE_BYTES:  # guard: or it would keep us busy for ever
            self.found = "it keeps writing what is no message"


async def next_message(reader: asyncio.StreamReader, parse: Callable[[bytes], T], faults: Faults) -> T | None:
    """What `parse` makes of the next line that it does not refuse with a `ValueError`; None when there is
    none, or the program is no longer listened to."""
    while not faults.found:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:  # memory stays bounded, whatever is sent
            faults.found = "it sent a message that is too long to be one"
            return None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        try:
            return parse(line)
        except ValueError:
            faults.pass_over(line)
    return None
