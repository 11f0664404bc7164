"""Pages of the log, read once for all streams that are behind.

Whoever has fallen off the ring reads the log itself. Such clients are seldom at one place: if each read from
where it stands, a hundred of them would read, mask and encode the same events a hundred times, and the more
were behind the less any of them would come forward. So pages begin at round positions, whoever asks, are kept
for those who come after, and few are read at once: the threads that read are those that answer requests.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool

__all__ = ["PAGE_FRAMES", "SharedPages"]

PAGE_FRAMES = 500
"""A page begins after a multiple of this."""

_MOST_PAGES = 256
_MOST_BYTES = 16 * 1024 * 1024
_AT_ONCE = 2

Frames = Sequence[bytes]


class SharedPages:
    """Frames after any position of the log, a page at a time; bounded, those asked for longest ago go first.

    Not thread-safe: use it on the server's loop.
    """

    def __init__(
        self, read: Callable[[int], Frames], *, most_pages: int = _MOST_PAGES, most_bytes: int = _MOST_BYTES
    ) -> None:
        """`read` gives the frames that follow a position, without a gap; it is called on other threads."""
        self.read_count = 0
        self._read = read
        self._most_pages = most_pages
        self._most_bytes = most_bytes
        self._pages: OrderedDict[int, asyncio.Task[Frames]] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._reading = asyncio.Semaphore(_AT_ONCE)

    async def after(self, position: int) -> Frames:
        """Some frames after that position; none at the end of the log. What `read` raises."""
        start = position - position % PAGE_FRAMES
        reading = self._page(start)
        # Who goes away while it is read takes it from nobody.
        frames = await asyncio.shield(reading)
        if len(frames) > position - start:
            return frames[position - start :]
        # It was read when the log ended there.
        self._forget(start, reading)  # guard: it would be looked at first for ever
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
        # Who waited for it is told of a failure; if nobody does any more, nobody needs to be.
        frames = () if reading.cancelled() or reading.exception() else reading.result()
        if not frames:  # guard: neither a failure nor an end is kept for those who ask later
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
