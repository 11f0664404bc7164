"""Responses to a plan's pending request on its page: an answer, a resolved conflict, a retry."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.plan_page_bench import PlanPageBench, plan_page_bench

ASKING = """
name: mine/asking
type: graph
state:
  colour: {type: string}
entry: ask
nodes:
  ask: {type: human, question: "Which colour?", choices: [red, blue], output: colour, next: tell}
  tell: {type: tool, tool: write, with: {path: told.txt, content: "${colour}"}, next: end}
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanPageBench]:
    directory = tmp_path_factory.mktemp("needs")
    actors = directory / ".config/cleveragents/actors"
    actors.mkdir(parents=True)
    (actors / "asking.yaml").write_text(ASKING)
    with plan_page_bench(directory) as made:
        yield made


@pytest.fixture(scope="module")
def page(bench: PlanPageBench) -> Page:
    return bench.open(bench.begin("welcome"))


def half(colour: str) -> list[dict[str, Any]]:
    """A part of a goal that gives the shop another name."""
    when = {"first_user": f"{colour} half"}
    edit = call("edit", path="README.md", old="# Paint shop\n", new=f"# {colour} shop\n")
    step = {"title": f"Write {colour}", "instructions": f"{colour} half"}
    return [strategizes(steps(step), when=when), executes(answer(edit), says("done"), when=when)]


def test_a_question_is_answered_with_one_of_its_choices(bench: PlanPageBench, page: Page) -> None:
    plan_id = bench.begin("Say the colour", actor="mine/asking", checks=[])
    bench.go(page, plan_id)
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Which colour?")
    needs.get_by_role("button", name="blue").click()
    expect(page.locator(".p-state")).to_contain_text("ready")
    page.keyboard.press("2")
    expect(page.get_by_role("region", name="told.txt")).to_contain_text("blue")
    bench.agrees(page, plan_id)


def test_conflicts_of_sub_plans_are_resolved_and_the_plan_is_resumed(
    bench: PlanPageBench, page: Page
) -> None:
    parts = [
        {"title": f"{one} half", "instructions": f"{one} half", "sub_plan": True} for one in ("Red", "Blue")
    ]
    whole = strategizes(steps(*parts), when={"first_user": "Paint it"})
    script = bench.script.with_name("split.yaml")
    script.write_text(
        json.dumps({"version": 1, "rules": [*half("Red"), *half("Blue"), whole, reviews(accept())]})
    )
    plan_id = bench.begin("Paint it", model=f"scripted/{script}", checks=[])
    bench.go(page, plan_id, "plans")
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("sub-plans conflict in README.md")
    expect(page.locator(".p-family .badge")).to_have_text(["merged", "merged"])
    with page.expect_request("**/resolve") as sent:
        needs.get_by_role("button", name="Take the sub-plan's").click()
    expect(needs).to_contain_text("Can be resumed")
    assert {"version", "tree"} <= {name for name, value in sent.value.post_data_json.items() if value}
    needs.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)  # under a dialog, no key is heard
    expect(page.locator(".p-state")).to_contain_text("ready")
    page.keyboard.press("2")
    # Of the two, the one that was done last is the sub-plan's; on a busy machine, either is.
    expect(page.get_by_role("region", name="README.md")).to_contain_text(re.compile("# (Red|Blue) shop"))
    bench.agrees(page, plan_id)
    page.keyboard.press("4")
    page.get_by_role("link", name="Red half").click()
    expect(page.get_by_role("navigation", name="Breadcrumb").get_by_role("link")).to_have_count(2)


