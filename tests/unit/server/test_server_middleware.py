"""Each gate by itself: what it lets through, and what it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cleveragents.core.errors import DatabaseUnreachable, Fault, TooManyRequests, UnknownUser
from cleveragents.core.identifiers import UlidSource
from cleveragents.server.middleware.body import UNAUTHENTICATED_BYTES, BodyLimits
from cleveragents.server.middleware.identity import TokenBuckets
from cleveragents.server.middleware.origin import HostCheck, OriginCheck, allowed_names, is_loopback
from cleveragents.server.middleware.responses import RequestLog, SecurityHeaders
from cleveragents.server.middleware.wire import address_of
from cleveragents.server.problems import Refused
from cleveragents.server.service import ShutdownSignal
from cleveragents.testing.clock import FakeClock


def scope_of(path: str = "/api/x", method: str = "GET", **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "headers": named, "client": ("10.0.0.1", 5)}


def ask(app: ASGIApp, scope: Scope, pieces: Sequence[bytes] = (b"",)) -> list[Message]:
    """Return the application's response to a body in these chunks."""
    sent: list[Message] = []
    left = list(pieces)

    async def receive() -> Message:
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body."""
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def raising(error: Exception, *, late: bool = False) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if late:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    return app


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.:8420", "127.0.0.1:1", "[::1]:8420", "agents.example", "agents.example:443"],
)
def test_a_request_to_a_name_of_the_server_passes(host: str) -> None:
    gate = HostCheck(echo, allowed_names("127.0.0.1", "agents.example, other.example"), any_address=False)
    assert ask(gate, scope_of(host=host))[0]["status"] == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "evil.example:8420",
        "10.0.0.1",
        "[::2]",
        "127.0.0.1@evil",
        "127.0.0.1:evil",
        "[::1]evil.example",
        "[::1",
    ],
)
def test_a_request_to_any_other_name_is_refused(host: str) -> None:
    gate = HostCheck(echo, allowed_names("127.0.0.1", ""), any_address=False)
    with pytest.raises(Refused) as refused:
        ask(gate, scope_of(host=host))
    assert refused.value.status == 421


def test_a_request_that_names_two_hosts_or_none_is_refused() -> None:
    gate = HostCheck(echo, allowed_names("127.0.0.1", ""), any_address=True)
    twice = scope_of(host="localhost")
    twice["headers"] *= 2
    for scope in (twice, scope_of()):
        with pytest.raises(Refused):
            ask(gate, scope)


def test_on_a_network_every_address_is_the_servers_and_no_other_name_is() -> None:
    gate = HostCheck(echo, allowed_names("::", ""), any_address=True)
    for host in ("10.1.2.3:8420", "[fd00::1]"):
        assert ask(gate, scope_of(host=host))[0]["status"] == 200
    with pytest.raises(Refused):
        ask(gate, scope_of(host="evil.example"))


def test_loopback_hosts_are_recognised() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "agents.example"]))


def known(**headers: str) -> Scope:
    """A request of a user."""
    return {**scope_of(**headers), "state": {"user": object()}}


def test_a_body_passes_up_to_the_limit_in_however_many_pieces() -> None:
    gate = BodyLimits(echo, 6, seconds=20.0)
    for pieces in ([b"sixsix"], [b"six", b"six"], [b"", b"sixsix", b""]):
        assert ask(gate, known(), pieces)[1]["body"] == b"sixsix"


def turn_of(user: str, **headers: str) -> Scope:
    """A request that may have attachments."""
    scope = scope_of("/api/conversations/x/turns", "POST", **headers)
    return {**scope, "state": {"user": SimpleNamespace(id=user)}}


@pytest.mark.parametrize("headers", [{"content_length": "7"}, {}], ids=["declared", "chunked"])
def test_a_user_sends_two_uploads_at_once_and_others_are_not_affected(headers: dict[str, str]) -> None:
    nested: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Send a second and a third request while the first one runs."""
        nested.append(scope["state"]["user"].id)
        if nested == ["ada"]:
            await gate(turn_of("ada", **headers), receive, send)
            await gate(turn_of("ada", content_length="6"), receive, send)
            await gate(turn_of("bob", **headers), receive, send)
        elif nested == ["ada", "ada"]:
            with pytest.raises(Refused) as refused:
                await gate(turn_of("ada", **headers), receive, send)
            assert refused.value.status == 429

    gate = BodyLimits(app, 6, seconds=20.0)
    for _ in range(2):  # a place is given back
        nested.clear()
        ask(gate, turn_of("ada", **headers))
        assert nested == ["ada", "ada", "ada", "bob"]


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    async def unread() -> Message:
        raise AssertionError("it was read")

    for length in ("7", "-1", "x"):
        with pytest.raises(Refused) as refused:
            asyncio.run(BodyLimits(echo, 6, seconds=20.0)(known(content_length=length), unread, unread))
        assert refused.value.status == 413


