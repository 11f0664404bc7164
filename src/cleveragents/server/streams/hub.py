"""The hub of all streams of a server: it follows the log once, and each client reads at its own pace.

A client is a cursor, not a queue: unread frames are in the shared ring, or else in the database. So a client
that does not read costs nothing and delays no other client, and a client that reconnects continues at its
position, on any server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from cleveragents.access.model.user import ProjectScope
from cleveragents.core.errors import Closed, TooManyRequests
from cleveragents.server.streams.frames import HEARTBEAT, FrameRing, OutputRing, SharedPages, joined
from cleveragents.server.streams.log_follower import COALESCE_SECONDS, LogFollower, Source

__all__ = ["EventHub", "HubStatistics", "StreamClient"]

HEARTBEAT_SECONDS = 15.0

_MOST_FRAMES = 32_768
_MOST_BYTES = 16 * 1024 * 1024
_MOST_CLIENTS = 2000
_MOST_OF_ONE = 500
_PIECES = 256
_TAKEN_SECONDS = 5.0
_TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HubStatistics:
    """The number of clients, the position of the hub, and the lag of the slowest client in events."""

    clients: int
    position: int
    slowest_lag: int
    pages_read: int


@dataclass(eq=False)
class StreamClient:
    """A stream: its position in the log, and in the output of the plans it watches.

    Not thread-safe: use it on the server's loop.
    """

    hub: EventHub
    cursor: int
    outputs: dict[str, int] = field(default_factory=dict)
    user: str = ""
    scope: ProjectScope = None
    sent_at: float = 0.0
    _waiting: asyncio.Future[None] | None = None
    _woken: bool = False
    _gone: bool = False

    def leave(self) -> None:
        """End the stream: the client has disconnected."""
        self._gone = True
        self.wake()

    def narrow(self, scope: ProjectScope, plans: Collection[str]) -> None:
        """Limit the stream to events of these projects and output of these plans from now on."""
        self.scope = scope
        for plan_id in [one for one in self.outputs if one not in plans]:
            del self.outputs[plan_id]

    def wake(self) -> None:
        self._woken = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next_chunk(self) -> bytes | None:
        """Wait for the next chunk and return it; None when the stream is over."""
        while not self._gone and not self.hub.closed:
            self._woken = False
            chunk = await self._chunk()
            if chunk is not None:
                self.sent_at = self.hub.now()
                return chunk
            if not self._woken:  # guard: frames that arrived during the search would wait for the next event
                await self._wait()
        return None

    async def _wait(self) -> None:
        self._waiting = self.hub.loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    async def _chunk(self) -> bytes | None:
        while found := await self._events():
            self.cursor, chunk = found
            if chunk:
                return chunk
        for plan_id in tuple(self.outputs):
            if output := await self._output(plan_id):
                return output
        if self.hub.now() - self.sent_at >= self.hub.heartbeat_seconds:
            return HEARTBEAT
        return None

    async def _events(self) -> tuple[int, bytes] | None:
        """Return the next position and the visible frames up to it."""
        if self._gone or self.hub.closed:
            return None
        if self.cursor >= self.hub.ring.base:
            return self.hub.ring.after(self.cursor, self.scope)
        frames = await self.hub.page(self.cursor)
        return joined(self.cursor, frames, self.scope) if frames else None

    async def _output(self, plan_id: str) -> bytes | None:
        number = self.outputs[plan_id]
        pieces: Sequence[tuple[int, bytes]] | None = self.hub.printed(plan_id).after(number)
        if pieces is None:
            pieces = await self.hub.read_output(plan_id, number)
        if not pieces:
            return None
        self.outputs[plan_id] = pieces[-1][0]
        return b"".join(frame for _, frame in pieces)


class EventHub:
    """Connects one follower of the log with any number of clients.

    Thread safety:
        Owner: the application that made it closes it. Clients and hub live on one loop; the follower's
            thread calls `take_events`, `take_output` and `watched`, which pass their work to the loop.
        Lock: none: all shared state belongs to the loop, except the set of watched plans, which is replaced
            as a whole, and the last transfer, which belongs to the follower.
        Guarantee: a client gets every position after the one it named, once, in order; none waits for
            another.
    Cancel safety: the caller of `join` removes a client whose task is cancelled; nothing else is held.
    """

    def __init__(
        self,
        source: Source,
        *,
        on_commit: Callable[[Callable[[], None]], Callable[[], None]],
        most_frames: int = _MOST_FRAMES,
        coalesce_seconds: float = COALESCE_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        """`on_commit` registers a wake-up for local commits and returns a function that removes it."""
        self.closed = False
        self.ring = FrameRing(0, most_frames=most_frames, most_bytes=_MOST_BYTES)
        self._most_frames = most_frames
        self._coalesce_seconds = coalesce_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self._source = source
        self._on_commit = on_commit
        self._clients: set[StreamClient] = set()
        self._loop = asyncio.get_running_loop()
        self._follower: LogFollower | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ended: Callable[[], None] = lambda: None
        self._pages = SharedPages(source.frames)
        self._printed: dict[str, OutputRing] = {}
        self._ticking: asyncio.TimerHandle | None = None
        self._watching: Mapping[str, int] | None = None
        self._handed_over: threading.Event | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def now(self) -> float:
        return self._loop.time()

    async def join(
        self, after: int | None, outputs: Mapping[str, int], user: str = "", scope: ProjectScope = None
    ) -> tuple[StreamClient, bool]:
        """Add a client that gets the events of the projects in `scope` after the position `after`, or from
        the end of the log on if `after` is None.

        Return the client, and True if the position is not in this log, so that the client begins at the end
        of the log. Raises `TooManyRequests`. Remove the client with `part`.
        """
        theirs = sum(1 for client in self._clients if user and client.user == user)
        if theirs >= _MOST_OF_ONE:  # guard: one user must not take all places
            raise TooManyRequests(_TICK_SECONDS)
        if len(self._clients) >= _MOST_CLIENTS:
            raise TooManyRequests(_TICK_SECONDS)
        if self.closed:
            raise Closed("the server")
        await self._started()
        end = await run_in_threadpool(self._source.end)
        lasts = {
            plan_id: await run_in_threadpool(self._source.last_output, plan_id)
            for plan_id in outputs
            if plan_id not in self._printed
        }
        astray = after is not None and after > end
        cursor = end if after is None or astray else after
        client = StreamClient(self, cursor, dict(outputs), user, scope, sent_at=self.now())
        # No await in between: `part` drops the output of plans that no client watches.
        self._clients.add(client)
        for plan_id in outputs:
            if plan_id not in self._printed:
                self._printed[plan_id] = OutputRing(lasts.get(plan_id, 0), most_pieces=_PIECES)
        self._watch()
        self._tick()
        assert self._follower is not None
        self._follower.wake()
        return client, astray

    def part(self, client: StreamClient) -> None:
        """Remove the client. A second call is harmless."""
        self._clients.discard(client)
        wanted = {plan_id for other in self._clients for plan_id in other.outputs}
        for plan_id in [one for one in self._printed if one not in wanted]:
            del self._printed[plan_id]
        self._watch()

    def statistics(self) -> HubStatistics:
        tip = self.ring.tip
        lags = [max(0, tip - client.cursor) for client in self._clients]
        return HubStatistics(len(self._clients), tip, max(lags, default=0), self._pages.read_count)

    def close(self) -> None:
        """End all streams and the follower. A second call is harmless."""
        self.closed = True
        self._ended()
        if self._ticking is not None:
            self._ticking.cancel()
        for client in self._clients:
            client.wake()
        if self._follower is not None:
            self._follower.stop()

    def wait_closed(self) -> None:
        """Wait for the end of the follower's thread. Do not call it on the loop: the follower may wait for
        the loop.
        """
        if self._follower is not None:
            self._follower.close()

    # Frames that are not in the ring.

    async def page(self, after: int) -> Sequence[bytes]:
        """Return some frames after the position from the database."""
        return await self._pages.after(after)

    def printed(self, plan_id: str) -> OutputRing:
        """Return the latest output of a watched plan."""
        return self._printed[plan_id]

    async def read_output(self, plan_id: str, number: int) -> Sequence[tuple[int, bytes]]:
        """Return the output of the plan after the number from the database."""
        return await run_in_threadpool(self._source.output, plan_id, number)

    # Called by the follower's thread.

    def take_events(self, after: int, frames: Sequence[bytes]) -> bool:
        """Add the frames after the position `after`. Return whether they were accepted."""
        return self._crosses(lambda: self._publish(after, frames))

    def take_output(self, plan_id: str, pieces: Sequence[tuple[int, bytes]]) -> bool:
        return self._crosses(lambda: self._print(plan_id, pieces))

    def watched(self) -> Mapping[str, int] | None:
        """Return the watched plans with the last number of their output; None without clients."""
        return self._watching

    def _crosses(self, act: Callable[[], None]) -> bool:
        """Schedule a callback on the loop, after all earlier callbacks. Return False if it will not run.

        Waits until the previous callback has run, so that a slow loop is not flooded.
        """
        before = self._handed_over
        if before is not None and not before.wait(_TAKEN_SECONDS):
            return False
        done = threading.Event()

        def run() -> None:
            try:
                act()
            finally:
                done.set()

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:  # the loop is closed, and with it every stream
            self.closed = True
            self._ended()
            if self._follower is not None:
                self._follower.stop()
            return False
        self._handed_over = done
        return True

    def _publish(self, after: int, frames: Sequence[bytes]) -> None:
        self.ring.extend(after, frames)
        for client in self._clients:
            client.wake()

    def _print(self, plan_id: str, pieces: Sequence[tuple[int, bytes]]) -> None:
        ring = self._printed.get(plan_id)
        if ring is None:
            return  # its watchers have disconnected
        ring.extend(pieces)
        self._watch()
        for client in self._clients:
            if plan_id in client.outputs:
                client.wake()

    def _watch(self) -> None:
        """Publish the watched plans. The mapping is replaced as a whole, because another thread reads it."""
        tips = {plan_id: ring.tip for plan_id, ring in self._printed.items()}
        self._watching = tips if self._clients else None

    # Start, then once a second.

    async def _started(self) -> None:
        if self._starting is None:
            self._starting = self._loop.create_task(self._start())
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            if self._starting.done():
                self._starting = None  # the next client tries again
            raise

    async def _start(self) -> None:
        end = await run_in_threadpool(self._source.end)
        self.ring = FrameRing(end, most_frames=self._most_frames, most_bytes=_MOST_BYTES)
        follower = LogFollower(self._source, self, end, coalesce_seconds=self._coalesce_seconds)
        self._follower = follower
        self._ended = self._on_commit(follower.wake)
        follower.start()

    def _tick(self) -> None:
        """Wake clients that have received nothing for long, as long as there are clients."""
        if self._ticking is not None or self.closed or not self._clients:
            return
        self._ticking = self._loop.call_later(min(_TICK_SECONDS, self.heartbeat_seconds), self._ticked)

    def _ticked(self) -> None:
        self._ticking = None
        quiet_since = self.now() - self.heartbeat_seconds
        for client in self._clients:
            if client.sent_at <= quiet_since:
                client.wake()
        self._tick()