def test_an_undo_that_is_refused_says_why_and_is_tried_again(bench: PlanPageBench, page: Page) -> None:
    plan_id = bench.begin("discount")
    bench.wait(plan_id, "execute", "complete")
    bench.go(page, plan_id)
    actions = page.get_by_role("group", name="Actions")
    dialog = page.get_by_role("dialog")
    actions.get_by_role("button", name="Apply").click()
    dialog.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator(".p-state")).to_contain_text("applied")
    applied = bench.sample.text("prices.sh") or ""
    bench.sample.write("prices.sh", applied.replace("* 90 / 100", "* 80 / 100"))
    actions.get_by_role("button", name="Undo").click()
    dialog.get_by_role("button", name="Undo", exact=True).click()
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Undo failed")
    expect(needs).to_contain_text("prices.sh")
    page.reload()
    expect(needs).to_contain_text("Undo failed")
    bench.sample.write("prices.sh", applied)
    needs.get_by_role("button", name="Try again").click()
    dialog.get_by_role("button", name="Undo", exact=True).click()
    expect(page.locator(".p-state")).to_contain_text("undone")
    expect(needs).to_have_count(0)
    bench.agrees(page, plan_id)


def test_a_result_that_changes_below_the_dialog_is_not_applied(bench: PlanPageBench, page: Page) -> None:
    command = {"action": "builtin/command", "arguments": {"argv": ["sh", "-c", "echo 1 > one; echo 2 > two"]}}
    plan_id = bench.api.post("/plans", json={**command, "resource": "paint-shop"}).json()["id"]
    bench.wait(plan_id, "execute", "complete")
    bench.go(page, plan_id)
    actions, dialog = page.get_by_role("group", name="Actions"), page.get_by_role("dialog")
    actions.get_by_role("button", name="Apply").click()
    expect(dialog).to_contain_text("Merge 2 changed files")
    assert bench.api.post(f"/plans/{plan_id}/review", json={"reject": ["one"]}).status_code == 200
    expect(dialog).to_contain_text("Merge 1 changed file")  # the page knows, the person may not
    dialog.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_text("Nothing was applied")).to_be_visible()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("region", name="two")).to_be_visible()  # the new diff
    assert bench.sample.text("two") is None
    actions.get_by_role("button", name="Apply").click()
    dialog.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator(".p-state")).to_contain_text("applied")
    assert bench.sample.text("two") == "2\n"


def test_a_result_for_a_remote_is_pushed_and_the_page_says_where_it_went(
    bench: PlanPageBench, page: Page, tmp_path: Path
) -> None:
    """A newcomer's report: the dialog spoke of files of theirs, and nothing said that a commit was pushed."""
    remote = tmp_path / "far.git"
    subprocess.run(["git", "clone", "-q", "--bare", bench.sample.root, remote], check=True)
    place = {"name": "far", "project": "paint", "remote": f"file://{remote}", "branch": "main"}
    assert bench.api.post("/resources", json=place).status_code == 201
    command = {"action": "builtin/command", "arguments": {"argv": ["sh", "-c", "echo hi > new.txt"]}}
    made = bench.api.post("/plans", json={**command, "resource": "far"}).json()
    bench.go(page, made["id"])
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Nothing is pushed to branch main of far until you apply")
    needs.get_by_role("button", name="Apply").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"branch main of {place['remote']}")
    expect(dialog).not_to_contain_text("your files")
    dialog.get_by_label("New branch").fill("mine")
    expect(dialog).to_contain_text("to the new branch mine")
    dialog.get_by_role("button", name="Apply and push").click()
    landed = page.locator(".p-landed")
    expect(landed).to_contain_text(f"to branch mine of {place['remote']} by admin")
    told = subprocess.run(
        ["git", "-C", remote, "rev-parse", "mine", "mine^", "main"],
        check=True,
        capture_output=True,
        text=True,
    )
    tip, before, main = told.stdout.split()
    assert before == main
    expect(landed.get_by_title(tip)).to_have_text(tip[:10])


