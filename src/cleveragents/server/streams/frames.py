"""Server-sent events as bytes, encoded once for all clients: the latest in rings, older ones in pages.

Positions have no gaps, so a ring needs no index: the index of a frame follows from its position.

A client that is too far behind for the ring reads the log in pages. Such clients are rarely at the same
position. If each client read from its own position, the same events would be read, masked and encoded once
per client. So pages begin at multiples of the page size and are kept for other clients. Only a few pages are
read in parallel, because reading uses the threads that answer requests.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from starlette.concurrency import run_in_threadpool

from cleveragents.api.events import fields_of_row
from cleveragents.api.format import timestamp

if TYPE_CHECKING:
    from cleveragents.access.model.user import ProjectScope
    from cleveragents.events.chain import LogRow
    from cleveragents.plans.ports.plans import OutputPiece

__all__ = [
    "HEARTBEAT",
    "PAGE_FRAMES",
    "EventFrame",
    "FrameRing",
    "OutputRing",
    "SharedPages",
    "event_frame",
    "joined",
    "opening_frame",
    "output_frame",
    "problem_frame",
]

HEARTBEAT = b": still here\n\n"
"""A comment that keeps the connection alive: proxies close silent connections."""
_RETRY_MILLISECONDS = 1000
_CHUNK_BYTES = 64 * 1024

PAGE_FRAMES = 500
"""Number of frames in a page. Pages begin after multiples of this number."""
_MOST_PAGES = 256
_MOST_BYTES = 16 * 1024 * 1024
_AT_ONCE = 2
Frames = Sequence[bytes]


class EventFrame(bytes):
    """An encoded event with its project. An event without a project is for server admins."""

    project: str | None = None


def event_frame(row: LogRow, project: str | None = None) -> EventFrame:
    """Encode an event. Its position is its id, so a client that reconnects names the last position it saw."""
    told = _json(fields_of_row(row))
    frame = EventFrame(b"id: %d\nevent: %s\ndata: %s\n\n" % (row.position, _line(row.event_type), told))
    frame.project = project
    return frame


def output_frame(piece: OutputPiece) -> bytes:
    """Encode a piece of the output of a plan or conversation. It has no id: ids are positions in the log."""
    told = {
        "plan_id": piece.plan_id,
        "number": piece.number,
        "kind": piece.kind,
        "text": piece.text,
        "time": timestamp(piece.written_at),
    }
    return b"event: output\ndata: %s\n\n" % _json(told)


def opening_frame(position: int, *, reset: bool) -> bytes:
    """Encode the position at which the stream begins. A client that is disconnected before the first event
    can continue at this position.

    The frame has no data, so it is not an event. With `reset`, it is a reset event: the client's position is
    not in this log, and the stream begins at the end of the log.
    """
    opening = b"retry: %d\nid: %d\n" % (_RETRY_MILLISECONDS, position)
    if reset:
        opening += b"event: reset\ndata: %s\n" % _json({"position": position})
    return opening + b"\n"


def problem_frame(body: bytes) -> bytes:
    """Encode the reason for the end of the stream: a problem as JSON on one line. It has no id."""
    return b"event: problem\ndata: %s\n\n" % body


class FrameRing:
    """The frames of the positions above `base` up to `tip`, without a gap. The size is bounded: the oldest
    frames are dropped first.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(self, base: int, *, most_frames: int, most_bytes: int) -> None:
        self.base = base
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._most_frames = most_frames
        self._most_bytes = most_bytes
        self._joined: dict[tuple[int, ProjectScope], tuple[int, bytes]] = {}

    @property
    def tip(self) -> int:
        return self.base + len(self._frames)

    def extend(self, after: int, frames: Sequence[bytes]) -> None:
        """Add the frames of the positions after `after`, which must be the tip."""
        if after != self.tip:
            raise ValueError(f"frames after {after} do not follow {self.tip}")
        self._joined.clear()
        self._frames.extend(frames)
        self._bytes += sum(map(len, frames))
        while len(self._frames) > self._most_frames or self._bytes > self._most_bytes:
            self._bytes -= len(self._frames.popleft())
            self.base += 1

    def after(self, position: int, scope: ProjectScope = None) -> tuple[int, bytes] | None:
        """Return the next visible frames after a position as one chunk, with the last position in it; None if
        the ring has none.

        Clients at the same position that see the same projects get the same bytes.
        """
        if not self.base <= position < self.tip:  # guard: a client off the ring would miss events
            return None
        found = self._joined.get((position, scope))
        if found is None:
            left = islice(self._frames, position - self.base, None)
            found = self._joined[position, scope] = joined(position, left, scope)
        return found


