"""Places of a provider: never more than configured, granted in order, also after cancellations."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cleveragents.models.model_wrappers import FairSemaphore, LimitedModel
from tests.model_stand import FACTS, REPLY, REQUEST, EndingModel


async def settle() -> None:
    """Let every task that can continue do so."""
    for _ in range(10):
        await asyncio.sleep(0)


class Holder:
    """A task that takes a place and holds it until asked to leave."""

    def __init__(self, places: FairSemaphore, log: list[str], name: str) -> None:
        self._leave = asyncio.Event()
        self.log = log
        self.name = name
        self.task = asyncio.ensure_future(self._hold(places))

    async def _hold(self, places: FairSemaphore) -> None:
        async with places.place():
            self.log.append(self.name)
            await self._leave.wait()

    async def leave(self) -> None:
        self._leave.set()
        await asyncio.wait_for(self.task, 30)
        await settle()

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=30)
        await settle()


def test_places_are_given_in_the_order_they_were_asked_for() -> None:
    async def queue() -> list[str]:
        places = FairSemaphore(2)
        log: list[str] = []
        holders = [Holder(places, log, name) for name in "abcde"]
        await settle()
        assert (log, places.free, places.waiting) == (["a", "b"], 0, 3)
        await holders[1].leave()
        assert log == ["a", "b", "c"]
        for number in (0, 2, 3, 4):
            await holders[number].leave()
        assert (places.free, places.waiting) == (2, 0)
        return log

    assert asyncio.run(queue()) == ["a", "b", "c", "d", "e"]


def test_no_caller_overtakes_a_waiter_whose_turn_has_come() -> None:
    async def queue() -> list[str]:
        places = FairSemaphore(1)
        log: list[str] = []
        first = Holder(places, log, "first")
        await settle()
        second = Holder(places, log, "second")
        await settle()
        first._leave.set()
        await first.task  # the place is the second's by now, though it has not woken yet
        third = Holder(places, log, "third")
        await settle()
        assert log == ["first", "second"]
        await second.leave()
        await third.leave()
        return log

    assert asyncio.run(queue()) == ["first", "second", "third"]


def test_a_waiter_that_gives_up_is_out_of_the_queue() -> None:
    async def queue() -> None:
        places = FairSemaphore(1)
        log: list[str] = []
        a, b, c = (Holder(places, log, name) for name in "abc")
        await settle()
        await b.cancel()
        assert places.waiting == 1
        await a.leave()
        assert log == ["a", "c"]
        await c.leave()
        assert places.free == 1

    asyncio.run(queue())


def test_a_place_granted_to_a_cancelled_waiter_is_passed_on() -> None:
    async def queue() -> None:
        places = FairSemaphore(1)
        log: list[str] = []
        a, b, c = (Holder(places, log, name) for name in "abc")
        await settle()
        a._leave.set()
        await a.task
        await b.cancel()  # cancelled between being granted the place and waking
        assert log == ["a", "c"]
        await c.leave()
        assert places.free == 1

    asyncio.run(queue())


def test_a_failing_holder_returns_its_place() -> None:
    async def failing(places: FairSemaphore) -> None:
        async with places.place():
            raise ZeroDivisionError

    places = FairSemaphore(1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing(places))
    assert places.free == 1


def test_loops_of_several_threads_share_the_places() -> None:
    places = FairSemaphore(3)
    model = EndingModel()
    lock = threading.Lock()
    inside = 0
    most = 0

    async def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            async with places.place():
                with lock:
                    inside += 1
                    most = max(most, inside)
                await asyncio.sleep(0)
                with lock:
                    inside -= 1

    async def crowd() -> None:
        await asyncio.gather(*(work() for _ in range(5)))

    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert (most, places.free, places.waiting) == (3, 3, 0)
    assert model.calls == 0


def test_a_waiter_whose_loop_has_ended_is_passed_over() -> None:
    places = FairSemaphore(1)
    gone = asyncio.new_event_loop()
    log: list[str] = []

    async def hold() -> None:
        first = Holder(places, log, "first")
        await settle()
        second = Holder(places, log, "second")
        await settle()
        entering = places._enter()
        entering.send(None)  # it waits on this loop; now its loop is another, and closed
        places._waiting[-1].loop = gone
        places._waiting.rotate(1)
        gone.close()
        await first.leave()
        assert log == ["first", "second"]
        await second.leave()
        entering.close()

    asyncio.run(hold())
    assert (places.free, places.waiting) == (1, 0)


def test_a_model_takes_a_place_for_each_call() -> None:
    async def calls() -> tuple[int, int]:
        release = asyncio.Event()
        inner = EndingModel([release, release, release])
        model = LimitedModel(inner, FairSemaphore(2))
        running = [asyncio.ensure_future(model.reply(REQUEST)) for _ in range(3)]
        await settle()
        begun = inner.calls
        release.set()
        assert await asyncio.wait_for(asyncio.gather(*running), 30) == [REPLY] * 3
        return begun, inner.most

    assert asyncio.run(calls()) == (2, 2)


def test_wrapped_models_pass_their_facts_on() -> None:
    model = LimitedModel(EndingModel(), FairSemaphore(1))
    assert (model.facts, model.count_tokens(REQUEST)) == (FACTS, 42)
