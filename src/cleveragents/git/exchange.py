"""Feeds a process and hears it out, for as long as there is time.

`Popen.communicate` can be called again after its time was up, but then forgets what it had still to send.
"""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Callable
from contextlib import suppress

__all__ = ["SecondsLeft", "exchange"]

SecondsLeft = Callable[[], float]
"""How long it may still take. It is asked again and again, and what it raises is passed on."""

_LOOK_SECONDS = 0.1
_CHUNK_BYTES = 1 << 20


def exchange(
    process: subprocess.Popen[bytes], feed: bytes, seconds_left: SecondsLeft
) -> tuple[bytes, bytes] | None:
    """What it wrote to stdout and stderr, and it has ended; None if there was no time for that."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    heard: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    unsent = memoryview(feed)
    os.set_blocking(process.stdin.fileno(), False)  # guard: it may never read all of it
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(process.stderr, selectors.EVENT_READ)
        while selector.get_map():
            if (left := seconds_left()) <= 0:
                return None
            for key, _ in selector.select(min(left, _LOOK_SECONDS)):
                if key.fileobj is process.stdin:
                    unsent = _sent(key.fd, unsent)
                    if not unsent:
                        selector.unregister(key.fileobj)
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                heard[key.fd].append(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
    process.stdout.close()
    process.stderr.close()
    while (left := seconds_left()) > 0:
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(left, _LOOK_SECONDS))
            out, err = (b"".join(parts) for parts in heard.values())
            return out, err
    return None


def _sent(descriptor: int, unsent: memoryview) -> memoryview:
    """What is left to send; nothing if nobody reads it any more."""
    try:
        return unsent[os.write(descriptor, unsent[:_CHUNK_BYTES]) :]
    except BrokenPipeError:
        return unsent[:0]
