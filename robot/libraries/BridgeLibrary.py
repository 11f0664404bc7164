"""Keywords for the graph bridge: real graphs, many threads."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.core.errors import Closed, QueueFull
from tests.bridge_graphs import LIMIT, Gate, State, async_increment, branches, chain, request, sync_increment
from tests.leaks import take_baseline
from tests.races.hammer import hammer

__all__ = ["BridgeLibrary"]


async def _fail(state: State) -> State:
    raise ValueError("on purpose")


class BridgeLibrary:
    """One bridge per test."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def __init__(self) -> None:
        self._bridge: Any = None
        self._runs: list[Any] = []
        self._refused: list[int] = []
        self._baseline: Any = None

    def open_a_bridge(self, max_in_flight: int = 64) -> None:
        """Over graphs that succeed, fail, branch, use threads, and wait for ever."""
        self._baseline = take_baseline()
        graphs = {
            "async": chain(async_increment, async_increment),
            "sync": chain(sync_increment),
            "branches": branches(async_increment),
            "failing": chain(_fail),
            "waiting": chain(Gate().hold),
        }
        self._bridge = RxPyLangGraphBridge(graphs, max_in_flight=max_in_flight)

    def submit_from_threads(self, threads: int, each: int, *graphs: str) -> None:
        """Every thread submits `each` messages, to the graphs by turns."""

        def work(number: int) -> None:
            for n in range(each):
                try:
                    run = self._bridge.create_future_task(request(graphs[n % len(graphs)], n))
                except (Closed, QueueFull):
                    self._refused.append(number)
                else:
                    self._runs.append(run)

        hammer(work, threads=threads)

    def clean_up_while_submitting(self, threads: int, each: int, graph: str) -> None:
        """As `Submit From Threads`, beside a thread that cleans up again and again until they are done."""
        done = threading.Event()

        def clean_up() -> None:
            while not done.is_set():
                self._bridge.cleanup_tasks(LIMIT)

        cleaner = threading.Thread(target=clean_up)
        cleaner.start()
        try:
            self.submit_from_threads(threads, each, graph)
        finally:
            done.set()
            cleaner.join(LIMIT)

    def clean_up(self) -> int:
        """Returns how many runs are unfinished."""
        return self._bridge.cleanup_tasks(LIMIT).unfinished

    def close_the_bridge(self) -> None:
        """Returns when nothing of it runs."""
        self._bridge.close(LIMIT)

    def answers_should_add_up_to(self, total: int) -> dict[str, int]:
        """Every submit was answered or refused; returns how many ended how."""
        kinds = Counter(run.result(LIMIT).kind.value for run in self._runs)
        found = kinds.total() + len(self._refused)
        if found != total:
            raise AssertionError(f"{total} submitted, {found} accounted for: {kinds}")
        return dict(kinds)

    def no_task_should_be_left(self) -> None:
        """Neither in the bridge's books nor on its loop."""
        left = asyncio.all_tasks(self._bridge._loop_thread.loop)
        if self._bridge._active_tasks or left:
            raise AssertionError(f"left: {self._bridge._active_tasks}, {left}")

    def nothing_should_be_left_behind(self) -> None:
        """Threads and descriptors are back where they were before the bridge."""
        leaks = self._baseline.leaks()
        if leaks:
            raise AssertionError("; ".join(leaks))
