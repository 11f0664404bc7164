"""G8 for streams: a client that drops anywhere and reconnects misses nothing and sees nothing twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.types import ASGIApp

from benchmarks.bench_streams import Count
from cleveragents.access.model.user import Role, User
from cleveragents.core.errors import Closed, StoreBusy, TooManyRequests
from cleveragents.events.chain import LogRow
from cleveragents.server.streams import hub as hub_module
from cleveragents.server.streams.frames import (
    HEARTBEAT,
    FrameRing,
    OutputRing,
    SharedPages,
    event_frame,
    joined,
)
from cleveragents.server.streams.hub import EventHub
from cleveragents.server.streams.stream import EventStream, WatchedPlans
from tests.races.naive_streams import LiveOnlyStream, ReadThenSubscribeStream, SubscribeThenReadStream
from tests.stream_bench import Connection, MemoryLog, Reader

EVENTS = 4
OPENING = len(b"retry: 1000\nid: 0\n\n")
FRAME = len(b"id: 1\nevent: e\ndata: 1\n\n")

Open = Callable[[int | None], ASGIApp]


ADMIN = User("1", "admin", Role.ADMIN, datetime(2026, 1, 1, tzinfo=UTC))


async def allowed() -> User | None:
    return ADMIN


def watched(outputs: Mapping[str, int]) -> WatchedPlans:
    """Return the output of these plans, which are all in one project."""
    return WatchedPlans(dict.fromkeys(outputs, "default"), outputs)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


class Ours:
    """Our hub on this log."""

    def __init__(self, log: MemoryLog, *, most_frames: int = 8192, heartbeat: float = 15.0) -> None:
        self.hub = EventHub(
            log,
            on_commit=log.on_commit,
            most_frames=most_frames,
            coalesce_seconds=0.0,
            heartbeat_seconds=heartbeat,
        )

    def __call__(self, after: int | None, **outputs: int) -> EventStream:
        return EventStream(self.hub, after, watched(outputs), allowed, ADMIN)

    async def close(self) -> None:
        self.hub.close()
        await asyncio.to_thread(self.hub.wait_closed)


async def read_until(connection: Connection, reader: Reader, last: int) -> None:
    while reader.seen[-1:] < [last]:
        chunk = await connection.read()
        assert chunk is not None
        reader.take(chunk)


async def settled() -> None:
    """Let everything run that can, for clients that must subscribe before they get anything."""
    for _ in range(20):
        await asyncio.sleep(0)


async def dropped_at(log: MemoryLog, open_stream: Open, cut_at: int, before: int) -> list[int]:
    """Return what a client sees whose connection ends after this many bytes, and that reconnects.

    `before` of the events happen before it connects, one while it is away, the last afterwards.
    """
    start = log.end()
    reader = Reader(start)
    log.append(before)
    connection = Connection(open_stream(start))
    await settled()
    log.append(EVENTS - before)
    got = 0
    while got < cut_at:
        chunk = await connection.read()
        assert chunk is not None
        reader.take(chunk[: cut_at - got])
        got += len(chunk)
    await connection.cut()
    log.append()
    reader.opened()
    again = Connection(open_stream(reader.last))
    await settled()
    log.append()
    await read_until(again, reader, start + EVENTS + 2)
    await again.cut()
    return [position - start for position in reader.seen]


@pytest.mark.parametrize("most_frames", [1, 3, 8192])
def test_a_client_that_drops_at_any_byte_misses_nothing_and_sees_nothing_twice(most_frames: int) -> None:
    """OpenHands/software-agent-sdk#3983: a client died with its first connection, and missed events were
    lost.

    With a ring of one frame, nearly everything is read from the log itself.
    """

    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log, most_frames=most_frames)
        try:
            for cut_at in range(OPENING + EVENTS * FRAME):
                seen = await dropped_at(log, ours, cut_at, before=cut_at % (EVENTS + 1))
                assert seen == list(range(1, EVENTS + 3)), cut_at
            assert ours.hub.statistics().clients == 0
        finally:
            await ours.close()
        assert log.listeners == []

    run(scenario)


def test_a_client_that_drops_before_its_first_event_comes_back_to_where_it_was() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log)
        log.append(5)
        reader = Reader(None)
        first = Connection(ours(None))
        reader.take(await first.read() or b"")
        await first.cut()
        assert reader.last == 5
        log.append(3)
        again = Connection(ours(reader.last))
        await read_until(again, reader, 8)
        assert reader.seen == [6, 7, 8]
        await again.cut()
        await ours.close()

    run(scenario)


async def with_one_more(log: MemoryLog, open_stream: Open, when: str) -> list[int]:
    """Return what a client sees that reconnects while an event happens, before or after the log is read."""
    log.append(3)
    happened = [False]

    def happen() -> None:
        if not happened[0]:
            happened[0] = True
            log.append()

    setattr(log, when, happen)
    reader = Reader(1)
    connection = Connection(open_stream(1))
    await read_until(connection, reader, 3)
    await settled()
    log.append()
    await read_until(connection, reader, 5)
    await connection.cut()
    return reader.seen


@pytest.mark.parametrize("when", ["before_read", "after_read"])
def test_events_during_a_reconnect_are_seen_once(when: str) -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log, most_frames=2)
        try:
            assert await with_one_more(log, ours, when) == [2, 3, 4, 5]
        finally:
            await ours.close()

    run(scenario)


def test_catches_a_stream_that_reads_before_it_subscribes() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        seen = await with_one_more(log, lambda after: ReadThenSubscribeStream(log, after), "after_read")
        assert seen == [2, 3, 5]

    run(scenario)


def test_catches_a_stream_that_subscribes_before_it_reads() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        seen = await with_one_more(log, lambda after: SubscribeThenReadStream(log, after), "before_read")
        assert seen[:4] == [2, 3, 4, 4]

    run(scenario)


def test_catches_a_stream_without_a_memory() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        seen = await dropped_at(log, lambda after: LiveOnlyStream(log, after), FRAME, before=3)
        assert seen == [4, 6]

    run(scenario)


def test_a_client_that_never_reads_delays_no_other_and_loses_nothing() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log, most_frames=100)
        stuck, other = Connection(ours(0)), Connection(ours(0))
        quick = Connection(ours(0))
        reader = Reader(0)
        for _ in range(20):
            log.append(200)
            await read_until(quick, reader, log.end())
        assert reader.seen == list(range(1, 4001))
        # One chunk each, created for those two and not read, is on its way.
        assert stuck.sent + other.sent <= 4
        assert ours.hub.statistics().slowest_lag > 100
        for connection in (stuck, other):
            late = Reader(0)
            await read_until(connection, late, 4000)
            assert late.seen == reader.seen
        assert ours.hub.statistics().slowest_lag == 0
        for connection in (stuck, other, quick):
            await connection.cut()
        assert ours.hub.statistics().clients == 0
        await ours.close()

    run(scenario)


def test_clients_at_one_position_share_one_read_of_a_page() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        log.append(450)
        ours = Ours(log)
        connections = [Connection(ours(0)) for _ in range(10)]
        readers = [Reader(0) for _ in connections]
        for connection, reader in zip(connections, readers, strict=True):
            await read_until(connection, reader, 450)
        assert ours.hub.statistics().pages_read == 1
        for connection in connections:
            await connection.cut()
        await ours.close()

    run(scenario)


def test_clients_at_a_hundred_positions_share_one_read_of_the_log() -> None:
    """Reading separately, the clients read the log a hundred times, and none made progress."""

    async def scenario() -> None:
        log = MemoryLog()
        log.append(2000)
        ours = Ours(log)
        connections = [Connection(ours(after)) for after in range(0, 2000, 20)]
        readers = [Reader(after) for after in range(0, 2000, 20)]
        for connection, reader in zip(connections, readers, strict=True):
            await read_until(connection, reader, 2000)
            assert reader.seen[-2:] == [1999, 2000]
        assert ours.hub.statistics().pages_read == 4
        for connection in connections:
            await connection.cut()
        await ours.close()

    run(scenario)


def test_a_cached_last_page_does_not_hide_new_events() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        log.append(30)
        pages = SharedPages(log.frames, most_pages=2)
        assert len(await pages.after(10)) == 20
        assert await pages.after(30) == []
        log.append(5)
        assert await pages.after(30) == log.kept[30:]
        assert await pages.after(12) == log.kept[12:]
        assert await pages.after(35) == []
        log.append(1000)
        for after in (499, 999, 3, 500):
            assert await pages.after(after) == log.kept[after : after - after % 500 + 500]
        assert len(pages._pages) == 2

    run(scenario)


def test_a_stopping_server_ends_its_streams_and_admits_no_client() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log)
        connections = [Connection(ours(0)) for _ in range(3)]
        for connection in connections:
            assert b"id: 0" in (await connection.read() or b"")
        await ours.close()
        for connection in connections:
            assert await connection.read() is None
            await connection.task
        with pytest.raises(Closed):
            await Connection(ours(0)).task
        assert ours.hub.statistics().clients == 0
        assert log.listeners == []

    run(scenario)


def test_continues_after_the_log_was_unreadable_for_a_while() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log)
        connection, reader = Connection(ours(0)), Reader(0)
        log.append()
        await read_until(connection, reader, 1)
        broken = [StoreBusy(1.0), ValueError("what nobody thought of")]

        def fail() -> None:
            if broken:
                raise broken.pop()

        log.before_read = fail
        log.append(2)
        for _ in range(4):
            log.append()
        await read_until(connection, reader, 7)
        assert reader.seen == [1, 2, 3, 4, 5, 6, 7]
        await connection.cut()
        await ours.close()

    run(scenario)


def test_a_client_whose_page_cannot_be_read_must_reconnect() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        log.append(5)
        ours = Ours(log)
        quick = Connection(ours(5))
        await quick.read()

        def fail() -> None:
            raise StoreBusy(1.0)

        log.before_read = fail
        late = Connection(ours(0))
        await late.read()
        assert await late.read() is None
        await late.task
        log.before_read = lambda: None
        again, reader = Connection(ours(0)), Reader(0)
        await read_until(again, reader, 5)
        assert reader.seen == [1, 2, 3, 4, 5]
        for connection in (quick, again):
            await connection.cut()
        await ours.close()

    run(scenario)


def test_reports_a_position_that_the_log_does_not_have() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        log.append(3)
        ours = Ours(log)
        connection, reader = Connection(ours(900)), Reader(900)
        reader.take(await connection.read() or b"")
        assert (reader.last, reader.other) == (3, ['{"position":3}'])
        log.append()
        await read_until(connection, reader, 4)
        await connection.cut()
        await ours.close()

    run(scenario)


def test_a_client_that_lost_its_token_gets_only_an_error() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log)

        async def refused() -> User | None:
            return None

        connection = Connection(EventStream(ours.hub, 0, watched({}), refused, ADMIN, check_seconds=0.0))
        assert b"id: 0" in (await connection.read() or b"")
        log.append(1)
        assert b"id: 1" in (await connection.read() or b"")
        log.append(1)
        assert b"event: problem" in (await connection.read() or b"")
        assert await connection.read() is None
        await ours.close()

    run(scenario)


def test_a_quiet_stream_sends_keep_alives() -> None:
    async def scenario() -> None:
        ours = Ours(MemoryLog(), heartbeat=0.01)
        connection = Connection(ours(0))
        await connection.read()
        for _ in range(3):
            assert await connection.read() == HEARTBEAT
        await connection.cut()
        await ours.close()

    run(scenario)


async def read_output(connection: Connection, reader: Reader, last: str) -> list[str]:
    while reader.other[-1:] != [last]:
        chunk = await connection.read()
        assert chunk is not None
        reader.take(chunk)
    return reader.other


@pytest.mark.parametrize("after", [0, 3, 10, 299])
def test_output_of_a_plan_is_sent_once_from_any_cursor(after: int) -> None:
    async def scenario() -> None:
        log = MemoryLog()
        log.print("P", 10)
        log.print("Q", 2)
        ours = Ours(log)
        watching, reader = Connection(ours(0, P=after)), Reader(0)
        if after < 10:
            await read_output(watching, reader, "P-10")
        log.print("P", 290)
        log.append()
        log.print("P", 5)
        log.append()
        assert await read_output(watching, reader, "P-305") == [f"P-{n}" for n in range(after + 1, 306)]
        # A later client that has seen some of it gets the rest.
        late, other = Connection(ours(0, P=20, Q=1)), Reader(0)
        while other.other[-1:] != ["Q-2"]:
            other.take(await late.read() or b"")
        assert other.other == [*(f"P-{n}" for n in range(21, 306)), "Q-2"]
        for connection in (watching, late):
            await connection.cut()
        assert ours.hub._printed == {}
        await ours.close()

    run(scenario)


def test_a_future_cursor_does_not_block_other_readers() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        log.print("P", 2)
        ours = Ours(log)
        ahead, behind = Connection(ours(0, P=1000)), Connection(ours(0, P=2))
        reader = Reader(0)
        await behind.read()
        log.print("P")
        log.append()
        assert await read_output(behind, reader, "P-3") == ["P-3"]
        for connection in (ahead, behind):
            await connection.cut()
        await ours.close()

    run(scenario)


def test_sends_the_rest_of_output_whose_beginning_is_gone() -> None:
    ring = OutputRing(5, most_pieces=3)
    ring.extend([(8, b"8"), (9, b"9"), (9, b"again")])
    assert ring.after(5) == [(8, b"8"), (9, b"9")]
    ring.extend([(10, b"10"), (11, b"11")])
    assert ring.after(5) is None
    assert ring.after(8) == [(9, b"9"), (10, b"10"), (11, b"11")]
    assert ring.after(11) == []


def test_a_ring_accepts_only_consecutive_events() -> None:
    ring = FrameRing(5, most_frames=2, most_bytes=10)
    ring.extend(5, [b"6", b"7"])
    with pytest.raises(ValueError, match="do not follow"):
        ring.extend(8, [b"9"])
    assert ring.after(5) == (7, b"67")
    ring.extend(7, [b"8" * 9])
    assert (ring.base, ring.tip) == (6, 8)
    assert ring.after(5) is None
    assert ring.after(8) is None


def test_a_server_limits_the_number_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ours = Ours(MemoryLog())
        first = Connection(ours(0))
        await first.read()
        monkeypatch.setattr(hub_module, "_MOST_CLIENTS", 1)
        with pytest.raises(TooManyRequests):
            await Connection(ours(0)).task
        await first.cut()
        again = Connection(ours(0))
        await again.read()
        await again.cut()
        await ours.close()

    run(scenario)


def test_one_client_cannot_take_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(hub_module, "_MOST_OF_ONE", 1)
        ours = Ours(MemoryLog())
        greedy, _ = await ours.hub.join(0, {}, "ada")
        with pytest.raises(TooManyRequests):
            await ours.hub.join(0, {}, "ada")
        other, _ = await ours.hub.join(0, {}, "bob")
        ours.hub.part(greedy)
        again, _ = await ours.hub.join(0, {}, "ada")
        for client in (other, again):
            ours.hub.part(client)
        await ours.close()

    run(scenario)


def test_the_next_client_starts_a_stream_that_failed_to_start() -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log)

        log.broken = True
        with pytest.raises(StoreBusy):
            await Connection(ours(0)).task
        log.broken = False
        log.append()
        connection, reader = Connection(ours(0)), Reader(0)
        await read_until(connection, reader, 1)
        await connection.cut()
        await ours.close()

    run(scenario)


def test_a_slow_loop_is_not_closed_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = MemoryLog()
        ours = Ours(log)
        connection, reader = Connection(ours(0)), Reader(0)
        await connection.read()
        monkeypatch.setattr(hub_module, "_TAKEN_SECONDS", 0.0)
        log.append(3)
        for _ in range(200):
            await asyncio.sleep(0)
        monkeypatch.undo()
        log.append()
        await read_until(connection, reader, 4)
        assert reader.seen == [1, 2, 3, 4]
        await connection.cut()
        await ours.close()

    run(scenario)


def test_a_chunk_has_a_bound_and_at_least_one_frame() -> None:
    large = b"x" * 40_000
    assert joined(7, [large, large]) == (8, large)
    assert joined(7, [large * 3, large]) == (8, large * 3)
    row = LogRow(1, "id", "plan.moved", "half \ud800", "2026-01-01T00:00:00+00:00", "{}", "h", "h")
    assert b"half \\ud800" in event_frame(row)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_the_benchmark_counts_every_event_wherever_a_chunk_ends(size: int) -> None:
    """It once waited for minutes for an event that had come in two chunks."""
    sent = b"".join(b'id: %d\nevent: e\ndata: {"at":%d.5,"of":9}\n\n' % (n, n) for n in range(40))
    count = Count()
    oldest = [count.take(sent[start : start + size]) for start in range(0, len(sent), size)]
    assert count.events == 40
    assert size < 100 or oldest[0] == 0.5
    assert {one for one in oldest if one is not None} <= {n + 0.5 for n in range(40)}


def test_a_follower_whose_loop_is_gone_ends_by_itself() -> None:
    log = MemoryLog()
    hubs: list[EventHub] = []

    async def scenario() -> None:
        ours = Ours(log)
        hubs.append(ours.hub)
        connection = Connection(ours(0))
        await connection.read()
        await connection.cut()

    run(scenario)
    log.append()
    for thread in threading.enumerate():
        if thread.name == "event-follower":
            thread.join(30)
    assert hubs[0].closed
    assert log.listeners == []


class Interrupted(MemoryLog):
    """While the last number of a plan is looked up, something else happens on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.meanwhile: Callable[[], None] = lambda: None

    def last_output(self, plan_id: str) -> int:
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (self.meanwhile(), done.set()))
        assert done.wait(30)
        return super().last_output(plan_id)


def test_a_leaving_client_does_not_affect_a_joining_one() -> None:
    async def scenario() -> None:
        log = Interrupted(asyncio.get_running_loop())
        ours = Ours(log)
        other, _ = await ours.hub.join(0, {"Q": 0})
        log.meanwhile = lambda: ours.hub.part(other)
        connection, reader = Connection(ours(0, P=0, Q=0)), Reader(0)
        await connection.read()
        log.print("Q", 2)
        log.append()
        assert await read_output(connection, reader, "Q-2") == ["Q-1", "Q-2"]
        await connection.cut()
        assert ours.hub._printed == {}
        await ours.close()

    run(scenario)
