"""Approvals on a plan's page that last: rules for the plan or its project, and their list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.page_bench import until
from tests.plan_page_bench import PlanPageBench, plan_page_bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanPageBench]:
    with plan_page_bench(tmp_path_factory.mktemp("approvals")) as made:
        yield made


def begin(bench: PlanPageBench, goal: str, *commands: list[str]) -> str:
    """Start a plan whose agent runs these commands, and wait for its first request."""
    turns = [answer(call("command", argv=argv)) for argv in commands]
    rules = [
        strategizes(steps({"title": "Run", "instructions": "Run"})),
        executes(*turns, says("done")),
        reviews(accept()),
    ]
    script: Path = bench.script.with_name(f"{goal}.yaml")
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    plan_id = bench.begin(goal, model=f"scripted/{script}", checks=[], profile="review")
    until("the request", lambda: bench.account(plan_id)["needs"] == "approval")
    return plan_id


def test_a_command_is_always_allowed_and_the_rule_is_revoked(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "twice", ["ls", "prices.sh"], ["ls", "prices.sh"])
    page = bench.open(plan_id)
    needs = page.get_by_role("region", name="Pending request")
    offered = bench.account(plan_id)["approval"]
    assert "project" in offered["scopes"], offered
    shown = offered["pattern"] or offered["exact"]
    expect(needs.locator(".p-rule")).to_contain_text(shown)
    expect(needs.locator(".p-rule")).to_contain_text(offered["project_scope"])
    needs.get_by_role("button", name="Always allow").click()
    expect(page.locator(".p-state")).not_to_contain_text("waiting")
    until("the end", lambda: bench.account(plan_id)["status"] in ("unchanged", "ready"))
    talk = page.get_by_role("list", name="Conversation")
    expect(talk.get_by_role("button", name="command").last).to_contain_text("approved by rule")

    page.goto(f"{bench.server.url}/projects")
    page.get_by_role("button", name="Approval rules of paint").click()
    dialog = page.get_by_role("dialog", name="Approval rules of paint")
    expect(dialog.get_by_role("table")).to_contain_text(shown)
    dialog.get_by_role("button", name=f"Revoke {shown}").click()
    page.get_by_role("dialog").last.get_by_role("button", name="Revoke", exact=True).click()
    expect(dialog).to_contain_text("No rules yet")
    assert bench.api.get("/rules").json()["items"] == []


def test_an_approval_for_this_plan_sends_the_chosen_rule(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "chosen", ["ls", "-l", "prices.sh"])
    page = bench.open(plan_id)
    needs = page.get_by_role("region", name="Pending request")
    offered = bench.account(plan_id)["approval"]
    if offered["pattern"] and offered["pattern"] != offered["exact"]:
        needs.get_by_label("Rule").select_option(offered["exact"])
    with page.expect_request("**/approve") as sent:
        needs.get_by_role("button", name="Allow in this plan").click()
    assert sent.value.post_data_json == {
        "call": offered["call"],
        "scope": "plan",
        "pattern": offered["exact"],
    }
    until("the end", lambda: bench.account(plan_id)["status"] in ("unchanged", "ready"))
    [rule] = bench.api.get("/rules").json()["items"]
    assert (rule["pattern"], rule["plan"]) == (offered["exact"], plan_id)


def test_a_command_without_a_possible_rule_says_why(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "shell", ["sh", "-c", "ls | wc -l"])
    page = bench.open(plan_id)
    needs = page.get_by_role("region", name="Pending request")
    offered = bench.account(plan_id)["approval"]
    assert offered["problem"], offered
    expect(needs).to_contain_text(offered["problem"][1:])
    for scope, name in (("plan", "Allow in this plan"), ("project", "Always allow")):
        count = 1 if scope in offered["scopes"] else 0
        expect(needs.get_by_role("button", name=name)).to_have_count(count)
    needs.get_by_role("button", name="Deny …").click()
    needs.get_by_role("button", name="Go back").click()
    expect(needs.get_by_role("button", name="Approve")).to_be_visible()
