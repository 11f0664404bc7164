"""The leak check of every suite finds tasks, too, whether or not they are referenced."""

from __future__ import annotations

import asyncio
import gc

from tests import leaks
from tests.leaks import take_baseline


async def _begin() -> asyncio.Task[None]:
    begun = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
    await asyncio.sleep(0)
    return begun


def test_an_unfinished_task_is_a_leak() -> None:
    before = take_baseline()
    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(_begin())
    assert any(found.startswith("task <Task pending") for found in before._compare())
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert before._compare() == []


def test_a_task_that_was_destroyed_is_a_leak() -> None:
    before = take_baseline()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_begin())
    loop.close()
    del loop
    gc.collect()
    (found,) = before._compare()
    assert "was destroyed but it is pending" in found
    leaks._DESTROYED.remove(found)
