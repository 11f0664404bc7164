"""A client for asyncio ends, whatever its calls do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from cleveragents import AsyncClient
from cleveragents.api.client import HttpClient
from cleveragents.api.transport import HttpTransport
from cleveragents.core.errors import (
    Closed,
)
from tests.scripted_server import (
    Reply,
    Scripted,
    answering,
    plan_account,
    plan_row,
)


def test_closing_does_not_wait_for_a_cancelled_call() -> None:
    looked = threading.Event()

    async def run(server: Scripted) -> float:
        client = AsyncClient(HttpClient(HttpTransport(server.url, None)), threads=1)

        async def watch() -> None:
            async for _ in client.plans.watch("01A"):
                pass

        watching, waiting = asyncio.create_task(watch()), asyncio.create_task(client.plans.wait("01A"))
        await asyncio.to_thread(looked.wait, 10)
        watching.cancel()
        began = time.monotonic()
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await watching
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            await client.plans.get("01A")
        await client.close()
        return time.monotonic() - began

    def answer(_: str, path: str, query: dict[str, list[str]]) -> Reply:
        if path.endswith("/output"):
            looked.set()
            return 200, {"items": [], "next": None}
        return 200, plan_row(state="queued") if path.endswith("/summary") else plan_account(state="queued")

    with answering(answer) as server:
        assert asyncio.run(run(server)) < 5


class Endless:
    """A client whose `watch` never ends by itself, and which owns nothing that could end it."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.let_go = threading.Event()
        self.ended = threading.Event()

    @property
    def plans(self) -> Endless:
        return self

    def watch(self, plan_id: str) -> Iterator[str]:
        try:
            yield plan_id
            self.waits.set()
            self.let_go.wait(60)
            yield plan_id
        finally:
            self.ended.set()

    def close(self) -> None:
        """Close nothing."""


def test_a_cancelled_watch_closes_its_generator_and_holds_up_nobody() -> None:
    endless = Endless()

    async def run() -> None:
        client = AsyncClient(cast(Any, endless))
        pieces = client.plans.watch("01A")
        await anext(pieces)
        step = asyncio.ensure_future(anext(pieces))
        await asyncio.to_thread(endless.waits.wait, 10)
        step.cancel()
        await asyncio.wait_for(client.close(), 5)

    asyncio.run(run())
    assert not endless.ended.is_set()
    endless.let_go.set()
    assert endless.ended.wait(5)