def test_a_body_without_a_declared_size_is_limited() -> None:
    with pytest.raises(Refused) as refused:
        ask(BodyLimits(echo, 6, seconds=20.0), known(), [b"four", b"four", b"never read"])
    assert refused.value.status == 413


def test_of_a_body_that_never_ends_a_bounded_part_is_read() -> None:
    read: list[int] = []

    async def endless() -> Message:
        read.append(10)
        return {"type": "http.request", "body": b"x" * 10, "more_body": True}

    with pytest.raises(Refused):
        asyncio.run(BodyLimits(echo, 100, seconds=20.0)(known(), endless, endless))
    assert 100 < sum(read) <= 1000


def test_a_route_cannot_respond_after_its_body_was_refused() -> None:
    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await echo(scope, receive, send)
        except Exception:
            await send({"type": "http.response.start", "status": 400, "headers": []})

    with pytest.raises(Refused) as refused:
        ask(BodyLimits(stubborn, 6, seconds=20.0), known(), [b"sevenseven"])
    assert refused.value.status == 413


def test_an_answer_that_began_before_too_much_came_is_not_answered_twice() -> None:
    async def hasty(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await receive()

    assert [message["status"] for message in ask(BodyLimits(hasty, 1, seconds=20.0), known(), [b"two"])] == [
        200
    ]


def test_other_errors_than_too_large_bodies_pass_the_gate() -> None:
    with pytest.raises(UnknownUser):
        ask(BodyLimits(raising(UnknownUser("ada")), 6, seconds=20.0), known())


@pytest.mark.parametrize("pieces", [[b"x" * 20_000], [b"x" * 10_000] * 2])
def test_without_a_user_a_small_body_passes_and_a_large_one_is_refused(pieces: list[bytes]) -> None:
    gate = BodyLimits(echo, 1_000_000, seconds=20.0)
    assert ask(gate, known(), pieces)[0]["status"] == 200
    assert ask(gate, scope_of(), [b"x" * UNAUTHENTICATED_BYTES])[0]["status"] == 200
    for scope in (scope_of(), scope_of(content_length="20000")):
        with pytest.raises(Refused) as refused:
            ask(gate, scope, pieces)
        assert refused.value.status == 401


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is set by the test."""

    now = 0.0

    def time(self) -> float:
        return self.now


def ask_slowly(scope: Scope, piece: bytes, *, count: int, seconds: float) -> list[Message]:
    """As `ask`, with a body in equal chunks and a pause before each."""
    with closing(SkippingLoop()) as loop:
        sent: list[Message] = []
        left = [piece] * count

        async def receive() -> Message:
            loop.now += seconds
            await asyncio.sleep(0)
            return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}

        async def send(message: Message) -> None:
            sent.append(message)

        loop.run_until_complete(BodyLimits(echo, 1_000_000, seconds=20.0)(scope, receive, send))
        return sent


def test_a_long_upload_of_a_user_takes_as_long_as_it_makes_progress() -> None:
    answer = ask_slowly(known(), b"x" * 20_480, count=40, seconds=15.0)
    assert len(answer[1]["body"]) == 40 * 20_480


@pytest.mark.parametrize("scope", [known(), scope_of()], ids=["a user", "without a token"])
def test_a_body_that_arrives_too_slowly_is_refused(scope: Scope) -> None:
    with pytest.raises(Refused) as refused:
        ask_slowly(scope, b"x", count=100, seconds=5.0)
    assert (refused.value.status, refused.value.code) == (408, "request-timeout")


def test_without_a_token_progress_gains_no_time() -> None:
    with pytest.raises(Refused) as refused:
        ask_slowly(scope_of(), b"x" * 1024, count=10, seconds=5.0)
    assert refused.value.status == 408


def test_a_body_that_is_too_large_and_too_slow_is_refused_as_too_large() -> None:
    with pytest.raises(Refused) as refused:
        ask_slowly(scope_of(), b"x" * UNAUTHENTICATED_BYTES, count=10, seconds=4.0)
    assert refused.value.status == 401


def test_after_the_body_a_client_is_awaited_without_a_deadline() -> None:
    async def lasting(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    with closing(SkippingLoop()) as loop:
        messages: list[Message] = [{"type": "http.request"}, {"type": "http.disconnect"}]

        async def receive() -> Message:
            loop.now += 3600.0
            await asyncio.sleep(0)
            return messages.pop(0)

        async def send(message: Message) -> None:
            raise AssertionError("nothing is sent")

        messages.insert(0, {"type": "http.request", "more_body": False})
        gate = BodyLimits(lasting, 9, seconds=7200.0)
        loop.run_until_complete(gate(scope_of(), receive, send))
        assert not messages


def test_a_rate_limited_caller_waits_for_the_next_token() -> None:
    now = [100.0]
    buckets = TokenBuckets(60, lambda: now[0], burst=2)
    buckets.take("ada")
    buckets.take("ada")
    with pytest.raises(TooManyRequests) as refused:
        buckets.take("ada")
    assert refused.value.seconds == pytest.approx(1.0)
    buckets.take("bob")
    now[0] += 1.0
    buckets.take("ada")
    with pytest.raises(TooManyRequests):
        buckets.take("ada")


def test_a_bucket_is_never_fuller_than_full_and_a_clock_that_goes_back_fills_none() -> None:
    now = [100.0]
    buckets = TokenBuckets(60, lambda: now[0], burst=2)
    buckets.take("ada")
    now[0] += 3600
    buckets.take("ada")
    buckets.take("ada")
    now[0] -= 3600
    with pytest.raises(TooManyRequests):
        buckets.take("ada")


def test_however_many_ask_a_bounded_number_is_remembered() -> None:
    buckets = TokenBuckets(60, lambda: 0.0, burst=1, at_most=10)
    for number in range(1000):
        buckets.take(str(number))
    assert len(buckets) == 10
    with pytest.raises(TooManyRequests):
        buckets.take("999")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8420", "http://localhost:8420"),
        ("LOCALHOST:8420", "http://localhost:8420"),
        ("agents.example", "https://agents.example"),
        ("agents.example:443", "https://agents.example"),
        ("[::1]:8420", "http://[::1]:8420"),
    ],
)
def test_the_servers_own_page_may_ask(host: str, origin: str) -> None:
    for method in ("GET", "POST"):
        assert ask(OriginCheck(echo), scope_of(method=method, host=host, origin=origin))[0]["status"] == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:3000",
        "http://localhost:8420.evil.example",
        "http://evil.example@localhost:8421",
        "file://",
        "http://localhost:x",
        "http://",
    ],
)
def test_no_other_page_may_ask(origin: str) -> None:
    for method, path in (("GET", "/api/x"), ("POST", "/api/x"), ("DELETE", "/api/x"), ("GET", "/metrics")):
        with pytest.raises(Refused) as refused:
            ask(OriginCheck(echo), scope_of(path, method, host="localhost:8420", origin=origin))
        assert refused.value.status == 403


def test_an_invalid_host_has_no_origin() -> None:
    with pytest.raises(Refused):
        ask(OriginCheck(echo), scope_of(host="localhost:x", origin="http://localhost:x"))


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_cross_site_request_is_refused(site: str) -> None:
    with pytest.raises(Refused):
        ask(OriginCheck(echo), scope_of(host="localhost", sec_fetch_site=site))
    for fine in ("same-origin", "none"):
        assert ask(OriginCheck(echo), scope_of(host="localhost", sec_fetch_site=fine))
    assert ask(OriginCheck(echo), scope_of("/plans/1", host="localhost", sec_fetch_site=site)), "a link"
    with pytest.raises(Refused):
        ask(OriginCheck(echo), scope_of("/plans/1", "POST", host="localhost", sec_fetch_site=site))


def test_expected_errors_have_details_and_faults_only_a_request_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(Fault):
        def __str__(self) -> str:
            return "the index is broken"

    for error, status, said in (
        (UnknownUser("ada"), 404, "ada"),
        (TooManyRequests(0.2), 429, "too many"),
        (DatabaseUnreachable("postgresql://x", "gone"), 503, "cannot reach its database"),
        (Refused(418, "teapot", "no coffee"), 418, "no coffee"),
        (Broken(), 500, "broken"),
        (ValueError("s3cret inside"), 500, "internal-error"),
    ):
        account = RequestLog(raising(error), FakeClock(), UlidSource())
        start, body = ask(account, scope_of())
        headers = dict(start["headers"])
        assert start["status"] == status
        assert said in body["body"].decode()
        assert b"s3cret" not in body["body"]
        assert b"Traceback" not in body["body"]
        if status == 429:
            assert headers[b"retry-after"] == b"1"
        if isinstance(error, ValueError):
            assert headers[b"x-request-id"] in body["body"]
            assert "s3cret inside" in capsys.readouterr().out


def test_half_an_answer_is_cut_off_rather_than_completed_with_another() -> None:
    for error in (UnknownUser("ada"), ValueError("x")):
        with pytest.raises(type(error)):
            ask(RequestLog(raising(error, late=True), FakeClock(), UlidSource()), scope_of())


def test_gates_let_pass_what_is_no_request() -> None:
    heard: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append(scope["type"])

    gates: list[Any] = [
        RequestLog(app, FakeClock(), UlidSource()),
        SecurityHeaders(app),
        HostCheck(app, (), any_address=False),
        BodyLimits(app, 1, seconds=20.0),
        OriginCheck(app),
    ]
    for gate in gates:
        ask(gate, {"type": "lifespan"})
    assert heard == ["lifespan"] * len(gates)


def test_of_an_address_that_one_machine_has_many_of_the_network_counts() -> None:
    def of(host: str | None) -> str:
        return address_of({"client": None if host is None else (host, 1)})

    assert of("2001:db8::1") == of("2001:db8::2") == "2001:db8::/64"
    assert of("2001:db8:0:1::1") != of("2001:db8::1")
    assert (of("10.0.0.1"), of("::1"), of("fe80::1%eth0")) == ("10.0.0.1", "::1", "fe80::/64")
    assert (of("testclient"), of(None)) == ("testclient", "unknown")


def test_stop_listeners_are_called_once() -> None:
    stopping, heard = ShutdownSignal(), []
    stopping.on_begin(lambda: heard.append("one"))
    stopping.on_begin(lambda: heard.append("two"))()
    assert not stopping.begun
    stopping.begin()
    stopping.begin()
    assert stopping.begun
    stopping.on_begin(lambda: heard.append("late"))()
    assert heard == ["one", "late"]
