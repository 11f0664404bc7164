"""The guarantees of a cancellation token, one per test; tests that need schedules are in tests/races."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest
from structlog.testing import capture_logs

from cleveragents.core.cancellation import CancellationView
from cleveragents.core.errors import Cancelled
from cleveragents.jobs.worker.async_worker import CancellationToken

LONG = 30.0


@pytest.fixture
def token() -> CancellationToken:
    return CancellationToken()


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


# ── Generations ───────────────────────────────────────────────────────────────────────────────────


def test_the_first_cancel_wins_and_its_reason_stays(token: CancellationToken) -> None:
    assert (token.is_cancelled, token.reason) == (False, None)
    assert token.cancel("first") is True
    assert token.cancel("second") is False
    assert (token.is_cancelled, token.reason) == (True, "first")


def test_a_reset_begins_a_generation_that_knows_nothing_of_the_last(token: CancellationToken) -> None:
    run = token.view()
    token.cancel("stop")
    assert token.reset() is True
    assert (token.is_cancelled, token.reason, token.wait(0)) == (False, None, False)
    assert (run.is_cancelled, run.reason, run.wait(0)) == (True, "stop", True)
    assert (run.generation, token.view().generation) == (1, 2)


def test_resetting_an_uncancelled_token_keeps_its_waiters(token: CancellationToken) -> None:
    runs: list[str] = []
    token.on_cancel(lambda: runs.append("callback"))
    child = token.child()
    run = token.view()
    assert token.reset() is False
    token.cancel()
    assert runs == ["callback"]
    assert child.is_cancelled
    assert run.is_cancelled


def test_raise_if_cancelled_raises_the_reason(token: CancellationToken) -> None:
    token.raise_if_cancelled()
    token.cancel("stop")
    with pytest.raises(Cancelled, match="cancelled: stop"):
        token.raise_if_cancelled()


def test_a_wait_that_times_out_leaves_nothing_behind(token: CancellationToken) -> None:
    assert token.wait(0.001) is False
    assert not token.view()._wakers


# ── Children ──────────────────────────────────────────────────────────────────────────────────────


def test_a_child_is_cancelled_with_its_parent_and_never_upward(token: CancellationToken) -> None:
    child = token.child()
    leaf = child.child()
    sibling = token.child()
    child.cancel("child")
    assert (token.is_cancelled, sibling.is_cancelled) == (False, False)
    token.cancel("parent")
    assert (child.reason, leaf.reason, sibling.reason) == ("child", "child", "parent")


def test_a_child_of_a_cancelled_generation_is_born_cancelled(token: CancellationToken) -> None:
    run = token.view()
    token.cancel("stop")
    born = token.child()
    token.reset()
    assert born.reason == "stop"
    assert CancellationToken(
        run
    ).is_cancelled  # the run's own generation, whatever the token's current one is
    assert not token.child().is_cancelled


def test_a_childs_reset_undoes_its_own_cancel_only(token: CancellationToken) -> None:
    child = token.child()
    child.cancel("own")
    assert child.reset() is True
    token.cancel("parent")
    assert child.reason == "parent"
    token.reset()
    assert child.reset() is False
    assert child.reason == "parent"


def test_children_that_end_do_not_pile_up(token: CancellationToken) -> None:
    held = token.child()
    with token.child() as child:
        assert len(token.view()._children) == 2
    del child
    closed = token.child()
    closed.close()
    closed.close()
    token.child()
    gc.collect()
    assert len(token.view()._children) == 1
    token.cancel()
    assert held.is_cancelled
    assert not closed.is_cancelled


def test_a_closed_child_may_be_used_on_its_own(token: CancellationToken) -> None:
    child = token.child()
    child.close()
    assert child.cancel() is True
    token.cancel()
    assert child.reset() is True
    assert not child.is_cancelled


@pytest.mark.parametrize("hold", [CancellationToken.view, lambda child: child.on_cancel(lambda: None)])
def test_a_view_or_registration_keeps_a_child_reachable(
    token: CancellationToken, hold: Callable[[CancellationToken], object]
) -> None:
    part = hold(token.child())
    gc.collect()
    token.cancel()
    assert part.is_cancelled if isinstance(part, CancellationView) else part.close() is False


# ── Callbacks ─────────────────────────────────────────────────────────────────────────────────────


def test_callbacks_run_in_order_in_the_cancelling_thread_and_not_again(token: CancellationToken) -> None:
    runs: list[tuple[str, int]] = []
    for name in "abc":
        token.on_cancel(lambda name=name: runs.append((name, threading.get_ident())))
    token.cancel()
    token.reset()
    token.cancel()
    assert runs == [(name, threading.get_ident()) for name in "abc"]


def test_registering_with_a_cancelled_token_runs_the_callback_at_once(token: CancellationToken) -> None:
    runs: list[int] = []
    token.cancel()
    registration = token.on_cancel(lambda: runs.append(1))
    assert runs == [1]
    assert registration.close() is False


def test_a_closed_registration_never_runs(token: CancellationToken) -> None:
    runs: list[int] = []
    registration = token.on_cancel(lambda: runs.append(1))
    with token.on_cancel(lambda: runs.append(2)):
        pass
    assert (registration.close(), registration.close()) == (True, False)
    token.cancel()
    assert runs == []


def test_a_callback_may_close_one_that_comes_after_it(token: CancellationToken) -> None:
    runs: list[object] = []
    token.on_cancel(lambda: runs.append(later.close()))
    later = token.on_cancel(lambda: runs.append("later"))
    token.cancel()
    assert runs == [True]


def test_a_raising_callback_is_logged_and_stops_no_other(token: CancellationToken) -> None:
    runs: list[int] = []
    token.on_cancel(lambda: runs.append(1 // 0))
    token.on_cancel(lambda: runs.append(2))
    with capture_logs() as logs:
        assert token.cancel() is True
    assert runs == [2]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("cancellation.callback_failed", "error")
    ]


def test_an_interrupted_callback_stops_no_other(token: CancellationToken) -> None:
    runs: list[int] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    token.on_cancel(interrupted)
    token.on_cancel(lambda: runs.append(2))
    with pytest.raises(KeyboardInterrupt):
        token.cancel()
    assert (runs, token.is_cancelled) == ([2], True)


def test_a_slow_callback_keeps_no_waiter_waiting(token: CancellationToken) -> None:
    woken = threading.Event()
    seen: list[bool] = []
    token.on_cancel(lambda: seen.append(woken.wait(LONG)))  # registered before any thread waits
    child = token.child()

    async def wait() -> None:
        await child.wait_async()
        woken.set()

    async def main() -> None:
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        cancelling = in_thread(token.cancel)
        await waiting
        cancelling.join(LONG)

    asyncio.run(main())
    assert seen == [True]


# ── Signals and finalizers ────────────────────────────────────────────────────────────────────────


def test_a_signal_handler_that_lands_in_the_lock_may_read_register_and_close(
    token: CancellationToken,
) -> None:
    child = token.child()
    seen: list[object] = []

    def handler(_number: int, _frame: FrameType | None) -> None:
        seen.append((token.is_cancelled, token.reason))
        seen.append(token.on_cancel(lambda: None).close())
        child.close()

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with token._lock:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    token.cancel()
    assert seen == [(False, None), True]
    assert not child.is_cancelled


# ── asyncio ───────────────────────────────────────────────────────────────────────────────────────


def test_a_cancel_from_another_thread_wakes_a_task_of_that_generation(token: CancellationToken) -> None:
    async def main() -> str | None:
        run = token.view()
        waiting = asyncio.create_task(run.wait_async())
        await asyncio.sleep(0)
        in_thread(lambda: (token.cancel("stop"), token.reset()))
        await asyncio.wait_for(waiting, LONG)
        return run.reason

    assert asyncio.run(main()) == "stop"


def test_waiting_for_a_cancelled_generation_returns(token: CancellationToken) -> None:
    token.cancel()
    asyncio.run(asyncio.wait_for(token.wait_async(), LONG))


def test_a_cancelled_task_leaves_nothing_behind(token: CancellationToken) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(token.wait_async(), 0.001)

    asyncio.run(main())
    assert not token.view()._wakers


def test_a_task_may_be_cancelled_in_the_turn_in_which_it_is_woken(token: CancellationToken) -> None:
    complaints: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        waiting = asyncio.create_task(token.wait_async())
        await asyncio.sleep(0)
        token.cancel()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0)

    asyncio.run(main())
    assert complaints == []


def test_a_loop_closed_under_its_waiters_neither_leaks_nor_breaks_a_cancel(token: CancellationToken) -> None:
    def abandon() -> asyncio.Task[None]:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: None)  # it reports that a pending task was destroyed
        task = loop.create_task(token.wait_async())
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        return task

    abandon()
    gc.collect()
    assert not token.view()._wakers
    held = abandon()
    with capture_logs() as logs:
        assert token.cancel() is True
    assert (held.done(), logs) == (False, [])
    del held
    gc.collect()
