"""The conversation of a plan in a browser: how it grows while a reader looks at it."""

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
    with plan_page_bench(tmp_path_factory.mktemp("talk")) as made:
        yield made


def two_part_script(bench: PlanPageBench) -> Path:
    """Write the script of a plan that edits a file, runs a command, says more and ends."""
    turns = [
        answer(
            call("edit", path="README.md", old="# Paint shop\n", new="# Colour shop\n"),
            text="I **rename** it.",
        ),
        answer(call("command", argv=["true"]), text="I try it."),
        answer(call("read", path="README.md"), text="I look again.\n\n" + "- line\n" * 60),
        says("The shop has a *new* name."),
    ]
    rules = [
        strategizes(steps({"title": "Rename", "instructions": "Rename"})),
        executes(*turns),
        reviews(accept()),
    ]
    script = bench.script.with_name("two-parts.yaml")
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    return script


def test_the_conversation_grows_without_moving_the_reader(bench: PlanPageBench) -> None:
    model = f"scripted/{two_part_script(bench)}"
    plan_id = bench.begin("Rename the shop", model=model, checks=[], profile="review")
    until("the request", lambda: bench.account(plan_id)["needs"] == "approval")
    page = bench.open(plan_id, viewport={"width": 1000, "height": 420})
    talk = page.get_by_role("list", name="Conversation")
    expect(talk.get_by_role("article", name="Agent").last).to_contain_text("I try it.")
    expect(talk.locator("strong", has_text="rename")).to_be_visible()  # Markdown
    expect(talk.get_by_role("group", name="Changes of call 1 to README.md")).to_contain_text("+# Colour shop")
    edit = talk.get_by_role("button", name="edit")
    edit.click()
    expect(edit).to_have_attribute("aria-expanded", "true")
    edit.focus()
    edit.evaluate("(one) => one.scrollIntoView({block: 'start'})")
    before = page.evaluate("scrollY")
    assert bench.api.post(f"/plans/{plan_id}/approve", json={}).status_code < 300
    expect(page.get_by_role("article", name="Answer")).to_contain_text("The shop has a new name.")
    expect(talk).to_contain_text("I look again.")
    expect(edit).to_be_focused()
    expect(edit).to_have_attribute("aria-expanded", "true")
    assert page.evaluate("scrollY") == before
    expect(page.get_by_role("region", name="Pending request")).to_contain_text("Ready for review")
    bench.agrees(page, plan_id)


def test_a_plan_opens_on_its_conversation_with_the_request_in_place(bench: PlanPageBench) -> None:
    plan_id = bench.begin("discount", profile="review")
    until("the request", lambda: bench.account(plan_id)["needs"] == "approval")
    page = bench.open(plan_id, viewport={"width": 1000, "height": 420})
    expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_be_in_viewport()  # however long the conversation is
    needs.get_by_role("button", name="Deny …").click()
    needs.get_by_role("textbox", name="Reason").fill("Run the tests of prices only")
    needs.get_by_role("button", name="Deny", exact=True).click()
    denied = page.get_by_role("list", name="Conversation").get_by_role("button", name="command")
    expect(denied).to_contain_text("denied")
    expect(page.locator(".p-reason").first).to_have_text("Reason: Run the tests of prices only")
