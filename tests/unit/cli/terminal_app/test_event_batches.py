"""Batches of items from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from textual.app import App
from textual.message_pump import MessagePump
from textual.timer import Timer

from cleveragents.cli.terminal_app.events import Batches, call_after

THREADS, ITEMS = 4, 2_000


class Loop(MessagePump):
    """A receiver that runs its callbacks when told to, in order."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], Awaitable[None]]] = []
        self.timers: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        self.now: float | None = None
        """The time of a clock that the test moves; without it, timers end at once."""

    def call_later(self, callback: Callable[..., Awaitable[None]], *args: object, **kwargs: object) -> bool:
        self.callbacks.append(callback)
        return True

    def after(self, _: MessagePump, delay: float, callback: Any) -> None:
        if self.now is None:
            self.callbacks.append(callback)
        else:
            self.timers.append((self.now + delay, callback))

    def clock(self) -> float:
        return self.now or 0.0

    def run_until(self, now: float) -> None:
        """Let time pass, and run what is due."""
        self.now = now
        due = [callback for end, callback in self.timers if end <= now]
        self.timers = [one for one in self.timers if one[0] > now]
        self.callbacks += due
        self.run()

    def run(self) -> None:
        """Run the callbacks, and those that they add."""
        while self.callbacks:
            asyncio.run(_awaited(self.callbacks.pop(0)))


async def _awaited(callback: Callable[[], Awaitable[None]]) -> None:
    await callback()


def test_items_are_delivered_together_and_once() -> None:
    loop, batches = Loop(), list[list[int]]()

    async def deliver(items: list[int]) -> None:
        batches.append(items)
        if items == [1, 2]:
            passed.put(3)  # schedules the next delivery

    passed = Batches[int](loop, deliver, after=loop.after)
    for item in (1, 2, 1):
        passed.put(item)
    assert len(loop.callbacks) == 1
    loop.run()
    assert batches == [[1, 2], [3]]
    passed.put(4)
    asyncio.run(passed.flush())
    loop.run()
    assert batches[2:] == [[4]]


def test_no_item_of_any_thread_is_lost() -> None:
    loop, seen = Loop(), list[int]()

    async def deliver(items: list[int]) -> None:
        seen.extend(items)

    passed = Batches[int](loop, deliver, after=loop.after)

    def put(first: int) -> None:
        for item in range(first, first + ITEMS):
            passed.put(item)

    threads = [threading.Thread(target=put, args=(number * ITEMS,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        loop.run()
    loop.run()
    assert sorted(seen) == list(range(THREADS * ITEMS))


def test_a_thousand_items_a_second_are_delivered_twenty_times_a_second() -> None:
    loop, seen, times = Loop(), list[int](), list[float]()

    async def deliver(items: list[int]) -> None:
        seen.extend(items)
        times.append(loop.clock())

    passed = Batches[int](loop, deliver, loop.clock, loop.after)
    for milliseconds in range(10_000):
        passed.put(milliseconds)
        loop.run_until(milliseconds / 1000)
    assert 195 <= len(times) <= 201
    assert min(later - before for before, later in pairwise(times)) > 0.0499
    loop.run_until(10.05)
    assert seen == list(range(10_000)), "the last items follow without another one"


def test_a_call_does_not_depend_on_a_timer_of_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Timer._run` ends without the call if the process is suspended while it starts."""
    called: list[str] = []

    async def skipped(_: Timer) -> None:
        return

    async def run() -> None:
        app = App[None]()
        async with app.run_test():
            monkeypatch.setattr(Timer, "_run", skipped)
            app.set_timer(0.0, lambda: called.append("by a timer"))
            call_after(app, 0.01, lambda: called.append("called"))
            while "called" not in called:
                await asyncio.sleep(0.01)
            monkeypatch.undo()

    asyncio.run(run())
    assert called == ["called"]
