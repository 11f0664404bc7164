"""One event loop on its own thread, and the only way to reach it.

All calls from other threads use `call_soon_threadsafe`. (From another thread, `asyncio.ensure_future` starts
nothing until the loop happens to wake, and `Task.cancel` is not delivered.)

Synchronous nodes run on daemon threads, because a hung node must not keep the interpreter from exiting. The
default executor of a loop would wait for its threads at exit, however long that takes. It also has only `cpus
+ 4` threads, so a few hung nodes would block all others.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple

import structlog

__all__ = ["LoopTenant", "LoopThread", "NodeThreads"]


Ts = TypeVarTuple("Ts")
log = structlog.get_logger()

_LAST_ROUND_SECONDS = 0.5
"""Time for the remaining tasks of a stopping loop to end after a last cancellation."""

_STOP_SECONDS = 2.0
"""Time limit for the loop's thread to end. Only a blocked loop takes longer."""

_IDLE_SECONDS = 60.0
"""Maximum length of one wait of an idle thread. Afterwards it waits again."""
P = ParamSpec("P")
R = TypeVar("R")


class LoopTenant(Protocol):
    """The user of the loop. Each method is called once, on the loop's thread, when the loop has stopped."""

    def loop_stopping(self, asked: bool) -> None:
        """The loop stopped. `asked` is True if `stop` was called. Afterwards the loop runs once more, so that
        cancelled tasks can end.
        """
        ...

    def loop_stopped(self) -> None:
        """Nothing will run on the loop any more."""
        ...


class LoopThread:
    """Serves a loop until `stop`, whatever its callbacks raise.

    Thread safety:
        Owner: the bridge. Any thread may `post` and `stop`; the loop itself is touched on its thread only.
        Lock: none; other threads reach the loop by `call_soon_threadsafe`, and `_serving` is written on the
            loop.
        Guarantee: a posted callback runs on the loop's thread, or `post` returns False, or the tenant's
            `loop_stopped` is called; callbacks of one thread run in the order in which it posted them.
    Cancel safety: `stop` may be interrupted and called again; the loop stops in any case.
    """

    def __init__(self, name: str, tenant: LoopTenant, threads: NodeThreads) -> None:
        self._name = name
        self._tenant = tenant
        self._threads = threads
        self._serving = True
        # Callbacks run in a neutral context. Otherwise a run submitted by a node would start inside that
        # node's context. They run one at a time, so they can share it.
        self._context = contextvars.Context()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(threads)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def post(self, callback: Callable[[*Ts], object], *args: *Ts) -> bool:
        """Run the callback on the loop soon; return False if the loop is gone."""
        try:
            self.loop.call_soon_threadsafe(callback, *args, context=self._context)
        except RuntimeError:  # what asyncio raises for a closed loop
            return False
        return True

    def is_current(self) -> bool:
        """Return whether the caller is on the loop's own thread, where waiting for the loop
        would never end.
        """
        return threading.get_ident() == self._thread.ident

    def stop(self) -> None:
        """Ask the loop to stop, once. Return when its thread has ended, or after two seconds."""
        self.post(self._stop)
        self._thread.join(_STOP_SECONDS)

    def _stop(self) -> None:
        if not self._serving:  # guard: a second stop would break off the last round of the first
            return
        self._serving = False
        self.loop.stop()

    def _serve(self) -> None:
        try:
            self._run_until_stopped()
            asked = not self._serving
            self._serving = False
            self._tenant.loop_stopping(asked)
            self._last_round()
        finally:
            self._tenant.loop_stopped()
            self._threads.shutdown(seconds=_LAST_ROUND_SECONDS)
            self.loop.close()

    def _run_until_stopped(self) -> None:
        while self._serving:
            try:
                self.loop.run_forever()
            except (KeyboardInterrupt, SystemExit) as error:
                # asyncio re-raises these two and ends the loop. A node's attempt to exit becomes the answer
                # of its run; the other runs continue.
                log.warning("loop.exit_refused", loop=self._name, error=repr(error))
            else:
                return

    def _last_round(self) -> None:
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        try:
            self.loop.run_until_complete(_wind_up(self.loop, left))
        except BaseException:  # the loop ends here, whatever is still raised on it
            log.exception("loop.last_round_failed", loop=self._name)


async def _wind_up(loop: asyncio.AbstractEventLoop, left: set[asyncio.Task[object]]) -> None:
    if left:
        await asyncio.wait(left, timeout=_LAST_ROUND_SECONDS)
    await asyncio.wait_for(loop.shutdown_asyncgens(), _LAST_ROUND_SECONDS)
    await asyncio.sleep(0)  # for callbacks of the tasks that ended last


class NodeThreads(ThreadPoolExecutor):
    """The default executor of a bridge's loop. `on_call` is called with every submitted call.

    It is a `ThreadPoolExecutor` by type only, because asyncio accepts nothing else as a default; none of that
    class's state is used. Threads are created on demand, up to `bound`, and live until `shutdown`.

    Thread safety:
        Owner: the loop's thread, on which asyncio calls `submit` and `shutdown`; no other thread may.
        Lock: `_lock` guards the calls that wait, the number of idle threads and the shut-down; held for
            arithmetic only, no call runs and no thread is started under it. `_workers` is the owner's.
        Guarantee: a call runs once, or its future was cancelled before it began; at most `bound` run. A call
            waits behind others only while there are `bound` threads: whenever more calls wait than threads
            are idle, the `submit` that caused this has started a thread.
    Cancel safety: a cancelled future of a call that has begun changes nothing; the call goes on.
    """

    def __init__(self, bound: int, on_call: Callable[[Future[Any]], None]) -> None:
        self._bound = bound
        self._on_call = on_call
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._calls: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._workers: list[threading.Thread] = []
        self._is_shut_down = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run the call on an idle or new thread; queue it if `bound` threads are busy.

        Raises `RuntimeError` if a new thread is needed and the system refuses it; the call then never runs.
        """
        if self._is_shut_down:  # guard: no thread would run it
            raise RuntimeError("the threads for synchronous nodes were shut down")
        future: Future[R] = Future()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                answer = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
                raise
            else:
                future.set_result(answer)

        self._on_call(future)
        if self._enqueue(call):
            try:
                self._add_thread()
            except RuntimeError:
                if future.cancel():  # guard: another thread may have taken it
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False, seconds: float = 0.0) -> None:
        """End each thread when it becomes idle; wait for at most `seconds`. `wait` is ignored."""
        with self._lock:
            self._is_shut_down = True
            self._work.notify_all()
        give_up = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, give_up - time.monotonic()))

    def _enqueue(self, call: Callable[[], None]) -> bool:
        """Queue a call and return whether another thread is needed and allowed."""
        with self._lock:
            self._calls.append(call)
            self._work.notify()
            # A thread counts as idle until it has taken its call, so each idle thread stands for one call.
            served = len(self._calls) <= self._idle
        return not served and len(self._workers) < self._bound

    def _add_thread(self) -> None:
        worker = threading.Thread(target=self._serve, name="cleveragents-node", daemon=True)
        worker.start()
        self._workers.append(worker)

    def _serve(self) -> None:
        while (call := self._next_call()) is not None:
            with suppress(
                BaseException
            ):  # the future carries the error; a SystemExit does not end the thread
                call()
            del call  # otherwise its arguments would live until the next call

    def _next_call(self) -> Callable[[], None] | None:
        with self._lock:
            self._idle += 1
            while not self._calls:
                if self._is_shut_down:  # guard: the thread must end
                    return None
                self._work.wait(_IDLE_SECONDS)
            self._idle -= 1
            return self._calls.popleft()
