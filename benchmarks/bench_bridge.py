"""Graph runs through the bridge, compared with `ainvoke` of the same graph in a plain loop.

A stream keeps several runs in flight, so the pipelined ratio is the relevant one. The sequential one waits
for each answer before the next request, and so pays for two thread switches with every run.
"""

from __future__ import annotations

import asyncio
import threading
from statistics import median
from typing import Any, TypedDict

from benchmarks.ratio import ratio, seconds_of
from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
from cleveragents.actors.streams.message import StreamMessage

__all__ = ["CleanUp", "InFlight", "Runs"]

_RUNS = 100
_IN_FLIGHT = 1000
_LIMIT = 60.0


class _State(TypedDict, total=False):
    n: int


async def _increment(state: _State) -> _State:
    return {"n": state["n"] + 1}


def _chain(length: int, node: Any = _increment) -> Any:
    from langgraph.graph import END, START, StateGraph

    builder = StateGraph(_State)
    for number in range(length):
        builder.add_node(f"node{number}", node)
        builder.add_edge(f"node{number - 1}" if number else START, f"node{number}")
    builder.add_edge(f"node{length - 1}", END)
    return builder.compile()


class Runs:
    """100 runs of graphs with 1 and 5 nodes."""

    params = (1, 5)
    param_names = ("nodes",)
    unit = "ratio"
    timeout = 300

    def setup(self, nodes: int) -> None:
        self.graph = _chain(nodes)
        self.loop = asyncio.new_event_loop()
        self.bridge = RxPyLangGraphBridge({"graph": self.graph}, max_in_flight=_RUNS)
        self.message = StreamMessage("m", "graph", {"n": 1})

    def teardown(self, nodes: int) -> None:
        self.bridge.close()
        self.loop.close()

    def track_pipelined_run_ratio(self, nodes: int) -> float:
        """All in flight at once, compared with `gather` in one loop. Aim: ≤ 1.15."""

        def ours() -> None:
            runs = [self.bridge.create_future_task(self.message) for _ in range(_RUNS)]
            for run in runs:
                run.result(_LIMIT)

        async def gather() -> None:
            await asyncio.gather(*(self.graph.ainvoke({"n": 1}) for _ in range(_RUNS)))

        return ratio(ours, lambda: self.loop.run_until_complete(gather()))

    def track_sequential_run_ratio(self, nodes: int) -> float:
        """One after the other, compared with sequential `ainvoke` calls."""

        def ours() -> None:
            for _ in range(_RUNS):
                self.bridge.create_future_task(self.message).result(_LIMIT)

        return ratio(ours, lambda: self.loop.run_until_complete(self._one_by_one()))

    def track_sequential_crossing_ratio(self, nodes: int) -> float:
        """The floor of the sequential runs: `run_coroutine_threadsafe` to an idle loop in a thread."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()

        def cross() -> None:
            for _ in range(_RUNS):
                asyncio.run_coroutine_threadsafe(self.graph.ainvoke({"n": 1}), loop).result(_LIMIT)

        try:
            return ratio(cross, lambda: self.loop.run_until_complete(self._one_by_one()))
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_LIMIT)
            loop.close()

    async def _one_by_one(self) -> None:
        for _ in range(_RUNS):
            await self.graph.ainvoke({"n": 1})


class InFlight:
    """1,000 runs at once."""

    unit = "answers"
    timeout = 300

    def setup(self) -> None:
        self.bridge = RxPyLangGraphBridge({"graph": _chain(1)}, max_in_flight=_IN_FLIGHT)

    def teardown(self) -> None:
        self.bridge.close()

    def track_lost_answers(self) -> int:
        """The number of 1,000 requests in flight that got no answer. Aim: 0."""
        messages = [StreamMessage(str(n), "graph", {"n": n}) for n in range(_IN_FLIGHT)]
        runs = [self.bridge.create_future_task(message) for message in messages]
        answers = [run.result(_LIMIT) for run in runs]
        return sum(answer.content.get("n") != n + 1 for n, answer in enumerate(answers))


class CleanUp:
    """The clean-up of 1,000 waiting runs."""

    unit = "ratio"
    timeout = 600

    def setup(self) -> None:
        self.entered = 0
        self.all_entered = threading.Event()
        self.graph = _chain(1, self._wait)
        self.loop = asyncio.new_event_loop()
        self.bridge = RxPyLangGraphBridge({"graph": self.graph}, max_in_flight=_IN_FLIGHT)

    def teardown(self) -> None:
        self.bridge.close()
        self.loop.close()

    def track_cleanup_of_1000_ratio(self) -> float:
        """Compared with cancelling and gathering 1,000 tasks of the same graph. Aim: ≤ 2."""
        return median(self._ours() / self._floor() for _ in range(5))

    def _ours(self) -> float:
        self._expect_all()
        message = StreamMessage("m", "graph", {"n": 1})
        for _ in range(_IN_FLIGHT):
            self.bridge.create_future_task(message)
        assert self.all_entered.wait(_LIMIT)
        return seconds_of(lambda: self.bridge.cleanup_tasks(_LIMIT))

    def _floor(self) -> float:
        self._expect_all()
        tasks = [self.loop.create_task(self.graph.ainvoke({"n": 1})) for _ in range(_IN_FLIGHT)]
        while not self.all_entered.is_set():
            self.loop.run_until_complete(asyncio.sleep(0))

        async def cancel_all() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks.clear()  # the bridge forgets its runs as they end; here their frames are freed at once

        return seconds_of(lambda: self.loop.run_until_complete(cancel_all()))

    def _expect_all(self) -> None:
        self.entered = 0
        self.all_entered.clear()

    async def _wait(self, state: _State) -> _State:
        self.entered += 1
        if self.entered == _IN_FLIGHT:
            self.all_entered.set()
        await asyncio.Event().wait()
        return {}
