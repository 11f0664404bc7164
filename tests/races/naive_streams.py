"""Naive streams: a queue for each client, with missed frames read separately."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tests.stream_bench import MemoryLog

__all__ = ["LiveOnlyStream", "ReadThenSubscribeStream", "SubscribeThenReadStream"]


class _QueueStream:
    """Gets every frame that is appended while it is subscribed."""

    def __init__(self, log: MemoryLog, after: int | None) -> None:
        self.log = log
        self.after = log.end() if after is None else after
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()

    def subscribe(self) -> None:
        self.log.listeners.append(self.heard)

    def heard(self) -> None:
        newest = self.log.kept[-1]
        self.loop.call_soon_threadsafe(self.queue.put_nowait, newest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.begin(send)
        gone = asyncio.create_task(_disconnected(receive))
        try:
            while not gone.done():
                getting = asyncio.create_task(self.queue.get())
                await asyncio.wait({getting, gone}, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    await _say(send, getting.result())
                getting.cancel()
        finally:
            gone.cancel()
            self.log.listeners.remove(self.heard)

    async def begin(self, send: Send) -> None:
        raise NotImplementedError

    async def missed(self, send: Send) -> None:
        for frame in await run_in_threadpool(self.log.frames, self.after):
            await _say(send, frame)


class LiveOnlyStream(_QueueStream):
    """A returning client only gets new frames."""

    async def begin(self, send: Send) -> None:
        self.subscribe()


class ReadThenSubscribeStream(_QueueStream):
    """Reads missed frames, and then subscribes: frames in between are lost."""

    async def begin(self, send: Send) -> None:
        await self.missed(send)
        self.subscribe()


class SubscribeThenReadStream(_QueueStream):
    """Subscribes, and then reads missed frames: frames in between are sent twice."""

    async def begin(self, send: Send) -> None:
        self.subscribe()
        await self.missed(send)


async def _say(send: Send, frame: bytes) -> None:
    await send({"type": "http.response.body", "body": frame, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
