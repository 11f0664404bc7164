"""Responses to plans over HTTP: roles, and races between users."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import httpx
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from cleveragents.api.actors import graphs_of
from cleveragents.api.keyed_lock import KeyedLock
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.core.errors import SandboxBusy
from cleveragents.models.model.budget import BudgetLimits, Spend
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.sandboxes import rows as sandbox_rows
from tests.actor_plan_bench import rule, says
from tests.conditions import wait_until
from tests.server_plan_bench import PlanServer, plan_server

COMMAND = {"action": "builtin/command", "arguments": {"argv": ["true"]}, "resource": "shop"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("server"), sandbox__isolation="off") as server:
        yield server


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    """One without a worker."""
    with plan_server(tmp_path_factory.mktemp("idle"), works=False) as server:
        yield server


def at_once(*asks: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """Run all calls in their own threads, which start together."""
    ready = threading.Barrier(len(asks))
    answers: list[httpx.Response | None] = [None] * len(asks)

    def ask(place: int) -> None:
        ready.wait(30)
        answers[place] = asks[place]()

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(asks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = [answer for answer in answers if answer is not None]
    assert len(found) == len(asks)
    return found


def posts(clients: Sequence[TestClient], *paths: str) -> list[httpx.Response]:
    def ask(client: TestClient, path: str) -> Callable[[], httpx.Response]:
        return lambda: client.post(f"/api{path}", json={})

    return at_once(*(ask(client, path) for client, path in zip(clients, paths, strict=True)))


def judged(answers: Sequence[httpx.Response]) -> list[tuple[int, str | None]]:
    """Statuses and codes, the one that was done first."""
    return sorted((answer.status_code, answer.json().get("code")) for answer in answers)


@pytest.mark.parametrize("verbs", [("approve", "approve"), ("approve", "deny"), ("cancel", "cancel")])
def test_of_two_simultaneous_responses_the_second_is_refused(
    server: PlanServer, verbs: tuple[str, str]
) -> None:
    plan = server.asking("two")
    clients = [server.bench.operator, server.bench.admin]
    answers = posts(clients, *(f"/plans/{plan['id']}/{verb}" for verb in verbs))
    assert judged(answers) == [(200, None), (409, "plan-error")]
    (winner,) = [verb for verb, answer in zip(verbs, answers, strict=True) if answer.status_code == 200]
    wanted = {"approve": "complete", "deny": "errored", "cancel": "cancelled"}[winner]
    assert server.rested(plan)["state"] == wanted


def test_the_audit_log_names_the_user_who_approved(server: PlanServer) -> None:
    plan = server.asking("two")
    server.post(f"/plans/{plan['id']}/deny", {"call": 1})
    server.rested(plan)
    (given,) = server.get("/events", type="approval.given", subject=plan["id"], after=0)["items"]
    assert (given["facts"]["approval"], given["facts"]["by"]) == ("denied", "operator")


def test_the_log_says_who_decided_whatever_it_was(server: PlanServer) -> None:
    plan = server.rested(server.command("echo who > who.txt", apply="review"))
    where = f"/plans/{plan['id']}"
    server.post(f"{where}/review", {"reject": ["who.txt"]})
    server.post(f"{where}/reject")
    assert server.bench.admin.delete(f"/api{where}", params={"force": True}).status_code == 204
    found = server.get("/events", subject=plan["id"], after=0)["items"]
    by = [(event["type"], event["facts"].get("by")) for event in found]
    assert by[0] == ("plan.created", "operator")
    assert [who for kind, who in by if kind == "review.changed"] == ["operator"]
    assert ("plan.deleted", "admin") in by
    # A worker has no acting user.
    assert {who for kind, who in by if kind == "tool_call.started"} == {None}
    moved = [event["facts"] for event in found if event["type"] == "plan.moved"]
    assert [facts["by"] for facts in moved if facts["state"] == "rejected"] == ["operator"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {**COMMAND, "checks": ["true", "a\0b"]}),
        ("", {**COMMAND, "invariants": ["a\0b"]}),
        ("/{plan}/apply", {"commit": "a\0b"}),
        ("/{plan}/cancel", {"reason": "a\0b"}),
    ],
)
def test_a_text_that_no_program_takes_is_refused_before_anything_is_made(
    idle: PlanServer, path: str, body: dict[str, object]
) -> None:
    plan = idle.parts.lifecycle.create(PlanDraft("goal", "builtin/command", "/nowhere", project="team"))
    refused = idle.post(f"/plans{path.format(plan=plan.id)}", body, 422)
    assert "must not contain NUL" in refused["detail"]


def test_a_result_is_applied_once_for_all_callers(server: PlanServer) -> None:
    plan = server.rested(server.command("echo once > once.txt", apply="review"))
    where = f"/plans/{plan['id']}/apply"
    answers = posts([server.bench.operator, server.bench.admin, server.bench.operator], where, where, where)
    statuses = sorted(answer.status_code for answer in answers)
    # A request after the apply is refused and creates no job.
    assert statuses == [202, 409, 409], [answer.text for answer in answers]
    (job,) = [answer.json() for answer in answers if answer.status_code == 202]
    assert server.done(job)["state"] == "succeeded"
    again = server.post(where, status=409)
    assert "already applied" in again["detail"]


def test_a_queued_action_is_not_offered_again(idle: PlanServer) -> None:
    container = idle.bench.container
    with WorkerParts(container).start(name="one plan", concurrency=1):
        plan = idle.rested(idle.command("echo later > later.txt", apply="review"))
    where = f"/plans/{plan['id']}"
    assert "apply" in plan["can"]
    job = idle.post(f"{where}/apply", status=202)
    assert "apply" not in idle.get(where)["can"]
    assert "already" in idle.post(f"{where}/apply", status=409)["detail"]
    idle.post(f"/jobs/{job['id']}/cancel")
    assert "apply" in idle.get(where)["can"]


def test_a_plan_that_runs_is_stopped_and_a_second_cancel_says_so(server: PlanServer) -> None:
    plan = server.command("trap '' TERM; sleep 600")
    where = f"/plans/{plan['id']}"
    wait_until(lambda: any(call["state"] == "started" for call in server.get(where)["calls"]))
    server.post(f"{where}/cancel", {"reason": "enough"})
    assert "already" in server.post(f"{where}/cancel", {"reason": "more"}, 409)["detail"]
    stopped = server.rested(plan)
    assert (stopped["state"], stopped["error"]) == ("cancelled", "cancelled: enough (operator)")
    assert stopped["can"] == ["delete"]
    assert "already" in server.post(f"{where}/cancel", status=409)["detail"]
    _remove_its_sandbox(server, plan["id"])


def _remove_its_sandbox(server: PlanServer, plan_id: str) -> None:
    """One that another machine has is not said to be gone."""
    sandboxes, database = server.parts.sandboxes, server.bench.container.database
    path, row = f"/api/plans/{plan_id}/sandbox", sandboxes.row(plan_id)
    assert row is not None
    far = replace(row, home="elsewhere")
    database.write(lambda connection: sandbox_rows.put(connection, far))
    refused = server.bench.operator.delete(path)
    assert (refused.status_code, "another machine" in refused.json()["detail"]) == (409, True)
    database.write(lambda connection: sandbox_rows.put(connection, row))
    assert server.bench.operator.delete(path).status_code == 204
    assert (sandboxes.row(plan_id), row.directory.exists()) == (None, False)


def test_a_plan_that_is_done_keeps_its_result_when_a_cancel_comes_late(server: PlanServer) -> None:
    plan = server.rested(server.command("echo kept > kept.txt", apply="review"))
    where = f"/plans/{plan['id']}"
    assert "cancel" not in plan["can"]
    refused = server.post(f"{where}/cancel", status=409)
    assert [remedy["action"] for remedy in refused["remedies"]] == ["plan.reject"]
    assert server.bench.operator.delete(f"/api{where}/sandbox").status_code == 409
    after = server.get(where)
    assert (after["state"], "apply" in after["can"]) == ("complete", True)


def test_a_plan_that_no_worker_takes_says_who_is_missing_and_is_not_to_be_resumed(idle: PlanServer) -> None:
    made = idle.command("true")
    assert made["meaning"].endswith("waiting for a worker, but none is running")
    steps = [step for step, _ in made["next_steps"]]
    assert steps == ["`worker`", f"`cancel` of plan {made['id']}"]
    assert [(step["action"], step["plan"]) for step in made["steps"]] == [
        ("worker", None),
        ("plan.cancel", made["id"]),
    ]


def test_the_same_key_twice_makes_one_plan(idle: PlanServer) -> None:
    before = len(idle.get("/plans")["items"])
    key = {"Idempotency-Key": "make-it-once"}
    first, second = (idle.bench.operator.post("/api/plans", json=COMMAND, headers=key) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    assert len(idle.get("/plans")["items"]) == before + 1


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({**COMMAND, "resource": "elsewhere"}, "unknown-resource", "resource"),
        ({**COMMAND, "resource": "/etc"}, "invalid-request", "resource"),
        ({**COMMAND, "resource": "../shop"}, "invalid-request", "resource"),
        ({"resource": "shop"}, "request-refused", "goal"),
        ({"resource": "shop", "goal": "x", "arguments": {}}, "request-refused", "arguments"),
        ({**COMMAND, "invariants": [" "]}, "invalid-request", "invariants.0"),
        ({**COMMAND, "action": "builtin/nothing"}, "unknown-action", "action"),
        ({**COMMAND, "arguments": {"argv": 7}}, "invalid-arguments", "arguments.argv"),
        ({**COMMAND, "arguments": {}}, "invalid-arguments", "arguments.argv"),
        ({**COMMAND, "arguments": {"argv": ["x"], "other": 1}}, "invalid-arguments", "arguments"),
        ({**COMMAND, "actor": "/tmp/evil.yaml"}, "invalid-request", "actor"),
        ({**COMMAND, "model": "openai/gpt-4.1"}, "request-refused", "model"),
        ({**COMMAND, "limits": {"seconds": 60}}, "request-refused", "limits"),
        ({**COMMAND, "profile": "none"}, "configuration-error", "profile"),
        ({**COMMAND, "to_branch": "x"}, "request-refused", "to_branch"),
        ({**COMMAND, "queue": "mine"}, "invalid-request", "queue"),
        ({**COMMAND, "limits": {"steps": 0}}, "invalid-request", "limits.steps"),
        ({"resource": "shop", "goal": "x"}, "configuration-error", "model"),
        ({"resource": "shop", "goal": "x", "model": "nobody/nothing"}, "unknown-model", "model"),
    ],
)
def test_an_invalid_request_creates_no_plan(
    idle: PlanServer, body: dict[str, object], code: str, field: str
) -> None:
    before = len(idle.get("/plans", all=True)["items"])
    answer = idle.bench.operator.post("/api/plans", json=body)
    assert answer.json()["code"] == code, answer.text
    assert answer.status_code == (404 if code.startswith("unknown") else 422)
    (where,) = [one["where"] for one in answer.json()["errors"]]
    assert where == ["body", *field.split(".")]
    assert len(idle.get("/plans", all=True)["items"]) == before


def test_a_viewer_changes_nothing(idle: PlanServer) -> None:
    plan = idle.make(**{key: value for key, value in COMMAND.items() if key != "resource"})
    where = f"/api/plans/{plan['id']}"
    verbs = ("cancel", "resume", "approve", "deny", "apply", "undo", "reject")
    bodies = {
        "answer": {"text": "x", "question": "q"},
        "budget": {"steps": 9},
        "review": {"reject": ["a.txt"]},
        "rollback": {"checkpoint": 1},
        "resolve": {"path": "a.txt", "take": "ours"},
        "correct": {"guidance": "x"},
    }
    asks = [(f"{where}/{verb}", bodies.get(verb, {})) for verb in (*verbs, *bodies)]
    for path, body in [*asks, ("/api/plans", COMMAND)]:
        assert idle.bench.viewer.post(path, json=body).status_code == 403, path
        assert idle.bench.stranger.post(path, json=body).status_code == 401, path
    assert idle.bench.viewer.delete(where).status_code == 403
    assert idle.bench.stranger.get(where).status_code == 401
    assert idle.get(f"/plans/{plan['id']}")["state"] == "queued"


def test_a_plan_is_named_by_what_is_unambiguous_of_its_id(idle: PlanServer) -> None:
    plan = idle.make(**{key: value for key, value in COMMAND.items() if key != "resource"})
    assert idle.get(f"/plans/{plan['id'][-10:]}")["id"] == plan["id"]
    assert idle.get(f"/plans/{plan['id'].lower()}")["id"] == plan["id"]
    assert idle.bench.viewer.get("/api/plans/01").json()["code"] in ("ambiguous-plan", "unknown-plan")
    assert idle.bench.viewer.get("/api/plans/..%2f..%2fetc").status_code in (404, 422)


def test_lists_are_in_pieces_the_newest_first_and_can_be_narrowed(idle: PlanServer) -> None:
    parts = idle.parts
    idle.bench.project("other")
    made = [
        parts.lifecycle.create(PlanDraft(f"goal {n}", "builtin/command", "/nowhere", project="other"))
        for n in range(5)
    ]
    parts.lifecycle.cancel(made[0], "not wanted")
    ids = [plan.id for plan in reversed(made)]
    found: list[str] = []
    after = None
    while True:
        piece = idle.get("/plans", project="other", limit=2, **({} if after is None else {"after": after}))
        found += [row["id"] for row in piece["items"]]
        after = piece["next"]
        if after is None:
            break
    assert found == ids
    gone = idle.get("/plans", project="other", state=PlanState.CANCELLED.value)["items"]
    assert [row["id"] for row in gone] == [made[0].id]
    assert idle.get("/plans", resource="shop", project="other")["items"] == []
    assert idle.get("/plans", needs="approval")["items"] == []
    assert [row["needs"] for row in idle.get("/plans", project="other")["items"]] == [None] * 5


def test_work_that_would_be_lost_is_not_deleted_by_one_word(server: PlanServer) -> None:
    plan = server.rested(server.command("echo kept > kept.txt", apply="review"))
    where = f"/api/plans/{plan['id']}"
    refused = server.bench.operator.delete(where)
    assert (refused.status_code, refused.json()["code"]) == (409, "needs-human")
    assert server.bench.operator.delete(where, params={"force": True}).status_code == 204
    assert server.bench.viewer.get(where).status_code == 404


def test_an_action_that_is_impossible_now_is_a_conflict(idle: PlanServer) -> None:
    plan = idle.make(**{key: value for key, value in COMMAND.items() if key != "resource"})
    where = f"/plans/{plan['id']}"
    for verb, body in (
        ("approve", {}),
        ("answer", {"text": "x", "question": "q"}),
        ("apply", {}),
        ("undo", {}),
        ("reject", {}),
        ("review", {"accept": ["a.txt"]}),
    ):
        assert idle.post(f"{where}/{verb}", body, 409)["code"] == "plan-error", verb
    assert idle.bench.operator.delete(f"/api{where}").status_code == 409
    assert idle.post(f"{where}/review", {}, 422)["code"] == "request-refused"
    unnamed = idle.post(f"{where}/answer", {"text": "x"}, 422)
    assert "missing `question`" in unnamed["detail"]


def test_a_plan_that_has_not_begun_has_changed_nothing(idle: PlanServer) -> None:
    plan = idle.make(**{key: value for key, value in COMMAND.items() if key != "resource"})
    where = f"/plans/{plan['id']}"
    assert idle.get(f"{where}/diff") == {"files": [], "truncated": False, "tree": None}
    assert idle.bench.viewer.get(f"/api{where}/diff", params={"format": "patch"}).text == ""
    assert idle.get(f"{where}/calls")["items"] == []
    assert idle.get(f"{where}/graph")["actors"] == []


def test_the_node_that_asks_a_model_is_shown_and_nothing_is_guessed(idle: PlanServer) -> None:
    parts, now = idle.parts, idle.bench.container.clock.now()
    made = idle.make(goal="think", model=idle.script(rule(says("x"))))
    plan = replace(parts.plans.get(made["id"]), state=PlanState.PROCESSING)

    def running() -> list[object]:
        return [graph["running"] for graph in graphs_of(parts, plan)]

    assert running() == [None, None, None]
    named = {"actor": "builtin/executor", "node": "think.within", "model": "scripted/x"}
    parts.actor_parts.budgets.open(plan.id, BudgetLimits(), now=now)
    parts.actor_parts.budgets.reserve(plan.id, plan.id, Spend(steps=1), key="1", now=now, **named)
    assert running() == [(), ("think",), ()]
    unknown = replace(plan, action="nobody/knows")
    assert graphs_of(parts, unknown) == []


def test_a_wait_for_the_plan_lock_times_out() -> None:
    turns = KeyedLock(at_once=1, patience_seconds=0.01)
    with turns.of("one"), pytest.raises(SandboxBusy), turns.of("one"):
        raise AssertionError("two have their turn")
    with turns.of("one"):
        pass
