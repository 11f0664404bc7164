"""Pending requests and possible actions of plans: with sub-plans, out of reach, on a remote, of an earlier
version."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.plans.details import fields_of
from cleveragents.core.json_value import freeze
from cleveragents.jobs.model.job import NewJob
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.sub_plan import GOALS_ACTION
from cleveragents.plans.ports.plans import PlanDraft
from tests.plan_bench import new_repository
from tests.server_plan_bench import PlanServer, plan_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("server"), sandbox__isolation="off") as server:
        yield server


def part(name: str, action: str = "builtin/command", **arguments: Any) -> dict[str, Any]:
    facts = {"goal": name, "needs": [], "actor": None, "model": None, "checks": [], "invariants": []}
    return {"name": name, "action": action, "arguments": arguments, **facts}


def script(text: str) -> list[str]:
    return ["sh", "-c", text]


def family(server: PlanServer, *parts: dict[str, Any], profile: str = "full-auto") -> Plan:
    """A plan of these parts, in the queue of the server."""
    request = freeze(
        {
            "arguments": {},
            "checks": [],
            "profile": profile,
            "from_head": False,
            "include": [],
            "directory": "",
            "invariants": [],
            "max_parallel": 2,
            "fail_fast": False,
            "sub_goals": list(parts),
            "queue": "plans",
            "project": "team",
            "resource_name": "shop",
            "apply": "review",
        }
    )
    assert isinstance(request, Mapping)
    new = PlanDraft("several at once", GOALS_ACTION, str(server.repository), request)
    return server.parts.lifecycle.create(new)


def test_a_plan_continues_after_its_conflicts_are_resolved(server: PlanServer) -> None:
    both = [part(name, argv=script(f"echo {name} > b.txt")) for name in ("one", "two")]
    plan = server.rested({"id": family(server, *both).id})
    where = f"/plans/{plan['id']}"
    assert (plan["state"], plan["needs"]) == ("waiting", "conflict")
    assert "resolve" in plan["can"]
    assert "apply" not in plan["can"]
    assert [row["status"] for row in plan["sub_plans"]].count("merged") >= 1
    (conflict,) = plan["conflicts"]
    assert conflict["path"] == "b.txt"
    child = plan["sub_plans"][0]["id"]
    assert "a sub-plan of" in server.post(f"/plans/{child}/apply", status=409)["detail"]
    assert "a sub-plan of" in server.post(f"/plans/{child}/undo", status=409)["detail"]
    unknown = server.post(f"{where}/resolve", {"path": "a.txt", "take": "ours"}, 422)
    assert unknown["code"] == "tool-refused"
    resolved = server.post(f"{where}/resolve", {"path": "b.txt", "take": "theirs"})
    assert resolved["conflicts"] == []
    server.post(f"{where}/resume")
    done = server.rested(plan)
    assert (done["state"], done["needs"], done["sub_plans_done"]) == ("complete", "review", 2)
    (row,) = [one for one in server.get("/plans")["items"] if one["id"] == plan["id"]]
    assert (row["sub_plans"], row["sub_plans_done"]) == (2, 2)
    every = [one["id"] for one in server.get("/plans", all=True)["items"]]
    assert child in every
    tree = server.get(f"{where}/decisions")["items"]
    assert [one["kind"] for one in tree] == ["sub-plan", "sub-plan"]


def test_a_question_of_a_part_is_a_question_of_the_whole(server: PlanServer) -> None:
    asking = part("asks", "builtin/replace", pattern="alpha", replacement="ALPHA")
    plan = server.rested({"id": family(server, asking, profile="manual").id})
    assert (plan["waiting_for"]["for"], plan["needs"]) == ("sub-plans", "approval")
    (child,) = [row["id"] for row in plan["sub_plans"]]
    assert server.get(f"/plans/{child}")["needs"] == "approval"
    assert [one["id"] for one in server.get("/plans", needs="approval")["items"]] == [child, plan["id"]]
    assert "approve" not in plan["can"]
    server.post(f"/plans/{plan['id']}/cancel")
    assert server.get(f"/plans/{child}")["state"] == "cancelled"


def test_a_plan_whose_repository_is_gone_says_so(server: PlanServer) -> None:
    gone = new_repository(server.home / "gone")
    now = server.bench.container.clock.now()
    server.bench.container.projects.add_resource("gone", "team", ResourceKind.DIRECTORY, str(gone), now=now)
    plan = server.rested(server.command("echo x > x.txt", resource="gone", apply="review"))
    shutil.rmtree(gone)
    shown = server.get(f"/plans/{plan['id']}")
    assert (shown["out_of_reach"], shown["can"]) == (str(gone), [])
    refused = server.bench.viewer.get(f"/api/plans/{plan['id']}/diff")
    assert (refused.status_code, refused.json()["code"]) == (409, "needs-human")
    missing = server.bench.operator.post("/api/plans", json={"resource": "gone", "goal": "x"})
    assert missing.status_code == 422


def test_a_failed_apply_can_be_repeated(server: PlanServer) -> None:
    plan = server.rested(server.command("echo again > again.txt", apply="review"))
    engine, version = server.bench.container.engine, server.parts.plans.get(plan["id"]).version
    key = f"apply:{plan['id']}@{version}#0"
    lost = engine.submit(NewJob(f"apply:{plan['id']}", {"plan_id": plan["id"]}, key=key))
    engine.cancel(lost.id, "nobody takes it")
    job = server.done(server.post(f"/plans/{plan['id']}/apply", status=202))
    assert job["state"] == "succeeded"
    assert (server.repository / "again.txt").exists()


def test_a_plan_on_a_remote_needs_no_directory_here(server: PlanServer) -> None:
    address = "file:///nowhere/shop.git"
    container = server.bench.container
    container.projects.add_resource(
        "far", "team", ResourceKind.REMOTE, address, branch="main", now=container.clock.now()
    )
    # It is not run: there is nothing at that address.
    made = server.bench.operator.post(
        "/api/plans",
        json={"resource": "far", "action": "builtin/command", "arguments": {"argv": ["true"]}},
    )
    assert made.status_code == 201, made.text
    plan = server.parts.plans.get(made.json()["id"])
    assert plan.resource == f"git+{address}#main"
    elsewhere = replace(plan, resource="git+ssh://ada@example.org/shop.git#main")
    assert fields_of(elsewhere)["resource"] == "ssh://example.org/shop.git#main"
    assert made.json()["resource_name"] == "far"
    assert made.json()["out_of_reach"] is None
    server.bench.operator.post(f"/api/plans/{plan.id}/cancel")
