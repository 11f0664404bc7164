"""A client for asyncio ends, whatever its calls do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cleveragents import AsyncClient
from cleveragents.api.client import HttpClient, LocalClient
from cleveragents.api.transport import HttpTransport
from cleveragents.app.container import Container
from cleveragents.core.errors import Closed
from tests.scripted_server import (
    Reply,
    Scripted,
    answering,
    plan_account,
    plan_row,
)
from tests.server_plan_bench import plan_server


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


class Sleepy(LocalClient):
    """A client that tells when it sleeps between two looks."""

    def __init__(self, container: Container) -> None:
        super().__init__(container)
        self.sleeps = threading.Semaphore(0)

    def _sleep(self, seconds: float) -> None:
        self.sleeps.release()
        super()._sleep(60)


def test_closing_ends_the_local_calls_that_wait(tmp_path: Path) -> None:
    """Also of a client that does not own its container: its threads would outlive it."""

    async def run(client: Sleepy, plan_id: str) -> None:
        calls = AsyncClient(client)

        async def watch() -> None:
            async for _ in calls.plans.watch(plan_id):
                pass

        async def follow() -> None:
            async for _ in calls.events.follow():
                pass

        waiting = [asyncio.create_task(one) for one in (calls.plans.wait(plan_id), watch(), follow())]
        for _ in waiting:
            assert await asyncio.to_thread(client.sleeps.acquire, timeout=20)
        await calls.close()
        for task in waiting:
            with pytest.raises(Closed):
                await asyncio.wait_for(task, 20)

    with plan_server(tmp_path, works=False) as server:
        made = server.command("true")
        asyncio.run(run(Sleepy(server.bench.container), made["id"]))


class Endless:
    """A client whose `watch` never ends by itself, and which owns nothing that could end it."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.release_hold = threading.Event()
        self.ended = threading.Event()

    @property
    def plans(self) -> Endless:
        return self

    def watch(self, plan_id: str) -> Iterator[str]:
        try:
            yield plan_id
            self.waits.set()
            self.release_hold.wait(60)
            yield plan_id
        finally:
            self.ended.set()

    def close(self) -> None:
        """Close nothing."""


def test_a_cancelled_watch_closes_its_generator_and_blocks_no_thread() -> None:
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
    endless.release_hold.set()
    assert endless.ended.wait(5)
