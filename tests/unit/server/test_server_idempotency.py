"""A POST with a key is carried out once, however often it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from fastapi import FastAPI, Request
from msgspec.structs import replace
from starlette.responses import Response, StreamingResponse
from starlette.testclient import TestClient

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.api.plans.responses import delete
from cleveragents.api.server_requests import requested_for_all, shared_plan
from cleveragents.core.errors import OutcomeUnknown, QueueFull, UnknownPlan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.server.middleware.idempotency import claim_of
from cleveragents.server.routes.plans import NewPlan
from cleveragents.storage.idempotency import IdempotencyClaim
from cleveragents.storage.service_tables import idempotency_keys
from cleveragents.storage.sql_idempotency_store import PATIENCE
from tests.server_bench import BASE, ServerBench, server_bench

SECONDS_LIMIT = 60.0
WANTED = {
    "resource": "shop",
    "action": "builtin/command",
    "arguments": {"argv": ["true"]},
    "profile": "full-auto",
}


class Desk:
    """Routes that count their requests and respond as configured."""

    def __init__(self) -> None:
        self.done = 0
        self.arrived = threading.Event()
        self.go = threading.Event()

    def work(self, request: Request, how: str = "") -> Response:
        self.done += 1
        if how == "plan":
            return self._make(request)
        if how == "slow":
            self.arrived.set()
            assert self.go.wait(SECONDS_LIMIT)
        if how == "fail":
            raise ValueError("it broke")
        if how == "lost":
            raise OutcomeUnknown("postgresql://agents@db.inside/agents", "the connection was lost")
        if how == "refuse":
            return Response("no", 409)
        if how == "large":
            return Response(b"x" * 1_500_000)
        if how == "stream":
            return StreamingResponse(iter([b"a", b"b"]), media_type="text/event-stream")
        return Response(f"answer {self.done}", 201, {"Location": "/there"}, "text/special")

    def _make(self, request: Request) -> Response:
        """Creates a plan for the request; the first request waits for a signal before that, and fails
        after."""
        app: FastAPI = request.app
        first = self.done == 1
        if first:
            self.arrived.set()
            assert self.go.wait(SECONDS_LIMIT)
        asked = NewPlan(**WANTED).request().asked()
        plan = shared_plan(app.state.service.container, asked, by="ada", claim=claim_of(request))
        if first:
            raise ValueError("it broke")
        return Response(plan.id, 201)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server")) as made:
        made.repository("shop")
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


def test_a_repeated_request_gets_the_same_response_and_runs_once(bench: ServerBench, desk: Desk) -> None:
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


def test_a_stored_response_is_not_repeated_for_a_lower_role(bench: ServerBench, desk: Desk) -> None:
    users, now = bench.container.users, bench.container.clock.now()
    users.add("eve", Role.ADMIN, now=now)
    _, secret = users.issue("eve", TokenKind.PROGRAM, "test", now=now)
    eve = TestClient(bench.app, BASE, headers={"Authorization": f"Bearer {secret}"})
    assert post(eve, "then").text == "answer 1"
    users.set_role("eve", Role.VIEWER, now=now)
    assert post(eve, "then").json()["code"] == "key-reused"
    assert desk.done == 1


def test_a_repeated_request_waits_while_the_first_one_runs(bench: ServerBench, desk: Desk) -> None:
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
def test_a_refused_request_may_be_tried_again(bench: ServerBench, desk: Desk, how: str, status: int) -> None:
    assert [post(bench.operator, how, how).status_code for _ in range(2)] == [status] * 2
    assert desk.done == 2


def test_a_request_with_an_unknown_outcome_is_not_repeated_at_once(bench: ServerBench, desk: Desk) -> None:
    lost, again = post(bench.operator, "lost", "lost"), post(bench.operator, "lost", "lost")
    assert (lost.status_code, lost.json()["code"]) == (503, "outcome-unknown")
    assert (again.status_code, again.json()["code"]) == (409, "request-under-way")
    assert desk.done == 1


@pytest.mark.parametrize("how", ["stream", "large"])
def test_streams_and_large_responses_are_sent_whole_and_not_stored(
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


def test_a_key_of_a_killed_server_works_again_later(bench: ServerBench, desk: Desk) -> None:
    post(bench.operator, "killed")
    unanswer(bench, "killed", PATIENCE - timedelta(minutes=1))
    assert post(bench.operator, "killed").status_code == 409
    unanswer(bench, "killed", PATIENCE + timedelta(seconds=1))
    assert post(bench.operator, "killed").text == "answer 2"
    assert post(bench.operator, "killed").text == "answer 2"


@pytest.mark.parametrize("passed", [timedelta(0), PATIENCE + timedelta(seconds=1)])
def test_a_plan_is_made_once_also_when_its_server_was_killed_before_it_answered(
    bench: ServerBench, passed: timedelta
) -> None:
    key = f"plan after {passed}".replace(" ", "-")
    before = plans(bench)
    first = bench.operator.post("/api/plans", json=WANTED, headers={"Idempotency-Key": key})
    unanswer(bench, key, passed)
    second, third = (
        bench.operator.post("/api/plans", json=WANTED, headers={"Idempotency-Key": key}) for _ in range(2)
    )
    assert [answer.status_code for answer in (first, second, third)] == [201] * 3, second.text
    assert {answer.json()["id"] for answer in (first, second, third)} == plans(bench) - before
    assert {answer.headers["location"] for answer in (first, second, third)} == {first.headers["location"]}
    assert "idempotent-replayed" not in second.headers
    assert third.headers["idempotent-replayed"] == "true"


def test_a_plan_whose_server_was_killed_before_it_was_queued_is_queued_by_the_next_to_ask(
    bench: ServerBench,
) -> None:
    container, asked = bench.container, NewPlan(**WANTED).request().asked()
    new = requested_for_all(container, asked, by="ada")
    made = container.plan_parts.plans.create(new, now=container.clock.now(), claim=claim(bench, "unqueued"))
    assert made.job_id is None
    again = shared_plan(container, asked, by="ada", claim=claim(bench, "unqueued"))
    assert (again.id, again.phase_state) == (made.id, (Phase.STRATEGIZE, PlanState.QUEUED))
    assert container.jobs.get(str(again.job_id)).payload["plan_id"] == made.id
    assert shared_plan(container, asked, by="ada", claim=claim(bench, "unqueued")) == again


class Died(BaseException):
    """Instead of a kill."""


class Unmoved(SqlPlanStore):
    """Of a server that is killed when the job is there and the plan does not know of it yet."""

    def move(self, *_: object, **__: object) -> Plan:
        raise Died


def test_a_plan_whose_job_was_submitted_under_other_settings_is_found_again(bench: ServerBench) -> None:
    container, asked = bench.container, NewPlan(**WANTED).request().asked()
    lifecycle, store = container.plan_parts.lifecycle, Unmoved(container.database, container.identifiers)
    killed = replace(lifecycle, plans=store, max_parallel=lifecycle.max_parallel + 1)
    with pytest.raises(Died):
        killed.create(requested_for_all(container, asked, by="ada"), claim(bench, "resettled"))
    made = claim(bench, "resettled").made
    assert shared_plan(container, asked, by="ada", claim=claim(bench, "resettled")).id == made


def test_a_plan_that_was_made_and_deleted_is_not_made_again(bench: ServerBench) -> None:
    container, asked = bench.container, NewPlan(**WANTED).request().asked()
    made = shared_plan(container, asked, by="ada", claim=claim(bench, "deleted"))
    container.plan_parts.lifecycle.cancel(made, "not wanted")
    delete(container, made.id, force=True)
    before = plans(bench)
    with pytest.raises(UnknownPlan):
        shared_plan(container, asked, by="ada", claim=claim(bench, "deleted"))
    assert plans(bench) == before


def test_a_plan_that_found_no_room_is_made_by_the_next_to_ask(bench: ServerBench) -> None:
    container, asked = bench.container, NewPlan(**WANTED).request().asked()
    lifecycle, before = container.plan_parts.lifecycle, plans(bench)
    full = replace(lifecycle, lanes=replace(lifecycle.lanes, queue_bound=0))
    mine = claim(bench, "full")
    with pytest.raises(QueueFull):
        full.create(requested_for_all(container, asked, by="ada"), mine)
    container.answers.release(mine)
    made = shared_plan(container, asked, by="ada", claim=claim(bench, "full"))
    assert plans(bench) - before == {made.id}


def test_a_request_whose_claim_was_taken_over_creates_no_second_plan(bench: ServerBench, desk: Desk) -> None:
    before, answers = plans(bench), []
    asking = threading.Thread(target=lambda: answers.append(post(bench.operator, "paused", "plan")))
    asking.start()
    assert desk.arrived.wait(SECONDS_LIMIT)
    unanswer(bench, "paused", PATIENCE + timedelta(seconds=1))
    second = post(bench.operator, "paused", "plan")
    desk.go.set()
    asking.join(SECONDS_LIMIT)
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "request-under-way")]
    assert plans(bench) - before == {second.text}
    assert post(bench.operator, "paused", "plan").text == second.text


@pytest.mark.usefixtures("plain_faults")
def test_a_plan_created_before_a_failure_is_found_again(bench: ServerBench, desk: Desk) -> None:
    before = plans(bench)
    desk.go.set()
    assert post(bench.operator, "broken", "plan").status_code == 500
    assert {post(bench.operator, "broken", "plan").text for _ in range(2)} == plans(bench) - before


def test_a_token_is_issued_once_even_if_its_server_was_killed_before_it_responded(bench: ServerBench) -> None:
    def issue() -> Any:
        headers = {"Idempotency-Key": "lost-token"}
        return bench.operator.post("/api/users/operator/tokens", json={"label": "lost"}, headers=headers)

    assert issue().status_code == 201
    unanswer(bench, "lost-token", PATIENCE + timedelta(seconds=1))
    for again in (issue(), issue()):
        assert (again.status_code, again.json()["code"]) == (409, "answered-once")
    assert [token.label for token in bench.container.users.tokens_of("operator")].count("lost") == 1


def unanswer(bench: ServerBench, key: str, passed: timedelta) -> None:
    """As if no answer had been kept, and so long had passed."""
    then = int((bench.container.clock.now() - passed).timestamp() * 1_000_000)
    mine = idempotency_keys.c.key == sha256(key.encode()).hexdigest()
    change = idempotency_keys.update().where(mine).values(answer=None, created_at=then)
    bench.container.database.write(lambda connection: connection.execute(change))


def claim(bench: ServerBench, key: str) -> IdempotencyClaim:
    """The claim to a request with that key; every call takes over what was made."""
    begun = bench.container.answers.begin("ada", key, "request", now=bench.container.clock.now())
    assert isinstance(begun, IdempotencyClaim)
    return begun


def plans(bench: ServerBench) -> set[str]:
    return {plan.id for plan in bench.container.plan_parts.plans.list(limit=1000)}


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


def test_a_second_login_with_a_key_leaves_no_stale_cookie(bench: ServerBench) -> None:
    headers = {"Idempotency-Key": "login"}
    answer = bench.operator.post("/api/session", json={"token": bench.tokens["viewer"]}, headers=headers)
    assert answer.status_code == 201
    with bench.container.database.read() as connection:
        kept = repr(connection.execute(idempotency_keys.select()).all())
    assert answer.json()["csrf"] not in kept
