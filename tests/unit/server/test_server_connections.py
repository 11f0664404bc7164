"""Connections without a token: bounded in number, in time and in memory, on real sockets.

One application for all tests, behind deadlines of a fraction of a second, or of minutes where connections
are counted. Addresses of 127.0.0.0/8 stand for peers elsewhere; 127.0.0.1 stands for a proxy, which has no
limit of its own.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from urllib.parse import urlsplit

import httpx
import pytest
from msgspec.structs import replace
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.server import ServerState

from cleveragents.server.connections import HttpConnection, ServingConfig
from tests.live_server import served, stream
from tests.server_bench import ServerBench, server_bench

SECONDS = 20.0
LARGE = 32 << 20
"""More than the kernel's buffers of a connection hold."""
LIMIT = 24
LIMIT_OF_ADDRESS = 6
HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    terms = {
        "server__header_seconds": 0.4,
        "server__body_seconds": 0.4,
        "server__stalled_seconds": 0.4,
        "server__connections": LIMIT,
        "server__connections_per_address": LIMIT_OF_ADDRESS,
        "server__requests_per_minute": 1_000_000,
    }
    with server_bench(tmp_path_factory.mktemp("server"), **terms) as opened:
        large = Route("/large", lambda request: Response(bytes(LARGE)))
        opened.app.router.routes.insert(0, large)
        yield opened


@pytest.fixture(scope="module")
def base(bench: ServerBench) -> Iterator[str]:
    with served(bench) as address:
        yield address


@pytest.fixture
def peers(base: str) -> Iterator[Peers]:
    with ExitStack() as stack:
        yield Peers(urlsplit(base).port or 0, stack)


@pytest.fixture(scope="module")
def patient_base(bench: ServerBench) -> Iterator[str]:
    """The same application behind connections that are closed for their number only."""
    settings = bench.container.settings.server
    with served(bench, replace(settings, header_seconds=600.0, stalled_seconds=600.0)) as address:
        yield address


@pytest.fixture
def patient_peers(patient_base: str) -> Iterator[Peers]:
    with ExitStack() as stack:
        yield Peers(urlsplit(patient_base).port or 0, stack)


class Peers:
    """Sockets of clients, closed after the test."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._port = port
        self._stack = stack

    def open(self, sent: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self._port), SECONDS, (address, 0))
        self._stack.enter_context(opened)
        opened.sendall(sent)
        return opened


def read_all(peer: socket.socket, *, trickling: bool = False) -> bytes:
    """Return what the server sends before it closes the connection, while sending a byte now and then."""
    pieces: list[bytes] = []
    ends = time.monotonic() + SECONDS
    with suppress(ConnectionError):
        while True:
            assert time.monotonic() < ends, "the server waits for ever"
            if trickling and not select.select([peer], [], [], 0.02)[0]:
                # The server may close the connection just now: what it has sent is read below.
                with suppress(ConnectionError):
                    peer.sendall(b"x")
            elif piece := peer.recv(1 << 20):
                pieces.append(piece)
            else:
                break
    return b"".join(pieces)


def answer_in(sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a response."""
    head, _, body = sent.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(status.split()[1]), {name.lower(): value for name, _, value in pairs}, body


def problem_of(peer: socket.socket, *, trickling: bool = False) -> tuple[int, str]:
    """Status and code of a problem, after which the server closes the connection."""
    status, headers, body = answer_in(read_all(peer, trickling=trickling))
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    told = json.loads(body)
    assert told["status"] == status
    return status, told["code"]


def test_headers_that_never_end_are_refused_and_the_connection_is_closed(peers: Peers) -> None:
    slow = [peers.open(HALF) for _ in range(12)]
    assert {problem_of(one) for one in slow} == {(408, "request-timeout")}


def test_a_connection_that_sends_nothing_is_closed(peers: Peers) -> None:
    silent = [peers.open() for _ in range(6)]
    assert {read_all(one) for one in silent} == {b""}


def test_a_byte_now_and_then_does_not_extend_the_deadline_of_headers(peers: Peers) -> None:
    assert problem_of(peers.open(HALF), trickling=True) == (408, "request-timeout")