class OutputRing:
    """The latest output of a plan: all pieces after the number `base`. Numbers have gaps if the oldest pieces
    were deleted before they were read.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(self, base: int, *, most_pieces: int) -> None:
        self.base = base
        self.tip = base
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._most = most_pieces

    def extend(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Add the new pieces."""
        for piece in pieces:
            if piece[0] > self.tip:
                self._pieces.append(piece)
                self.tip = piece[0]
        while len(self._pieces) > self._most:
            self.base = self._pieces.popleft()[0]

    def after(self, number: int) -> list[tuple[int, bytes]] | None:
        """Return the pieces after this number; None if some of them may no longer be in the ring."""
        if number < self.base:
            return None
        return [] if number >= self.tip else [piece for piece in self._pieces if piece[0] > number]


def joined(position: int, frames: Iterable[bytes], scope: ProjectScope = None) -> tuple[int, bytes]:
    """Return a chunk of frames after the position, and its last position. Frames of other projects are left
    out, so the chunk may be empty.
    """
    chunk = bytearray()
    for frame in frames:
        foreign = scope is not None and not (isinstance(frame, EventFrame) and frame.project in scope)
        if foreign:  # guard: no event of another project is shown
            position += 1
            continue
        if chunk and len(chunk) + len(frame) > _CHUNK_BYTES:
            break
        chunk += frame
        position += 1
    return position, bytes(chunk)


class SharedPages:
    """Frames after any position of the log, in cached pages; the least recently used are dropped first.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(
        self, read: Callable[[int], Frames], *, most_pages: int = _MOST_PAGES, most_bytes: int = _MOST_BYTES
    ) -> None:
        """`read` returns the frames after a position, without a gap. It is called in other threads."""
        self.read_count = 0
        self._read = read
        self._most_pages = most_pages
        self._most_bytes = most_bytes
        self._pages: OrderedDict[int, asyncio.Task[Frames]] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._reading = asyncio.Semaphore(_AT_ONCE)

    async def after(self, position: int) -> Frames:
        """Return some frames after the position; none at the end of the log. Raises the errors of `read`."""
        start = position - position % PAGE_FRAMES
        reading = self._page(start)
        # A client that disconnects during the read does not cancel it for others.
        frames = await asyncio.shield(reading)
        if len(frames) > position - start:
            return frames[position - start :]
        # It was read when the log ended there.
        self._forget(start, reading)  # guard: a page without new frames would be found first for ever
        return await asyncio.shield(self._page(position))

    def _page(self, start: int) -> asyncio.Task[Frames]:
        reading = self._pages.get(start)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._read_page(start))
            reading.add_done_callback(lambda done: self._was_read(start, done))
            self._pages[start] = reading
        self._pages.move_to_end(start)
        return reading

    async def _read_page(self, start: int) -> Frames:
        async with self._reading:
            self.read_count += 1
            return await run_in_threadpool(self._read, start)

    def _was_read(self, start: int, reading: asyncio.Task[Frames]) -> None:
        # A failure goes to the clients that wait; without any, it is dropped.
        frames = () if reading.cancelled() or reading.exception() else reading.result()
        if not frames:  # guard: neither a failure nor the end of the log is kept for later clients
            self._forget(start, reading)
        elif self._pages.get(start) is reading:
            self._sizes[start] = sum(map(len, frames))
            self._make_room()

    def _make_room(self) -> None:
        while len(self._sizes) > self._most_pages or sum(self._sizes.values()) > self._most_bytes:
            oldest = next(start for start in self._pages if start in self._sizes)
            self._forget(oldest, self._pages[oldest])

    def _forget(self, start: int, reading: asyncio.Task[Frames]) -> None:
        if self._pages.get(start) is reading:
            del self._pages[start]
            self._sizes.pop(start, None)


def _json(value: object) -> bytes:
    # A lone surrogate, as in the name of a file that is not UTF-8, is escaped as in the CLI's JSON.
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _line(text: str) -> bytes:
    return " ".join(text.split()).encode()
