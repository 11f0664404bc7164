"""Projects are tenants, live: streams of events, output, and the tasks of the Agent2Agent protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

from cleveragents.access.model.user import Role
from cleveragents.server.streams import stream as stream_module
from tests.live_server import events_in, served, stream
from tests.tenants import MEMBERS, OTHERS, OURS, SECRETS, Tenants, tenants

UNKNOWN = -32001
REFUSED = -32004
"""The protocol's errors for an unknown task and for a forbidden action."""

PUSH = {"taskId": "PLAN", "id": "1", "url": "https://agents.example"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "GetTask": ("viewer", {"id": "PLAN"}),
    "SubscribeToTask": ("viewer", {"id": "PLAN"}),
    "CancelTask": ("operator", {"id": "PLAN"}),
    "SendMessage": ("operator", {"message": {"taskId": "PLAN"}}),
    "SendStreamingMessage": ("operator", {"message": {"taskId": "PLAN"}}),
    "ListTasks": ("list", {}),
    # Nothing of a task is looked at for these.
    "CreateTaskPushNotificationConfig": ("nobody", PUSH),
    "GetTaskPushNotificationConfig": ("nobody", PUSH),
    "ListTaskPushNotificationConfigs": ("nobody", {"taskId": "PLAN"}),
    "DeleteTaskPushNotificationConfig": ("nobody", PUSH),
    "GetExtendedAgentCard": ("nobody", {}),
}
"""Every method: the role that it needs in the project of the task, and how it names one."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with tenants(tmp_path_factory.mktemp("tenants")) as made:
        yield made


@pytest.fixture(scope="module")
def base(two: Tenants) -> Iterator[str]:
    with served(two.bench) as address:
        yield address


def frames_until(answer: httpx.Response, goal_id: str) -> list[dict[str, Any]]:
    """The frames up to the event that says that this plan was made."""
    found: list[dict[str, Any]] = []
    for frame in events_in(answer):
        found.append(frame)
        data = frame.get("data")
        if isinstance(data, dict) and data.get("subject") == goal_id and frame["event"] == "plan.created":
            return found
    raise AssertionError("the stream ended before")


@pytest.mark.parametrize("name", ["beta-viewer", "beta-operator", "beta-admin"])
@pytest.mark.parametrize("replayed", [True, False])
def test_a_stream_shows_events_of_the_users_projects_alone(
    two: Tenants, base: str, name: str, replayed: bool
) -> None:
    if replayed:
        ours, theirs = two.plan(), two.plan("beta", "the other goal")
        with stream(base, two.tokens[name], "?after=0") as answer:
            frames = frames_until(answer, theirs.id)
    else:
        with stream(base, two.tokens[name]) as answer:
            ours, theirs = two.plan(), two.plan("beta", "the other goal")
            frames = frames_until(answer, theirs.id)
    text = json.dumps(frames)
    assert not [one for one in (*SECRETS, ours.id, two.job(ours).id, MEMBERS[Role.VIEWER]) if one in text]


def test_a_member_and_a_server_admin_see_the_same_events_live(two: Tenants, base: str) -> None:
    for name in (MEMBERS[Role.VIEWER], "admin"):
        with stream(base, two.tokens[name]) as answer:
            plan = two.plan()
            assert frames_until(answer, plan.id)


@pytest.mark.parametrize("name", OTHERS)
def test_output_of_a_plan_of_another_project_is_not_shown(two: Tenants, base: str, name: str) -> None:
    ours = two.plan()
    theirs = two.plan("beta", "the other goal")
    query = f"?output={ours.id}:0&output={theirs.id}:0"
    shown = MEMBERS[Role.VIEWER] if name == "outsider" else name
    wanted = "printed-by-alpha" if name == "outsider" else "printed-by-beta"
    with stream(base, two.tokens[shown], query) as answer:
        pieces = (one for one in events_in(answer) if one.get("event") == "output")
        assert [one["data"]["text"] for one in islice(pieces, 1)] == [wanted]
    user = next(one for one in two.container.users.list() if one.name == name)
    watched = stream_module.WatchedPlans({ours.id: OURS, theirs.id: "beta"}, {ours.id: 0, theirs.id: 0})
    assert ours.id not in watched.seen_by(user)


@pytest.mark.parametrize("name", OTHERS)
def test_output_of_a_conversation_of_another_project_is_not_shown(two: Tenants, base: str, name: str) -> None:
    ours, theirs = two.conversation(two.plan()), two.conversation(two.plan("beta", "the other goal"))
    output, now = two.container.conversations.output, two.container.clock.now()
    output.append(ours.id, [("model", SECRETS[1])], now=now)
    output.append(theirs.id, [("model", "printed-by-beta")], now=now)
    member = name == "outsider"
    shown, wanted = (MEMBERS[Role.VIEWER], SECRETS[1]) if member else (name, "printed-by-beta")
    with stream(base, two.tokens[shown], f"?output={ours.id}:0&output={theirs.id}:0") as answer:
        first = next(one["data"] for one in events_in(answer) if one.get("event") == "output")
        assert first | {"time": ""} == {
            "plan_id": ours.id if member else theirs.id,
            "number": 1,
            "kind": "model",
            "text": wanted,
            "time": "",
        }


def test_an_open_stream_ends_for_a_removed_member(
    two: Tenants, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rights are looked up with every chunk here; else every 30 seconds."""
    monkeypatch.setattr(stream_module, "_CHECK_SECONDS", 0.0)
    two.restore("beta-operator", Role.VIEWER)
    plan = two.plan()
    with stream(base, two.tokens["beta-operator"], f"?output={plan.id}:0") as answer:
        frames = events_in(answer)
        seen = two.plan()
        assert any(one.get("data", {}).get("subject") == seen.id for one in islice(frames, 50))
        two.remove("beta-operator")
        # The rights are looked up after a chunk: this one may still be on its way.
        two.plan("beta", "the other goal")
        hidden, shown = None, None
        for _ in range(20):
            hidden, shown = two.plan(), two.plan("beta", "the other goal")
            subjects = []
            for one in frames:
                subjects.append(one.get("data", {}).get("subject"))
                if subjects[-1] == shown.id:
                    break
            if hidden.id not in subjects:
                return
    raise AssertionError("it was shown to the end")