def test_the_headers_of_a_later_request_have_a_deadline_too(peers: Peers) -> None:
    kept = peers.open(WHOLE)
    answered = b""
    while not answered.endswith(b'{"status":"ok"}'):
        answered += kept.recv(65_536)
    kept.sendall(HALF)
    assert problem_of(kept, trickling=True) == (408, "request-timeout")


@pytest.mark.parametrize(
    "length", [b"Content-Length: 4000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n2\r\n"]
)
def test_a_body_that_never_ends_is_refused_with_the_reason(peers: Peers, length: bytes) -> None:
    assert problem_of(peers.open(POST + length + b'{"')) == (408, "request-timeout")


def test_the_body_of_a_known_user_has_a_deadline_too(peers: Peers, bench: ServerBench) -> None:
    token = f"Authorization: Bearer {bench.tokens['operator']}\r\nContent-Length: 9\r\n\r\n"
    assert problem_of(peers.open(POST + token.encode() + b"{")) == (408, "request-timeout")


def test_a_large_body_without_a_token_is_refused_before_it_is_read(peers: Peers) -> None:
    assert problem_of(peers.open(POST + b"Content-Length: 900000\r\n\r\n")) == (401, "not-authenticated")


def test_a_large_body_of_unknown_length_without_a_token_is_refused(peers: Peers) -> None:
    piece = b"5000\r\n" + b"x" * 0x5000 + b"\r\n"
    large = peers.open(POST + b"Transfer-Encoding: chunked\r\n\r\n" + piece)
    assert problem_of(large) == (401, "not-authenticated")


def test_a_known_user_may_send_more_than_a_request_without_a_token(base: str, bench: ServerBench) -> None:
    yaml = "name: team/x\n" + "# more\n" * 5_000
    token = {"Authorization": f"Bearer {bench.tokens['operator']}"}
    told = httpx.post(f"{base}/api/actors/validation", json={"yaml": yaml}, headers=token, timeout=SECONDS)
    assert told.status_code == 200, told.text


