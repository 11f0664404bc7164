"""A POST with a key is carried out once, however often it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from fastapi import Request
from starlette.responses import Response, StreamingResponse
from starlette.testclient import TestClient

from cleveragents.domain.user import Role, TokenKind
from cleveragents.errors import OutcomeUnknown
from cleveragents.infrastructure.persistence.service_tables import idempotency_keys
from cleveragents.infrastructure.persistence.sql_answer_store import PATIENCE
from tests.server_bench import BASE, ServerBench, server_bench

SECONDS_LIMIT = 60.0


class Desk:
    """Routes that count what reaches them, and do as they are told."""

    def __init__(self) -> None:
        self.done = 0
        self.arrived = threading.Event()
        self.go = threading.Event()

    def work(self, request: Request, how: str = "") -> Response:
        self.done += 1
        if how == "slow":
            self.arrived.set()
            assert self.go.wait(SECONDS_LIMIT)
        if how == "fail":
            raise ValueError("it broke")
        if how == "lost":
            raise OutcomeUnknown("postgresql://agents@db.inside/agents", "the connection broke in a commit")
        if how == "refuse":
            return Response("no", 409)
        if how == "large":
            return Response(b"x" * 1_500_000)
        if how == "stream":
            return StreamingResponse(iter([b"a", b"b"]), media_type="text/event-stream")
        return Response(f"answer {self.done}", 201, {"Location": "/there"}, "text/special")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture
def desk(bench: ServerBench) -> Iterator[Desk]:
    made = Desk()
    before = [*bench.app.router.routes]
    bench.app.add_api_route("/api/desk", made.work, methods=["POST", "PUT"])
    yield made
    bench.app.router.routes[:] = before


def post(client: TestClient, key: str, how: str = "", body: bytes = b"{}", method: str = "POST") -> Any:
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    return client.request(method, "/api/desk", params={"how": how}, content=body, headers=headers)


def test_what_is_sent_again_is_answered_again_and_done_once(bench: ServerBench, desk: Desk) -> None:
    first, second = post(bench.operator, "once"), post(bench.operator, "once")
    assert desk.done == 1
    for answer in (first, second):
        assert (answer.status_code, answer.text) == (201, "answer 1")
        assert answer.headers["content-type"].startswith("text/special")
        assert answer.headers["location"] == "/there"
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["x-request-id"] != first.headers["x-request-id"]


def test_one_key_is_for_one_request_of_one_user(bench: ServerBench, desk: Desk) -> None:
    post(bench.operator, "mine")
    for answer in (post(bench.operator, "mine", body=b"[]"), post(bench.operator, "mine", "other")):
        assert (answer.status_code, answer.json()["code"]) == (422, "key-reused")
    assert post(bench.admin, "mine").text == "answer 2"
    assert post(bench.operator, "another").text == "answer 3"


def test_what_was_answered_to_a_greater_role_is_not_answered_again_to_a_smaller_one(
    bench: ServerBench, desk: Desk
) -> None:
    users, now = bench.container.users, bench.container.clock.now()
    users.add("eve", Role.ADMIN, now=now)
    _, secret = users.issue("eve", TokenKind.PROGRAM, "test", now=now)
    eve = TestClient(bench.app, BASE, headers={"Authorization": f"Bearer {secret}"})
    assert post(eve, "then").text == "answer 1"
    users.set_role("eve", Role.VIEWER, now=now)
    assert post(eve, "then").json()["code"] == "key-reused"
    assert desk.done == 1


def test_who_asks_while_it_is_being_done_is_told_to_wait(bench: ServerBench, desk: Desk) -> None:
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(post(bench.operator, "slow", "slow")))
    asking.start()
    assert desk.arrived.wait(SECONDS_LIMIT)
    again = post(bench.operator, "slow", "slow")
    assert (again.status_code, again.json()["code"]) == (409, "request-under-way")
    desk.go.set()
    asking.join(SECONDS_LIMIT)
    assert [answer.text for answer in answers] == ["answer 1"]
    assert post(bench.operator, "slow", "slow").text == "answer 1"
    assert desk.done == 1


@pytest.mark.usefixtures("plain_faults")
@pytest.mark.parametrize(("how", "status"), [("fail", 500), ("refuse", 409)])
def test_what_was_not_done_may_be_tried_again(bench: ServerBench, desk: Desk, how: str, status: int) -> None:
    assert [post(bench.operator, how, how).status_code for _ in range(2)] == [status] * 2
    assert desk.done == 2


def test_what_may_have_been_done_is_not_done_again_at_once(bench: ServerBench, desk: Desk) -> None:
    lost, again = post(bench.operator, "lost", "lost"), post(bench.operator, "lost", "lost")
    assert (lost.status_code, lost.json()["code"]) == (503, "outcome-unknown")
    assert (again.status_code, again.json()["code"]) == (409, "request-under-way")
    assert desk.done == 1


@pytest.mark.parametrize("how", ["stream", "large"])
def test_what_streams_or_is_large_is_answered_whole_and_not_kept(
    bench: ServerBench, desk: Desk, how: str
) -> None:
    first, second = post(bench.operator, how, how), post(bench.operator, how, how)
    assert first.content == second.content
    assert len(first.content) in (2, 1_500_000)
    assert desk.done == 2


def test_only_posts_of_users_have_keys(bench: ServerBench, desk: Desk) -> None:
    for client, method in ((bench.operator, "PUT"), (bench.stranger, "POST")):
        before = desk.done
        post(client, "unkept", method=method)
        post(client, "unkept", method=method)
        assert desk.done == before + 2


@pytest.mark.parametrize("key", ["", " ", "x" * 201, "a b", "a\tb"])
def test_a_key_is_a_word_of_bounded_length(bench: ServerBench, desk: Desk, key: str) -> None:
    assert post(bench.operator, key).status_code == 422
    assert desk.done == 0


def test_a_server_that_was_killed_leaves_a_key_that_works_again_after_a_while(
    bench: ServerBench, desk: Desk
) -> None:
    post(bench.operator, "killed")
    database = bench.container.database

    def age(by: timedelta) -> None:
        """As if no answer had been kept, and so long had passed."""
        gone = int((bench.container.clock.now() - by).timestamp() * 1_000_000)
        mine = idempotency_keys.c.key == sha256(b"killed").hexdigest()
        change = idempotency_keys.update().where(mine).values(answer=None, created_at=gone)
        database.write(lambda connection: connection.execute(change))

    age(PATIENCE - timedelta(minutes=1))
    assert post(bench.operator, "killed").status_code == 409
    age(PATIENCE + timedelta(seconds=1))
    assert post(bench.operator, "killed").text == "answer 2"
    assert post(bench.operator, "killed").text == "answer 2"


def test_an_answer_with_a_secret_is_given_once_and_nowhere_kept(bench: ServerBench) -> None:
    headers = {"Idempotency-Key": "token"}
    first, second = (
        bench.operator.post("/api/users/operator/tokens", json={"label": "k"}, headers=headers)
        for _ in range(2)
    )
    assert first.status_code == 201
    assert (second.status_code, second.json()["code"]) == (409, "answered-once")
    assert len([t for t in bench.container.users.tokens_of("operator") if t.label == "k"]) == 1
    with bench.container.database.read() as connection:
        kept = repr(connection.execute(idempotency_keys.select()).all())
    assert first.json()["token"].removeprefix("agents_sk_") not in kept


def test_who_is_logged_in_and_logs_in_again_with_a_key_leaves_no_cookie_behind(bench: ServerBench) -> None:
    headers = {"Idempotency-Key": "login"}
    answer = bench.operator.post("/api/session", json={"token": bench.tokens["viewer"]}, headers=headers)
    assert answer.status_code == 201
    with bench.container.database.read() as connection:
        kept = repr(connection.execute(idempotency_keys.select()).all())
    assert answer.json()["csrf"] not in kept