def test_a_failed_plan_is_started_again_with_changes(bench: PlanPageBench, page: Page) -> None:
    """A newcomer's report: a command typed as one word failed, and all of it had to be typed again."""
    asked = {
        "action": "builtin/command",
        "arguments": {"argv": ["touch new file"], "timeout_seconds": 30},
        "checks": ["true"],
        "profile": "trusted",
    }
    made = bench.api.post("/plans", json={**asked, "resource": "paint-shop"}).json()
    bench.wait(made["id"], "execute", "errored")
    bench.go(page, made["id"])
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Cancel ends the plan for good")
    needs.get_by_role("link", name="Edit and restart").click()
    command = page.get_by_label("Command", exact=True)
    expect(command).to_have_value("'touch new file'")
    command.fill("touch 'new file'")
    page.get_by_role("button", name="Start plan").click()
    page.wait_for_url("**/plans/*")
    again = bench.account(page.url.rpartition("/")[2])["request"]
    assert again["arguments"]["argv"] == ["touch", "new file"]
    assert again["arguments"]["timeout_seconds"] == 30
    for kept in ("checks", "profile", "resource_name"):
        assert again[kept] == made["request"][kept], kept


@pytest.mark.parametrize(
    ("checks", "said"), [([], "No checks were configured."), (["true"], "All checks passed.")]
)
def test_a_result_says_whether_checks_passed(
    bench: PlanPageBench, page: Page, checks: list[str], said: str
) -> None:
    command = {"action": "builtin/command", "arguments": {"argv": ["touch", "made"]}}
    body = {**command, "resource": "paint-shop", "checks": checks}
    plan_id = bench.api.post("/plans", json=body).json()["id"]
    bench.wait(plan_id, "execute", "complete")
    bench.go(page, plan_id)
    expect(page.get_by_role("region", name="Pending request")).to_contain_text(said)


def test_a_tab_is_found_by_what_it_is_called(bench: PlanPageBench, page: Page) -> None:
    plan_id = bench.begin("welcome")
    for said, tab in (
        ("actors", "graph"),
        ("cost", "budget"),
        ("dec", "decisions"),
        ("details", "timeline"),
        ("nonsense", "conversation"),
    ):
        page.goto("about:blank")
        bench.go(page, plan_id, said)
        expect(page.locator(f"#tab-{tab}")).to_have_attribute("aria-selected", "true")
        expect(page).to_have_url(re.compile(f"#{tab}$"))  # the address is set once it is drawn


def test_a_failed_revision_is_withdrawn_and_the_earlier_result_applied(
    bench: PlanPageBench, page: Page
) -> None:
    requested = {"first_user": "Changes to your result are requested"}
    note = executes(answer(call("write", path="note.txt", content="first\n")), says("done"))
    rules = [
        executes(
            answer(call("edit", path="note.txt", old="first", new="second")),
            answer(fault={"status": 400}),
            when=requested,
        ),
        strategizes(steps({"title": "Write a note", "instructions": "write"})),
        note,
        reviews(accept()),
    ]
    script = bench.script.with_name("revision.yaml")
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    plan_id = bench.begin("Write a note", model=f"scripted/{script}", checks=[])
    bench.go(page, plan_id)
    actions, dialog = page.get_by_role("group", name="Actions"), page.get_by_role("dialog")
    actions.get_by_role("button", name="Request changes").click()
    dialog.get_by_role("textbox", name="Message").fill("another word")
    dialog.get_by_role("button", name="Request changes", exact=True).click()
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Failed")
    edited = Path(bench.account(plan_id)["sandbox"]) / "mine.txt"
    edited.write_text("by hand\n")
    needs.get_by_role("button", name="Withdraw revision").click()
    discard = dialog.get_by_role("checkbox", name="Discard these edits")
    expect(discard).to_have_count(0)
    withdraw = dialog.get_by_role("button", name="Withdraw", exact=True)
    withdraw.click()
    expect(dialog.get_by_role("alert")).to_contain_text("edits by hand since the earlier result: mine.txt")
    assert edited.exists()
    discard.check()
    withdraw.click()
    expect(page.locator(".p-state")).to_contain_text("ready")
    expect(actions.get_by_role("button", name="Withdraw revision")).to_have_count(0)
    actions.get_by_role("button", name="Apply").click()
    dialog.get_by_role("button", name="Apply", exact=True).click()
    expect(page.locator(".p-state")).to_contain_text("applied")
    assert bench.sample.text("note.txt") == "first\n"
    assert not edited.exists()
