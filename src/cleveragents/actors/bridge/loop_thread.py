"""One event loop on one thread of its own, and the only door to it.

`asyncio.ensure_future` from a foreign thread starts nothing until the loop happens to wake, and
`Task.cancel` from one is not delivered: everything crosses here, by `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Protocol, TypeVarTuple

import structlog

from cleveragents.actors.bridge.node_threads import NodeThreads

__all__ = ["LoopTenant", "LoopThread"]

Ts = TypeVarTuple("Ts")

log = structlog.get_logger()

_LAST_ROUND_SECONDS = 0.5
"""For what is left on a loop that stops: cancelled once more, it gets this long to end."""
_STOP_SECONDS = 2.0
"""A loop that nobody blocks has ended by then: tasks, generators and threads get a last round each."""


class LoopTenant(Protocol):
    """Whose work the loop runs. Each is called once, on the loop's thread, when the loop has stopped."""

    def loop_stopping(self, asked: bool) -> None:
        """The loop stopped, `asked` by `stop` or by somebody else; a last round follows."""
        ...

    def loop_stopped(self) -> None:
        """Nothing will run on the loop any more."""
        ...


class LoopThread:
    """Serves a loop until `stop`, whatever its callbacks raise.

    Thread safety:
        Owner: the bridge. Any thread may `post` and `stop`; the loop itself is touched on its thread only.
        Lock: none; the crossing is `call_soon_threadsafe`, and `_serving` is written on the loop.
        Guarantee: a posted callback runs on the loop's thread, or `post` returns False, or the tenant
            hears `loop_stopped`; callbacks of one poster run in the order in which it posted them.
    Cancel safety: `stop` may be given up and called again; the loop stops all the same.
    """

    def __init__(self, name: str, tenant: LoopTenant, threads: NodeThreads) -> None:
        self._name = name
        self._tenant = tenant
        self._threads = threads
        self._serving = True
        # Callbacks run in a context of nobody's, or a run submitted by a node would start inside that
        # node's context. They run one at a time, so they can share it.
        self._context = contextvars.Context()
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(threads)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def post(self, callback: Callable[[*Ts], object], *args: *Ts) -> bool:
        """Runs the callback on the loop, soon; False when the loop is gone."""
        try:
            self.loop.call_soon_threadsafe(callback, *args, context=self._context)
        except RuntimeError:  # what asyncio raises for a closed loop
            return False
        return True

    def is_current(self) -> bool:
        """Whether the caller is on the loop's own thread, where waiting for it would never end."""
        return threading.get_ident() == self._thread.ident

    def stop(self) -> None:
        """Asks the loop to stop, once; returns when its thread has ended, or after two seconds."""
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
                # asyncio lets these two through, and ends the loop. A node's wish to exit is the answer
                # of its run, which carries it; the other runs go on.
                log.warning("loop.exit_refused", loop=self._name, error=repr(error))
            else:
                return

    def _last_round(self) -> None:
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        try:
            self.loop.run_until_complete(_wind_up(self.loop, left))
        except BaseException:  # the loop ends here, whatever anybody still raises on it
            log.exception("loop.last_round_failed", loop=self._name)


async def _wind_up(loop: asyncio.AbstractEventLoop, left: set[asyncio.Task[object]]) -> None:
    if left:
        await asyncio.wait(left, timeout=_LAST_ROUND_SECONDS)
    await asyncio.wait_for(loop.shutdown_asyncgens(), _LAST_ROUND_SECONDS)
    await asyncio.sleep(0)  # callbacks of what ended last
