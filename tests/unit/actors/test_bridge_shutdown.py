"""Clean-ups, closing, and loops that end in other ways: every future resolves and nothing is left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cleveragents.actors.bridge.bridge import Cleanup, RxPyLangGraphBridge
from cleveragents.actors.streams.message import MessageKind
from cleveragents.core.errors import BlockingOnLoop, Closed, DeadlineExceeded, LoopStopped
from tests.bridge_graphs import LIMIT, Gate, State, async_increment, branches, chain, request
from tests.leaks import abandoned


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@contextmanager
def bridge_over(**graphs: Callable[[State], Any]) -> Iterator[RxPyLangGraphBridge]:
    with RxPyLangGraphBridge({name: chain(node) for name, node in graphs.items()}) as bridge:
        yield bridge


def in_sync(bridge: RxPyLangGraphBridge, timeout: float) -> Cleanup:
    return bridge.cleanup_tasks(timeout)


def in_async(bridge: RxPyLangGraphBridge, timeout: float) -> Cleanup:
    return asyncio.run(bridge.cleanup_tasks_async(timeout))


both_colours = pytest.mark.parametrize("cleanup", [in_sync, in_async])


@both_colours
def test_a_cleanup_ends_admitted_runs_and_the_bridge_continues(
    gate: Gate, cleanup: Callable[..., Cleanup]
) -> None:
    with bridge_over(hold=gate.hold, fine=async_increment) as bridge:
        assert cleanup(bridge, LIMIT) == Cleanup()
        runs = [bridge.create_future_task(request("hold")) for _ in range(3)]
        gate.wait_entered(3)
        assert cleanup(bridge, LIMIT) == Cleanup(cancelled=3)
        assert {run.result(0).kind for run in runs} == {MessageKind.CANCELLED}
        assert bridge.create_future_task(request("fine")).result(LIMIT).kind is MessageKind.RESULT


@both_colours
def test_a_node_that_ignored_the_cancellation_is_cancelled_again(
    gate: Gate, cleanup: Callable[..., Cleanup]
) -> None:
    with bridge_over(ignore=gate.ignore_once) as bridge:
        run = bridge.create_future_task(request("ignore"))
        gate.wait_entered()
        assert cleanup(bridge, 0.5) == Cleanup(cancelled=1)
        assert gate.cleaning.is_set()
        assert run.result(0).kind is MessageKind.CANCELLED


def test_a_second_cancellation_reaches_parallel_nodes_that_ignored_the_first(gate: Gate) -> None:
    graphs = {"both": branches(gate.ignore_once, gate.ignore_once)}
    with RxPyLangGraphBridge(graphs) as bridge:
        run = bridge.create_future_task(request("both"))
        gate.wait_entered(2)
        assert bridge.cleanup_tasks(0.5).unfinished == 0
        assert run.done()
        assert not asyncio.all_tasks(bridge._loop_thread.loop)


@both_colours
def test_runs_that_end_before_their_cancellation_are_counted_as_such(
    gate: Gate, cleanup: Callable[..., Cleanup]
) -> None:
    async def finish_anyway(state: State) -> State:
        try:
            await gate.hold(state)
        except asyncio.CancelledError:
            return {"n": -1}
        return {}

    with bridge_over(stubborn=finish_anyway) as bridge:
        run = bridge.create_future_task(request("stubborn"))
        gate.wait_entered()
        assert cleanup(bridge, LIMIT) == Cleanup(ended_otherwise=1)
        assert run.result(0).content["n"] == -1


@both_colours
def test_a_node_that_never_ends_is_reported_and_abandoned_at_close(
    gate: Gate, cleanup: Callable[..., Cleanup]
) -> None:
    with abandoned(), bridge_over(never=gate.never_end) as bridge:
        run = bridge.create_future_task(request("never"))
        gate.wait_entered()
        assert cleanup(bridge, 0.1) == Cleanup(unfinished=1)
        assert not run.done()
        assert bridge.close(0.1) == Cleanup(unfinished=1)
        answer = run.result(0)
    assert answer.kind is MessageKind.ERROR
    assert isinstance(answer.error, LoopStopped)
    assert not bridge._active_tasks


def test_a_synchronous_node_that_hangs_does_not_hang_close(gate: Gate) -> None:
    with bridge_over(hang=gate.hold_thread) as bridge:
        run = bridge.create_future_task(request("hang"))
        gate.wait_entered()
        assert bridge.close(0.1) == Cleanup(unfinished=1)
        assert run.result(0).kind is MessageKind.ERROR
        gate.open()


def test_a_node_that_blocks_the_loop_does_not_hang_close(gate: Gate) -> None:
    with bridge_over(block=gate.hold_loop) as bridge:
        run = bridge.create_future_task(request("block"))
        gate.wait_entered()
        assert bridge.close(0.1) == Cleanup(unfinished=1)
        assert isinstance(run.result(0).error, DeadlineExceeded)
        gate.open()


def test_close_refuses_cancels_drains_and_ends_the_thread(gate: Gate) -> None:
    with bridge_over(hold=gate.hold) as bridge:
        run = bridge.create_future_task(request("hold"))
        gate.wait_entered()
        assert bridge.close(LIMIT) == Cleanup(cancelled=1)
        assert run.result(0).kind is MessageKind.CANCELLED
        assert not bridge._loop_thread._thread.is_alive()
        with pytest.raises(Closed):
            bridge.create_future_task(request("hold"))
        assert bridge.close(LIMIT) == Cleanup()
        assert bridge.cleanup_tasks(LIMIT) == Cleanup()


def test_a_submit_that_waits_for_room_is_refused_at_close(gate: Gate) -> None:
    refusals: list[Closed] = []

    def submit() -> None:
        try:
            bridge.create_future_task(request("hold"))
        except Closed as refusal:
            refusals.append(refusal)

    with RxPyLangGraphBridge({"hold": chain(gate.clean_up_slowly)}, max_in_flight=1) as bridge:
        bridge.create_future_task(request("hold"))
        gate.wait_entered()
        waiting = threading.Thread(target=submit)
        waiting.start()
        closing = threading.Thread(target=bridge.close)
        closing.start()
        waiting.join(LIMIT)
        gate.open()
        closing.join(LIMIT)
    assert len(refusals) == 1


def test_waiting_on_the_loop_for_the_loop_raises(gate: Gate) -> None:
    async def wait_for_yourself(state: State) -> State:
        inner = bridge.create_future_task(request("hold"))
        waits: list[Callable[[], object]] = [
            inner.result,
            inner.exception,
            bridge.cleanup_tasks,
            bridge.close,
        ]
        for wait in waits:
            with pytest.raises(BlockingOnLoop):
                wait()
        return {"seen": ["refused"]}

    with bridge_over(self=wait_for_yourself, hold=gate.hold) as bridge:
        answer = bridge.create_future_task(request("self")).result(LIMIT)
    assert answer.content.get("seen") == ["refused"], answer


def test_a_loop_stopped_from_outside_resolves_every_future_with_an_error(gate: Gate) -> None:
    async def stop_the_loop(state: State) -> State:
        asyncio.get_running_loop().stop()
        return {}

    with abandoned(), bridge_over(stop=stop_the_loop, hold=gate.hold, never=gate.never_end) as bridge:
        held = bridge.create_future_task(request("hold"))
        never = bridge.create_future_task(request("never"))
        gate.wait_entered(2)
        stopper = bridge.create_future_task(request("stop"))
        for run in (held, never):
            answer = run.result(LIMIT)
            assert answer.kind is MessageKind.ERROR
            assert isinstance(answer.error, LoopStopped)
        stopper.result(LIMIT)
        with pytest.raises(Closed):
            bridge.create_future_task(request("hold"))
        assert bridge.close(LIMIT) == Cleanup()


def test_a_close_does_not_interrupt_the_last_round_of_a_stopped_loop(gate: Gate) -> None:
    async def stop_the_loop(state: State) -> State:
        asyncio.get_running_loop().stop()
        return {}

    async def clean_up_beside_a_close(state: State) -> State:
        try:
            return await gate.hold(state)
        finally:
            bridge._loop_thread.post(bridge._loop_thread._stop)
            for _ in range(10):
                await asyncio.sleep(0)
            gate.cleaned.set()

    with bridge_over(stop=stop_the_loop, clean=clean_up_beside_a_close) as bridge:
        run = bridge.create_future_task(request("clean"))
        gate.wait_entered()
        bridge.create_future_task(request("stop"))
        assert isinstance(run.result(LIMIT).error, LoopStopped)
        assert gate.cleaned.is_set()


def test_a_run_that_waits_for_its_turn_on_a_loop_that_stops_never_starts(gate: Gate) -> None:
    started = threading.Event()

    async def stop_the_loop(state: State) -> State:
        await gate.hold_loop(state)
        asyncio.get_running_loop().stop()
        return {}

    async def start(state: State) -> State:
        started.set()
        return {}

    with bridge_over(stop=stop_the_loop, start=start) as bridge:
        bridge.create_future_task(request("stop"))
        gate.wait_entered()
        waiting = bridge.create_future_task(request("start"))
        gate.open()
        assert isinstance(waiting.result(LIMIT).error, LoopStopped)
    assert not started.is_set()


def test_a_cancelled_async_cleanup_has_asked_all_runs_to_end(gate: Gate) -> None:
    async def give_up(run: Any) -> None:
        cleaning = asyncio.ensure_future(bridge.cleanup_tasks_async(LIMIT))
        while not gate.cleaning.is_set():
            await asyncio.sleep(0)
        cleaning.cancel()
        await asyncio.wait([cleaning])
        assert cleaning.cancelled()

    with bridge_over(slow=gate.clean_up_slowly) as bridge:
        run = bridge.create_future_task(request("slow"))
        gate.wait_entered()
        asyncio.run(give_up(run))
        gate.open()
        assert run.result(LIMIT).kind is MessageKind.CANCELLED


def test_a_thousand_runs_in_flight_are_all_answered(gate: Gate) -> None:
    with RxPyLangGraphBridge({"hold": chain(gate.hold)}, max_in_flight=1000) as bridge:
        bridge._loop_thread.loop.set_debug(False)  # debug mode keeps the stack of every callback
        runs = [bridge.create_future_task(request("hold", number)) for number in range(1000)]
        gate.wait_entered(1000)
        gate.open()
        assert [run.result(LIMIT).content["n"] for run in runs] == list(range(1, 1001))