def test_the_rest_of_a_refused_body_is_awaited_for_a_limited_time(peers: Peers) -> None:
    early = peers.open(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n")
    status, _, body = answer_in(read_all(early, trickling=True))
    assert (status, body) == (200, b'{"status":"ok"}')


def test_a_client_that_reads_nothing_is_disconnected(peers: Peers, bench: ServerBench) -> None:
    before = closed(bench, "response-timeout")
    stalled = peers.open(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    ends = time.monotonic() + SECONDS
    while closed(bench, "response-timeout") == before:
        assert time.monotonic() < ends, "the server waits for ever"
        select.select([], [], [], 0.02)
    assert len(read_all(stalled)) < LARGE


class SlowReader(asyncio.Transport):
    """A transport with that much to send at each look."""

    def __init__(self, unsent: Iterable[int]) -> None:
        super().__init__()
        self._unsent = iter(unsent)
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return next(self._unsent)

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("unsent", "ends"), [([90, 80, 70, 60, 50, 40, 90, 80], False), ([90, 80, 80, 85, 99, 99, 99], True)]
)
def test_a_client_that_reads_slowly_is_served_as_long_as_it_reads(
    bench: ServerBench, unsent: list[int], ends: bool
) -> None:
    config = ServingConfig(bench.app, bench.container.settings.server, lifespan="off")
    with closing(asyncio.new_event_loop()) as loop:
        connection = HttpConnection(config, ServerState(), {}, loop)
        connection.transport = reader = SlowReader(unsent)
        found = [connection.check(10.0 * number, {"response": 40.0}) for number in range(len(unsent))]
    assert found[-1] == ("response" if ends else None)
    assert reader.aborted == ends


def closed(bench: ServerBench, reason: str) -> float:
    """How many connections the server has closed for that reason."""
    name = f'cleveragents_http_connections_closed_total{{reason="{reason}"}} '
    lines = bench.app.state.meters.exposition(bench.container, None).decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_invalid_http_is_refused_as_a_problem(peers: Peers) -> None:
    assert problem_of(peers.open(b"\x16\x03\x01\x02\x00\r\n\r\n")) == (400, "invalid-request")
    assert problem_of(peers.open(b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000)) == (400, "invalid-request")
    broken = POST + b"Transfer-Encoding: chunked\r\n\r\nnot a size\r\n"
    assert problem_of(peers.open(broken)) == (400, "invalid-request")


@pytest.mark.parametrize("upgrade", ["", "Connection: Upgrade\r\nUpgrade: websocket\r\n"])
def test_a_stream_or_a_websocket_without_a_token_is_refused_at_once(peers: Peers, upgrade: str) -> None:
    asked = f"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n"
    assert answer_in(read_all(peers.open(asked.encode())))[0] == 401


def test_one_address_has_so_many_connections_and_a_new_one_closes_the_oldest(patient_peers: Peers) -> None:
    slow = [patient_peers.open(HALF, "127.0.0.2") for _ in range(LIMIT_OF_ADDRESS)]
    assert patient_peers.open(WHOLE, "127.0.0.2").recv(12) == b"HTTP/1.1 200"
    assert problem_of(slow[0]) == (503, "too-many-connections")
    assert patient_peers.open(WHOLE, "127.0.0.3").recv(12) == b"HTTP/1.1 200"


def test_a_client_that_reads_nothing_is_disconnected_at_once_where_another_needs_its_place(
    patient_peers: Peers, bench: ServerBench
) -> None:
    before = closed(bench, "evicted")
    stalled = patient_peers.open(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n", "127.0.0.5")
    assert stalled.recv(12) == b"HTTP/1.1 200"
    for _ in range(LIMIT_OF_ADDRESS):
        assert patient_peers.open(WHOLE, "127.0.0.5").recv(12) == b"HTTP/1.1 200"
    assert closed(bench, "evicted") == before + 1
    assert len(read_all(stalled)) < LARGE


def test_a_stream_ends_when_the_body_of_its_request_is_refused(
    patient_peers: Peers, bench: ServerBench
) -> None:
    token = f"Authorization: Bearer {bench.tokens['admin']}\r\n"
    asked = f"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: 9\r\n\r\n"
    status, _, sent = answer_in(read_all(patient_peers.open(asked.encode())))
    assert status == 200
    assert sent.endswith(b"0\r\n\r\n")


def test_a_flood_of_unfinished_requests_keeps_no_user_out(
    patient_peers: Peers, patient_base: str, bench: ServerBench
) -> None:
    token = {"Authorization": f"Bearer {bench.tokens['viewer']}"}
    with stream(patient_base, bench.tokens["admin"]) as streaming:
        frames = streaming.iter_lines()
        assert next(frames)
        for number in range(3 * LIMIT):
            patient_peers.open(HALF if number % 2 else POST + b"Content-Length: 4000\r\n\r\n{")
        assert httpx.get(f"{patient_base}/api/session", headers=token, timeout=SECONDS).status_code == 200
        bench.container.users.add(
            "newcomer", bench.container.users.list()[0].role, now=bench.container.clock.now()
        )
        assert any("user.added" in line for line in frames)


def test_where_every_connection_serves_a_user_a_new_one_is_refused(
    patient_peers: Peers, bench: ServerBench
) -> None:
    token = f"Authorization: Bearer {bench.tokens['admin']}\r\n"
    asked = f"GET /api/events/stream HTTP/1.1\r\nHost: localhost\r\n{token}\r\n".encode()
    streams = [patient_peers.open(asked, "127.0.0.4") for _ in range(LIMIT_OF_ADDRESS)]
    assert [one.recv(12) for one in streams] == [b"HTTP/1.1 200"] * LIMIT_OF_ADDRESS
    assert problem_of(patient_peers.open(b"", "127.0.0.4")) == (503, "too-many-connections")
    streams[0].close()
    ends = time.monotonic() + SECONDS
    while (again := patient_peers.open(WHOLE, "127.0.0.4").recv(12)) != b"HTTP/1.1 200":
        assert time.monotonic() < ends, again
