"""Projects are tenants: every route, for every identity, with objects of a project that is not theirs.

The routes come from the application itself. A new one fails here until `ROUTES` says to whom it belongs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple

import httpx
import pytest
from starlette.routing import Route

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import Role
from cleveragents.api.access import Access
from cleveragents.conversations.model import NewConversation
from cleveragents.core.errors import (
    NotAllowed,
    UnknownConversation,
    UnknownJob,
    UnknownPlan,
    UnknownProject,
    UnknownResource,
    UnknownRule,
)
from cleveragents.plans.model.plan import Plan
from cleveragents.server.description import operations_of
from tests.docs.api_page import described
from tests.tenants import MEMBERS, OTHERS, OURS, SECRETS, Tenants, tenants

Where = Literal["anybody", "user", "server", "viewer", "operator", "admin"]
"""Whom a route is for: anybody without a token; every user, of what is theirs; server admins; or those who
have at least this role in the project of the object that it names."""

ROUTES: dict[str, Where] = {
    "logIn": "anybody",
    "getHealth": "anybody",
    "getReadiness": "anybody",
    # Lists and streams, of what is in the user's own projects.
    "listPlans": "user",
    "countPlans": "user",
    "listJobs": "user",
    "listEvents": "user",
    "streamEvents": "user",
    "listProjects": "user",
    "listResources": "user",
    "listRules": "user",
    "listCosts": "user",
    "searchPlans": "user",
    "getMetrics": "user",
    # Objects without a project.
    "getAbout": "user",
    "getSession": "user",
    "logOut": "user",
    "listWorkers": "user",
    "listConversations": "user",
    "listModels": "user",
    "listProfiles": "user",
    "tryModel": "user",
    "validateActor": "user",
    "listActions": "user",
    "getAction": "user",
    "listActors": "user",
    "getActor": "user",
    "getUser": "user",
    "listTokens": "user",
    "issueToken": "user",
    "revokeToken": "user",
    "listUsers": "server",
    "addUser": "server",
    "changeUser": "server",
    "removeUser": "server",
    "addProject": "server",
    "removeProject": "server",
    "addResource": "server",
    "listTrust": "server",
    "createAction": "server",
    "deleteAction": "server",
    "verifyEvents": "server",
    "chooseModel": "server",
    # Objects of a project.
    "getPlan": "viewer",
    "listPlanComments": "viewer",
    "listPlanCalls": "viewer",
    "getPlanCall": "viewer",
    "getPlanSummary": "viewer",
    "listPlanDecisions": "viewer",
    "listPlanConflicts": "viewer",
    "explainPlanDecision": "viewer",
    "diffPlan": "viewer",
    "readPlanFile": "viewer",
    "getPlanGraph": "viewer",
    "getPlanBudget": "viewer",
    "getPlanOutput": "viewer",
    "comparePlans": "viewer",
    "getJob": "viewer",
    "getConversation": "viewer",
    "listTurns": "viewer",
    "getTurnOutput": "viewer",
    "listMembers": "viewer",
    "createPlan": "operator",
    "createConversation": "operator",
    "sendTurn": "operator",
    "resumeTurn": "operator",
    "stopTurn": "operator",
    "forkConversation": "operator",
    "renameConversation": "operator",
    "raiseConversationBudget": "operator",
    "compactConversation": "operator",
    "getConversationFile": "operator",
    "deleteConversation": "operator",
    "findContext": "operator",
    "deletePlan": "operator",
    "cancelPlan": "operator",
    "answerPlanComment": "operator",
    "commentOnPlan": "operator",
    "revisePlan": "operator",
    "rebasePlan": "operator",
    "pausePlan": "operator",
    "removePlanSandbox": "operator",
    "resumePlan": "operator",
    "approvePlan": "operator",
    "denyPlan": "operator",
    "answerPlan": "operator",
    "applyPlan": "operator",
    "undoPlan": "operator",
    "rejectPlan": "operator",
    "raisePlanBudget": "operator",
    "reviewPlan": "operator",
    "rollBackPlan": "operator",
    "rereadPlan": "operator",
    "resolvePlanConflict": "operator",
    "correctPlan": "operator",
    "cancelJob": "operator",
    "addRule": "operator",
    "revokeRule": "operator",
    "setMember": "admin",
    "removeMember": "admin",
    "removeResource": "admin",
    "showBroughtAlong": "admin",
    "revokeTrust": "admin",
    # Of a project, and a server admin's: what is trusted runs for all of them.
    "trustBroughtAlong": "server",
}
NOT_DESCRIBED = {
    *("/a2a", "/a2a/", "/mcp"),
    *("/.well-known/agent-card.json", "/api/openapi.json", "/static/{path:path}"),
}
"""Routes outside of the API's description: those of protocols are tested by their methods, the others are for
anybody."""

QUERIES: dict[str, dict[str, str]] = {"readPlanFile": {"path": "a"}, "getConversationFile": {"path": "a"}}
MISSING = {"unknown-plan", "unknown-job", "unknown-project", "unknown-resource", "unknown-rule"}
MISSING |= {"unknown-conversation"}


class Operation(NamedTuple):
    """A route as its description has it."""

    id: str
    method: str
    path: str
    description: dict[str, Any]


@pytest.fixture(scope="module")
def operations() -> list[Operation]:
    return [
        Operation(one["operationId"], method.upper(), path, one)
        for path, method, one in operations_of(described())
    ]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    with tenants(tmp_path_factory.mktemp("tenants")) as made:
        yield made


def ask(two: Tenants, operation: Operation, name: str | None, plan: Plan | None) -> httpx.Response:
    """What is answered to the user who asks for objects of our project; without a plan, for those that do not
    exist."""
    missing = plan is None
    named = {
        "plan_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A" if plan is None else plan.id,
        "job_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A" if plan is None else two.job(plan).id,
        "name": f"{OURS}{'-none' if missing else ''}",
        "resource": f"{OURS}-{'none' if missing else 'main'}",
        "user": "outsider",
        "number": "1",
        "namespace": "builtin",
        "token_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A",
        "rule_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A" if plan is None else two.rule(plan).id,
        "conversation_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A" if plan is None else two.conversation(plan).id,
    }
    of_resource = operation.path.startswith("/api/resources/")
    path = operation.path
    for parameter in operation.description.get("parameters", ()):
        if parameter["in"] == "path":
            key = "resource" if of_resource else str(parameter["name"])
            path = path.replace(f"{{{parameter['name']}}}", named[key])
    query = dict(QUERIES.get(operation.id, {}))
    if operation.id == "comparePlans":
        query["other"] = named["plan_id"]
    content = operation.description.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = content.get("example")
    if isinstance(body, dict) and "resource" in body:
        body = {**body, "resource": named["resource"]}
    return two.client(name).request(operation.method, path, json=body, params=query)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["code"])


def wording(answer: httpx.Response) -> dict[str, Any]:
    """Return the refusal without the name of the object."""
    said = answer.json()
    quoted = ("detail", "errors", "facts")
    return {key: value for key, value in said.items() if key not in quoted}


def test_every_route_says_to_whom_it_belongs(two: Tenants, operations: list[Operation]) -> None:
    assert {one.id for one in operations} == set(ROUTES)
    described_paths = {one.path for one in operations}
    found = {route.path for route in two.app.routes if isinstance(route, Route)}
    pages = import_module("cleveragents.server.routes.page").PAGES
    assert found == described_paths | NOT_DESCRIBED | set(pages)


def test_every_route_takes_its_rule_from_the_access_module(operations: list[Operation]) -> None:
    """The OpenAPI document, built from the access rules, agrees with `ROUTES`."""
    for one in operations:
        where = ROUTES[one.id]
        if where == "anybody" or not one.path.startswith("/api/"):
            assert "x-role" not in one.description, one.id
        elif where == "server":
            assert one.description["x-role-in"] == "server", one.id
        elif where == "user" or "{" not in one.path:
            assert one.description["x-role-in"] == "anywhere", one.id
        else:
            assert (one.description["x-role"], one.description["x-role-in"]) == (where, "project"), one.id


def test_a_stranger_is_asked_for_a_token(two: Tenants, operations: list[Operation]) -> None:
    plan = two.plan()
    for one in operations:
        if ROUTES[one.id] != "anybody":
            assert code_of(ask(two, one, None, plan)) == (401, "not-authenticated"), one.id


@pytest.mark.parametrize("name", OTHERS)
def test_an_object_of_another_project_is_as_one_that_does_not_exist(
    two: Tenants, operations: list[Operation], name: str
) -> None:
    plan = two.plan()
    before = two.container.plan_parts.plans.get(plan.id)
    for one in operations:
        if ROUTES[one.id] not in ("viewer", "operator", "admin") and one.id != "trustBroughtAlong":
            continue
        foreign, missing = ask(two, one, name, plan), ask(two, one, name, None)
        creates = one.id in ("createPlan", "createConversation", "findContext", "addRule")
        if creates and not operates(name):
            assert code_of(foreign) == (403, "not-allowed"), one.id
        else:
            assert foreign.status_code == 404, (one.id, foreign.text)
            assert foreign.json()["code"] in MISSING, (one.id, foreign.text)
        assert wording(foreign) == wording(missing), one.id
        assert SECRETS[0] not in foreign.text, one.id
    assert two.container.plan_parts.plans.get(plan.id) == before
    assert two.container.projects.resource(f"{OURS}-main").project == OURS
    assert MEMBERS[Role.VIEWER] in [one.name for one in two.container.members.list(OURS)]


def operates(name: str) -> bool:
    return not name.endswith("viewer") and name != "outsider"


@pytest.mark.parametrize("role", list(Role))
def test_a_role_in_the_project_is_enough_or_is_refused(
    two: Tenants, operations: list[Operation], role: Role
) -> None:
    for one in operations:
        where = ROUTES[one.id]
        if where not in ("viewer", "operator", "admin"):
            continue
        if role.may(Role(where)) and one.id == "removeResource":
            continue  # it would be gone for the next; below
        answer = ask(two, one, MEMBERS[role], two.plan())
        if role.may(Role(where)):
            assert answer.status_code not in (401, 403), (one.id, answer.text)
            assert answer.status_code != 404 or answer.json()["code"] not in MISSING, (one.id, answer.text)
        else:
            assert code_of(answer) == (403, "not-allowed"), (one.id, answer.text)
        if one.id == "removeMember" and answer.status_code == 204:
            assert "outsider" not in [one.name for one in two.container.members.list(OURS)]


def test_a_server_admin_may_act_in_every_project(two: Tenants, operations: list[Operation]) -> None:
    for one in operations:
        if ROUTES[one.id] in ("viewer", "operator", "admin") and one.id != "removeResource":
            answer = ask(two, one, "admin", two.plan())
            assert answer.status_code not in (401, 403), (one.id, answer.text)
            assert answer.status_code != 404 or answer.json()["code"] not in MISSING, (one.id, answer.text)


def test_the_admin_of_a_project_removes_its_resource_and_no_other(two: Tenants) -> None:
    two.bench.repository(f"{OURS}-old", OURS)
    path = f"/api/resources/{OURS}-old"
    assert two.client("beta-admin").delete(path).status_code == 404
    assert two.client(MEMBERS[Role.OPERATOR]).delete(path).status_code == 403
    assert two.client(MEMBERS[Role.ADMIN]).delete(path).status_code == 204


@pytest.mark.parametrize("name", [*MEMBERS.values(), *OTHERS])
def test_server_objects_are_for_server_admins(two: Tenants, operations: list[Operation], name: str) -> None:
    plan = two.plan()
    for one in operations:
        if ROUTES[one.id] == "server" and one.id != "trustBroughtAlong":
            assert code_of(ask(two, one, name, plan)) == (403, "not-allowed"), one.id
    trust = {"files": [{"path": ".mcp.json", "digest": "0" * 64}]}
    answer = two.client(name).post(f"/api/resources/{OURS}-main/trust", json=trust)
    assert answer.status_code == (403 if name in MEMBERS.values() else 404)


QUESTIONS: list[tuple[str, dict[str, str]]] = [
    ("/api/plans", {}),
    ("/api/plans", {"all": "true"}),
    ("/api/plans", {"project": OURS}),
    ("/api/plans", {"resource": f"{OURS}-main"}),
    ("/api/jobs", {"limit": "1000"}),
    ("/api/jobs", {"order": "newest"}),
    ("/api/jobs", {"plan": "PLAN"}),
    ("/api/events", {}),
    ("/api/events", {"after": "0", "limit": "1000"}),
    ("/api/events", {"plan": "PLAN"}),
    ("/api/events", {"subject": "PLAN"}),
    ("/api/events", {"subject": "JOB"}),
    ("/api/events", {"subject": OURS}),
    ("/api/projects", {}),
    ("/api/resources", {}),
]
"""Lists, with every filter that could select objects of another project."""


def list_of(two: Tenants, name: str, path: str, query: dict[str, str], plan: Plan) -> list[dict[str, Any]]:
    known = {"PLAN": plan.id, "JOB": two.job(plan).id}
    answer = two.client(name).get(path, params={key: known.get(value, value) for key, value in query.items()})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


@pytest.mark.parametrize(("path", "query"), QUESTIONS)
def test_lists_show_members_what_is_theirs_and_others_nothing_of_it(
    two: Tenants, path: str, query: dict[str, str]
) -> None:
    plan = two.plan()
    ours = (*SECRETS, plan.id, two.job(plan).id, f'"{OURS}"', f"{OURS}-viewer")
    for name in (*MEMBERS.values(), "admin"):
        found = json.dumps(list_of(two, name, path, query, plan))
        assert any(text in found for text in ours), (name, found)
    for name in OTHERS:
        found = json.dumps(list_of(two, name, path, query, plan))
        assert not [text for text in ours if text in found], (name, found)


@pytest.mark.parametrize("path", ["/api/actions", "/api/actors", "/api/actors/builtin/executor"])
def test_a_repository_of_another_project_is_not_looked_into(two: Tenants, path: str) -> None:
    for name in OTHERS:
        for query, resource in ({"resource": f"{OURS}-main"}, 404), ({}, 200):
            assert two.client(name).get(path, params=query).status_code == resource
    viewer = two.client(MEMBERS[Role.VIEWER])
    assert viewer.get(path, params={"resource": f"{OURS}-main"}).status_code == 200


def test_resources_are_not_listed_by_a_project_of_others(two: Tenants) -> None:
    for name in OTHERS:
        answer = two.client(name).get("/api/resources", params={"project": OURS})
        assert code_of(answer) == (404, "unknown-project")


def test_a_plan_is_not_compared_with_one_of_another_project(two: Tenants) -> None:
    ours, theirs = two.plan(), two.plan("beta", "the other goal")
    path = f"/api/plans/{theirs.id}/comparison"
    answer = two.client("beta-admin").get(path, params={"other": ours.id})
    assert code_of(answer) == (404, "unknown-plan")


def test_an_ambiguous_id_names_no_plan_of_another_project(two: Tenants) -> None:
    ours = [two.plan() for _ in range(3)]
    theirs = two.plan("beta", "the other goal")
    beginning = next(
        theirs.id[:length] for length in range(26, 0, -1) if ours[0].id.startswith(theirs.id[:length])
    )
    answer = two.client("beta-viewer").get(f"/api/plans/{beginning}")
    assert not any(plan.id in answer.text for plan in ours)


def test_events_of_users_tokens_and_workers_are_for_server_admins(two: Tenants) -> None:
    everything = {"after": "0", "limit": "1000"}
    kinds = {one["type"] for one in list_of(two, "admin", "/api/events", everything, two.plan())}
    assert {"user.added", "access.given"} <= kinds
    for name in (*MEMBERS.values(), *OTHERS):
        kinds = {one["type"] for one in list_of(two, name, "/api/events", everything, two.plan())}
        assert not {kind for kind in kinds if kind.startswith(("user.", "access.", "worker.", "trust."))}


def test_events_of_a_deleted_plan_stay_visible_to_its_project_only(two: Tenants) -> None:
    plan = two.plan()
    job = two.job(plan)
    operator = two.client(MEMBERS[Role.OPERATOR])
    assert operator.post(f"/api/plans/{plan.id}/cancel").status_code == 200
    assert operator.delete(f"/api/plans/{plan.id}", params={"force": "true"}).status_code == 204
    asked = {"subject": plan.id, "limit": "1000"}
    told = [one["type"] for one in list_of_deleted(two, MEMBERS[Role.VIEWER], asked)]
    assert told[-1] == "plan.deleted"
    assert two.client(MEMBERS[Role.VIEWER]).get(f"/api/jobs/{job.id}").status_code == 200
    for name in OTHERS:
        assert list_of_deleted(two, name, asked) == []
        assert two.client(name).get(f"/api/jobs/{job.id}").status_code == 404


def list_of_deleted(two: Tenants, name: str, query: dict[str, str]) -> list[dict[str, Any]]:
    return list(two.client(name).get("/api/events", params=query).json()["items"])


def test_metrics_count_the_plans_of_the_users_projects(two: Tenants) -> None:
    def plans(name: str) -> float:
        lines = two.client(name).get("/metrics").text.splitlines()
        counts = [float(line.rpartition(" ")[2]) for line in lines if line.startswith("cleveragents_plans{")]
        return sum(counts)

    before = {name: plans(name) for name in ("admin", MEMBERS[Role.VIEWER], *OTHERS)}
    two.plan()
    after = {name: plans(name) for name in before}
    assert after["admin"] == before["admin"] + 1
    assert after[MEMBERS[Role.VIEWER]] == before[MEMBERS[Role.VIEWER]] + 1
    assert all(after[name] == before[name] for name in OTHERS)
    assert "cleveragents_http_requests" in two.client("admin").get("/metrics").text
    figures = two.client("beta-viewer").get("/metrics").text
    assert "cleveragents_http_requests" not in figures
    assert "cleveragents_events_position" not in figures


def test_a_removed_member_loses_access_with_the_next_request(two: Tenants) -> None:
    plan = two.plan()
    name = MEMBERS[Role.OPERATOR]
    path = f"/api/plans/{plan.id}"
    assert two.client(name).get(path).status_code == 200
    removed = two.client(MEMBERS[Role.ADMIN]).delete(f"/api/projects/{OURS}/members/{name}")
    assert removed.status_code == 204
    try:
        assert two.client(name).get(path).status_code == 404
        assert two.client(name).post(f"{path}/cancel").status_code == 404
    finally:
        two.restore(name, Role.OPERATOR)


def test_an_answer_is_not_given_again_to_who_has_lost_the_project(two: Tenants) -> None:
    name, plan = MEMBERS[Role.OPERATOR], two.plan()
    key = {"Idempotency-Key": "cancel-once"}
    path = f"/api/plans/{plan.id}/cancel"
    first = two.client(name).post(path, headers=key)
    assert first.status_code == 200
    assert two.client(name).post(path, headers=key).headers["Idempotent-Replayed"] == "true"
    two.remove(name)
    try:
        again = two.client(name).post(path, headers=key)
        assert again.status_code in (404, 422)
        assert SECRETS[0] not in again.text
    finally:
        two.restore(name, Role.OPERATOR)


@pytest.mark.parametrize("name", OTHERS)
def test_an_idempotency_key_of_another_user_has_no_effect(two: Tenants, name: str) -> None:
    plan = two.plan()
    key = {"Idempotency-Key": f"shared-{name}"}
    path = f"/api/plans/{plan.id}/cancel"
    assert two.client(MEMBERS[Role.OPERATOR]).post(path, headers=key).status_code == 200
    answer = two.client(name).post(path, headers=key)
    assert code_of(answer) == (404, "unknown-plan")


def test_members_are_managed_by_the_admin_of_the_project(two: Tenants) -> None:
    path = f"/api/projects/{OURS}/members"
    admin = two.client(MEMBERS[Role.ADMIN])
    assert admin.put(f"{path}/outsider", json={"role": "operator"}).json() == {
        "name": "outsider",
        "role": "operator",
    }
    seen = two.client("outsider").get("/api/session").json()["user"]
    assert (seen["role"], seen["projects"]) == ("operator", {OURS: "operator"})
    assert {"name": "outsider", "role": "operator"} in admin.get(path).json()["items"]
    assert admin.put(f"{path}/nobody", json={"role": "viewer"}).status_code == 404
    assert admin.delete(f"{path}/outsider").status_code == 204
    assert admin.delete(f"{path}/outsider").status_code == 404
    assert two.client("outsider").get("/api/session").json()["user"]["projects"] == {}


def test_the_admin_of_a_project_is_no_server_admin(two: Tenants) -> None:
    seen = two.client(MEMBERS[Role.ADMIN]).get("/api/session").json()["user"]
    assert (seen["role"], seen["projects"]) == ("operator", {OURS: "admin"})


def test_the_creator_of_a_project_is_its_admin(two: Tenants) -> None:
    admin = two.client("admin")
    assert admin.post("/api/projects", json={"name": "gamma"}).status_code == 201
    assert admin.get("/api/projects/gamma/members").json()["items"] == [{"name": "admin", "role": "admin"}]
    assert admin.delete("/api/projects/gamma").status_code == 204
    assert admin.delete("/api/projects/default").status_code == 409


def test_a_project_with_plans_is_not_removed(two: Tenants) -> None:
    admin = two.client("admin")
    assert admin.post("/api/projects", json={"name": "delta"}).status_code == 201
    two.bench.repository("delta-main", "delta")
    two.plan("delta")
    assert admin.delete("/api/resources/delta-main").status_code == 204
    refused = admin.delete("/api/projects/delta")
    assert (refused.status_code, "plans" in refused.json()["detail"]) == (409, True)


def test_a_project_with_sessions_is_not_removed(two: Tenants) -> None:
    admin = two.client("admin")
    assert admin.post("/api/projects", json={"name": "epsilon"}).status_code == 201
    new = NewConversation("epsilon", "/nowhere")
    talk = two.container.conversations.store.create(new, now=two.container.clock.now())
    refused = admin.delete("/api/projects/epsilon")
    assert (refused.status_code, "sessions" in refused.json()["detail"]) == (409, True)
    assert admin.delete(f"/api/conversations/{talk.id}").status_code == 204
    assert admin.delete("/api/projects/epsilon").status_code == 204


def test_a_new_project_with_an_old_name_tells_nothing_of_the_old_one(two: Tenants) -> None:
    admin = two.client("admin")

    def made() -> None:
        assert admin.post("/api/projects", json={"name": "zeta"}).status_code == 201

    made()
    location = str(two.bench.repository("zeta-main", "zeta"))
    plan = two.plan("zeta")
    job = two.job(plan)
    assert admin.post(f"/api/plans/{plan.id}/cancel").status_code == 200
    assert admin.delete(f"/api/plans/{plan.id}", params={"force": "true"}).status_code == 204
    assert admin.delete("/api/resources/zeta-main").status_code == 204
    assert admin.delete("/api/projects/zeta").status_code == 204
    made()
    now = two.container.clock.now()
    two.container.projects.add_resource("zeta-main", "zeta", ResourceKind.DIRECTORY, location, now=now)
    two.restore("beta-viewer", Role.VIEWER, "zeta")
    everything = {"after": "0", "limit": "1000"}
    items = two.client("beta-viewer").get("/api/events", params=everything).json()["items"]
    told = [(one["type"], one["subject"]) for one in items if "zeta" in one["subject"]]
    assert told == [("project.added", "zeta"), ("resource.added", "zeta-main"), ("member.set", "zeta")]
    assert not {plan.id, job.id} & {one["subject"] for one in items}
    assert two.client("beta-viewer").get(f"/api/jobs/{job.id}").status_code == 404


def look_ups(access: Access) -> dict[str, Callable[[Any], object]]:
    """Every method that finds an object for a user, asked with the role that most have."""
    named = {
        name: method
        for name, method in inspect.getmembers(access, inspect.ismethod)
        if not name.startswith(("_", "ensure")) and "needed" in inspect.signature(method).parameters
    }
    return {name: partial(method, needed=Role.OPERATOR) for name, method in named.items()}


def test_objects_of_other_projects_are_reported_as_unknown(two: Tenants) -> None:
    ours = two.plan()
    foreign = {
        "plan": (ours.id, UnknownPlan),
        "made": (ours, UnknownPlan),
        "job": (two.job(ours).id, UnknownJob),
        "project": (ours.project, UnknownProject),
        "resource": (f"{ours.project}-main", UnknownResource),
        "rule": (two.rule(ours).id, UnknownRule),
        "conversation": (two.conversation(ours).id, UnknownConversation),
    }
    users = {user.name: user for user in two.container.users.list()}
    for name in OTHERS:
        found = look_ups(Access(two.container, users[name]))
        assert found.keys() == foreign.keys()
        for method, (asked, error) in foreign.items():
            with pytest.raises(error):
                found[method](asked)
    member = look_ups(Access(two.container, users[MEMBERS[Role.OPERATOR]]))
    viewer = look_ups(Access(two.container, users[MEMBERS[Role.VIEWER]]))
    for method, (asked, _) in foreign.items():
        assert member[method](asked) is not None
        with pytest.raises(NotAllowed):
            viewer[method](asked)
