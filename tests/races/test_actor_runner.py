"""Concurrent runs of actors: one per thread, and a cancel that races with the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cleveragents.actors.model.actor import StateKey
from cleveragents.actors.ports import ActorRequest
from cleveragents.actors.runner import ActiveRun, ActorGraph
from cleveragents.core.errors import Cancelled, ThreadBusy
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.testing.actor_host import ScriptedHost
from tests.actor_bench import LIMIT, Bench, actor, open_bench, thinker
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.hammer import SWITCH_INTERVALS, switch_interval

WHICH = actor(thinker(output="text"), state=(StateKey("text"),))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("races")) as opened:
        yield opened


class Entrance:
    """A graph, and the admitted callers."""

    def __init__(self, graph: ActorGraph) -> None:
        self.graph = graph
        self.told: dict[str, str] = {}

    def enter(self, who: str) -> None:
        request = ActorRequest(
            actor=WHICH, thread_id="t", inputs={}, host=ScriptedHost([]), stop=CancellationToken()
        )
        nothing: Any = None
        try:
            self.graph.enter(ActiveRun(request, nothing, nothing, lambda progress: None))
        except ThreadBusy:
            self.told[who] = "busy"
        else:
            self.told[who] = "in"


class LooksThenEnters(ActorGraph):
    """A check without the lock."""

    def enter(self, active_run: ActiveRun) -> None:
        if active_run.request.thread_id in self._active_runs:
            raise ThreadBusy(active_run.request.thread_id)
        self._active_runs[active_run.request.thread_id] = active_run


def two_enter(make: type[ActorGraph]) -> Scenario[Entrance]:
    return Scenario(
        name="two runs enter one thread",
        setup=lambda: Entrance(make()),
        workers=[lambda world: world.enter("a"), lambda world: world.enter("b")],
        outcome=lambda world: (world.told["a"], world.told["b"]),
        allowed=lambda outcome: sorted(outcome) == ["busy", "in"],
        reachable=frozenset({("in", "busy"), ("busy", "in")}),
    )


def test_of_two_that_enter_one_thread_exactly_one_is_let_in() -> None:
    assert_holds(two_enter(ActorGraph), effort=60)


def test_a_check_without_the_lock_would_admit_both() -> None:
    assert_caught(two_enter(LooksThenEnters), effort=200)


def test_two_runs_at_once_of_one_thread_make_its_calls_once(bench: Bench) -> None:
    gate = threading.Event()
    host = ScriptedHost(["once"], gate=gate)
    request = bench.request(WHICH, host)
    start = threading.Barrier(2)

    def run() -> str:
        start.wait(LIMIT)
        try:
            return str(bench.runner.run(request).values["text"])
        except ThreadBusy as busy:
            gate.set()  # the other one holds the model until this one was refused
            return type(busy).__name__

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(run) for _ in range(2)]
        assert sorted(end.result(LIMIT) for end in ends) == ["ThreadBusy", "once"]
    assert len(host.thoughts) == 1
    assert bench.runner.run(request).values["text"] == "once"


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_a_cancel_that_races_the_end_has_one_outcome(bench: Bench, interval: float) -> None:
    ended = {"cancelled": 0, "done": 0}
    with switch_interval(interval), ThreadPoolExecutor(1) as pool:
        for _ in range(12):
            gate, token = threading.Event(), CancellationToken()
            host = ScriptedHost(lambda _: "done", gate=gate)
            request = bench.request(WHICH, host, stop=token)
            run = pool.submit(bench.runner.run, request)
            assert host.thinking.acquire(timeout=LIMIT)
            gate.set()
            token.cancel("race")
            try:
                assert run.result(LIMIT).values["text"] == "done"
                ended["done"] += 1
            except Cancelled:
                ended["cancelled"] += 1
            assert not bench.runner._bridge._active_tasks, "it returned before its run had ended"
            again = bench.runner.run(bench.request(WHICH, host, thread_id=request.thread_id))
            assert again.values["text"] == "done"
    assert sum(ended.values()) == 12