def called(two: Tenants, name: str, method: str, plan_id: str) -> tuple[httpx.Response, dict[str, Any]]:
    """Return the response of the endpoint; for a stream, its first event."""
    params = json.loads(json.dumps(METHODS[method][1]).replace("PLAN", plan_id))
    if "message" in params:
        params["message"] |= {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "red"}]}
        params["configuration"] = {"returnImmediately": True}
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = two.client(name).post("/a2a", json=request, headers={"A2A-Version": "1.0"})
    text = answer.text
    if text.startswith("data:"):
        text = text.partition("data:")[2].partition("\n\n")[0]
    return answer, dict(json.loads(text))


def test_every_method_of_the_protocol_says_whom_it_is_for() -> None:
    assert set(JsonRpcDispatcher.METHOD_TO_MODEL) == set(METHODS)


@pytest.mark.parametrize("method", [name for name, (role, _) in METHODS.items() if role in list(Role)])
@pytest.mark.parametrize("name", OTHERS)
def test_a_task_of_another_project_is_as_one_that_does_not_exist(
    two: Tenants, method: str, name: str
) -> None:
    plan = two.plan()
    before = two.container.plan_parts.plans.get(plan.id)
    foreign = called(two, name, method, plan.id)
    missing = called(two, name, method, "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A")
    assert foreign[1]["error"]["code"] in (UNKNOWN, REFUSED)
    assert foreign[1] == missing[1]
    assert SECRETS[0] not in foreign[0].text
    assert two.container.plan_parts.plans.get(plan.id) == before


@pytest.mark.parametrize("method", [name for name, (role, _) in METHODS.items() if role == "operator"])
def test_a_viewer_of_the_project_changes_no_task(two: Tenants, method: str) -> None:
    plan = two.plan()
    _, said = called(two, MEMBERS[Role.VIEWER], method, plan.id)
    assert said["error"]["code"] == REFUSED
    assert "operator" in said["error"]["message"]


def test_members_get_and_cancel_tasks_of_their_project(two: Tenants) -> None:
    plan = two.plan()
    assert called(two, MEMBERS[Role.VIEWER], "GetTask", plan.id)[1]["result"]["id"] == plan.id
    assert called(two, MEMBERS[Role.OPERATOR], "CancelTask", plan.id)[1]["result"]["id"] == plan.id


def test_lists_of_tasks_and_their_counts_show_the_users_projects_alone(two: Tenants) -> None:
    def listed(name: str) -> dict[str, Any]:
        return dict(called(two, name, "ListTasks", "")[1]["result"])

    before = {name: listed(name).get("totalSize", 0) for name in (*OTHERS, MEMBERS[Role.VIEWER])}
    plan = two.plan()
    assert plan.id in json.dumps(listed(MEMBERS[Role.VIEWER]))
    assert listed(MEMBERS[Role.VIEWER])["totalSize"] == before[MEMBERS[Role.VIEWER]] + 1
    for name in OTHERS:
        assert plan.id not in json.dumps(listed(name))
        assert listed(name).get("totalSize", 0) == before[name]


@pytest.mark.parametrize("name", OTHERS)
def test_no_task_is_made_on_a_resource_of_another_project(two: Tenants, name: str) -> None:
    plans = len(two.container.plan_parts.plans.list(limit=1000))
    said = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "paint"}]}
    for resource in (f"{OURS}-main", f"{OURS}-none"):
        message = {**said, "metadata": {"resource": resource}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        answer = two.client(name).post("/a2a", json=request, headers={"A2A-Version": "1.0"}).json()
        assert answer["error"]["message"].replace("-none", "-main") == refusal(name)
    assert len(two.container.plan_parts.plans.list(limit=1000)) == plans


def refusal(name: str) -> str:
    if name in ("beta-viewer", "outsider"):
        return f"the role operator is required, and {name} has the role viewer; ask an admin to change it"
    return "there is no resource 'alpha-main'"


@pytest.mark.parametrize("tool", ["plan_status", "plan_diff", "apply_plan", "cancel_plan"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_plan_of_another_project_does_not_exist_for_mcp(two: Tenants, name: str, tool: str) -> None:
    plan = two.plan()
    before = two.container.plan_parts.plans.get(plan.id)
    accepted = {"Accept": "application/json, text/event-stream"}
    answers = []
    for plan_id in (plan.id, "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"):
        params = {"name": tool, "arguments": {"plan": plan_id}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = two.client(name).post("/mcp", json=request, headers=accepted)
        result = json.loads(answer.text.partition("data: ")[2])["result"]
        assert result["isError"]
        answers.append(result["content"][0]["text"].replace(plan_id, "PLAN"))
    assert answers[0] == answers[1]
    assert SECRETS[0] not in answers[0]
    assert two.container.plan_parts.plans.get(plan.id) == before
