"""Comments, requested changes and single hunks on a plan's page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.page_bench import until
from tests.plan_page_bench import PlanPageBench, plan_page_bench

LINES = [f"line {number}\n" for number in range(1, 41)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanPageBench]:
    with plan_page_bench(tmp_path_factory.mktemp("comments")) as made:
        made.sample.write("long.txt", "".join(LINES))
        made.sample.git("add", "long.txt")
        made.sample.git("commit", "-q", "-m", "a long file")
        yield made


def begin(bench: PlanPageBench, goal: str, *revision: dict[str, Any]) -> str:
    """Start a plan that changes the second and the 38th line, and wait for its result."""
    edits = [
        call("edit", path="long.txt", old="line 2\n", new="second line\n"),
        call("edit", path="long.txt", old="line 38\n", new="late line\n"),
    ]
    rules = [
        strategizes(steps({"title": "Edit", "instructions": "Edit"})),
        *(
            [executes(*revision, when={"first_user": "Changes to your result are requested"})]
            if revision
            else []
        ),
        executes(*[answer(one) for one in edits], says("done")),
        reviews(accept()),
    ]
    script = bench.script.with_name(f"{goal}.yaml")
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    plan_id = bench.begin(goal, model=f"scripted/{script}", checks=[])
    bench.wait(plan_id, "execute", "complete")
    return plan_id


def file_of(page: Page) -> Any:
    return page.get_by_role("region", name="long.txt")


def test_a_line_is_commented_on_with_the_keyboard_and_the_comment_is_settled(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "keyboard")
    page = bench.open(plan_id, "diff")
    file = file_of(page)
    first = file.get_by_role("button", name="Comment on line 1 of long.txt")
    first.focus()
    page.keyboard.press("ArrowDown")
    expect(file.get_by_role("button", name="Comment on removed line 2 of long.txt")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(file.get_by_role("button", name="Comment on line 2 of long.txt")).to_be_focused()
    page.keyboard.press("Enter")
    box = file.get_by_role("textbox", name="Comment on line 2")
    expect(box).to_be_focused()
    page.keyboard.type("<b>Why</b> second?")
    page.keyboard.press("Control+Enter")
    comment = file.get_by_role("article", name="Comment 1")
    expect(comment).to_contain_text("<b>Why</b> second?")
    expect(comment).to_contain_text("open")
    [stored] = bench.api.get(f"/plans/{plan_id}/comments").json()["items"]
    assert (stored["path"], stored["line"], stored["end_line"]) == ("long.txt", 2, 2)
    expect(file.locator("tr:has(+ tr.p-below)")).to_contain_text("second line")
    comment.get_by_role("button", name="Decline comment 1").click()
    comment.get_by_role("textbox", name="Reason").fill("It is a test")
    comment.get_by_role("button", name="Decline", exact=True).click()
    expect(comment).to_contain_text("Declined by admin: It is a test")
    comment.get_by_role("button", name="Reopen comment 1").click()
    expect(comment).to_contain_text("Reopened by admin")
    comment.get_by_role("button", name="Resolve comment 1").click()
    expect(comment).to_contain_text("Resolved by admin")
    assert bench.account(plan_id)["open_comments"] == 0


def test_comments_are_sent_and_answered_and_an_outdated_one_shows_its_lines(bench: PlanPageBench) -> None:
    revision = [
        answer(
            call("edit", path="long.txt", old="second line\n", new="2nd line\n"),
            call("answer_comment", comment=1, resolution="resolved", reason="It is a number now."),
        ),
        says("revised"),
    ]
    plan_id = begin(bench, "revised", *revision)
    page = bench.open(plan_id, "diff")
    file = file_of(page)
    file.get_by_role("button", name="Comment on line 2 of long.txt").click()
    file.get_by_role("textbox", name="Comment on line 2").fill("Write a number")
    file.get_by_role("button", name="Comment", exact=True).click()
    expect(file.get_by_role("article", name="Comment 1")).to_be_visible()
    page.keyboard.press("1")
    page.get_by_text("Add a comment").click()
    page.get_by_role("textbox", name="Comment", exact=True).fill("Keep it short")
    page.get_by_role("button", name="Comment", exact=True).click()
    whole = page.get_by_role("region", name="Comments").get_by_role("article", name="Comment 2")
    expect(whole).to_contain_text("Keep it short")
    expect(page.get_by_role("region", name="Comments")).to_contain_text("1 open comment in the diff")
    page.get_by_role("group", name="Actions").get_by_role("button", name="Request changes").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Sends 2 open comments to the agent")
    dialog.get_by_role("textbox", name="Message").fill("Soon, please")
    dialog.get_by_role("button", name="Request changes", exact=True).click()
    expect(dialog).to_have_count(0)
    until("the answer", lambda: bench.account(plan_id)["open_comments"] < 2)
    bench.wait(plan_id, "execute", "complete")
    page.keyboard.press("2")
    answered = file.get_by_role("article", name="Comment 1")
    expect(answered).to_contain_text("It is a number now.")
    expect(answered).to_contain_text("outdated")
    expect(answered.get_by_role("group", name="Original lines")).to_have_text("second line")
    expect(page.locator(".p-above")).to_have_count(1)


def test_a_comment_that_was_typed_while_its_file_changed_needs_a_second_look(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "typed")
    page = bench.open(plan_id, "diff")
    file = file_of(page)
    file.get_by_role("button", name="Comment on line 2 of long.txt").click()
    box = file.get_by_role("textbox", name="Comment on line 2")
    box.fill("Why second?")
    edited = Path(bench.account(plan_id)["sandbox"], "long.txt")
    edited.write_text(f"zero\n{edited.read_text()}")
    bench.api.post(f"/plans/{plan_id}/reread").raise_for_status()
    expect(file).to_contain_text("zero")  # line 2 is another line now
    send = file.get_by_role("button", name="Comment", exact=True)
    send.click()
    expect(file.get_by_role("alert")).to_contain_text("long.txt has changed since you saw it")
    assert bench.api.get(f"/plans/{plan_id}/comments").json()["items"] == []
    expect(box).to_have_value("Why second?")
    send.click()
    expect(file.get_by_role("article", name="Comment 1")).to_contain_text("Why second?")
    [stored] = bench.api.get(f"/plans/{plan_id}/comments").json()["items"]
    assert stored["lines"] == ["line 1"]


def test_a_removed_line_has_its_comment_below_it(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "removed")
    unchanged = {"text": "And this?", "path": "long.txt", "line": 3, "side": "before"}
    assert bench.api.post(f"/plans/{plan_id}/comments", json=unchanged).status_code == 201
    page = bench.open(plan_id, "diff")
    file = file_of(page)
    file.get_by_role("button", name="Comment on removed line 2 of long.txt").click()
    file.get_by_role("textbox", name="Comment on removed line 2").fill("Keep it")
    file.get_by_role("button", name="Comment", exact=True).click()
    comment = file.get_by_role("article", name="Comment 2")
    expect(comment).to_contain_text("line 2, before the change")
    stored = bench.api.get(f"/plans/{plan_id}/comments").json()["items"][1]
    assert (stored["side"], stored["line"], stored["lines"]) == ("before", 2, ["line 2"])
    expect(file.locator("tr.p-dl-remove:has(+ tr.p-below)")).to_contain_text("line 2")
    expect(file.locator("tr.p-dl-context:has(+ tr.p-below)")).to_contain_text("line 3")
    page.get_by_role("button", name="Side by side").click()
    expect(file.locator("tr.p-pair:has(+ tr.p-below)")).to_contain_text(["second line", "line 3"])
    expect(file.get_by_role("article")).to_have_count(2)
    expect(page.locator(".p-above")).to_have_count(0)


def test_a_line_of_a_deleted_file_is_commented_on_side_by_side(bench: PlanPageBench) -> None:
    command = {"action": "builtin/command", "arguments": {"argv": ["rm", "long.txt"]}}
    plan_id = bench.api.post("/plans", json={**command, "resource": "paint-shop"}).json()["id"]
    bench.wait(plan_id, "execute", "complete")
    page = bench.open(plan_id, "diff")
    page.get_by_role("button", name="Side by side").click()
    file = file_of(page)
    file.get_by_role("button", name="Comment on removed line 3 of long.txt").click()
    file.get_by_role("textbox", name="Comment on removed line 3").fill("Keep it")
    file.get_by_role("button", name="Comment", exact=True).click()
    expect(file.get_by_role("article", name="Comment 1")).to_contain_text("Keep it")
    expect(file.locator("tr:has(+ tr.p-below)")).to_contain_text("line 3")


def test_a_hunk_is_left_out_and_included_again(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "hunks")
    page = bench.open(plan_id, "diff")
    file = file_of(page)
    file.get_by_role("button", name="Leave out hunk 2 of long.txt").click()
    include = file.get_by_role("button", name="Include hunk 2 of long.txt")
    expect(include).to_be_visible()
    expect(page.locator(".p-filediff")).to_have_count(1)  # a hunk is no file of its own
    [hunks] = [one["hunks"] for one in bench.api.get(f"/plans/{plan_id}/diff").json()["files"]]
    assert [one["accepted"] for one in hunks] == [True, False]
    include.click()
    expect(file.get_by_role("button", name="Leave out hunk 2 of long.txt")).to_be_visible()
    assert bench.account(plan_id)["left_out"] == []


def test_a_verdict_on_a_hunk_that_changed_is_refused_with_a_toast(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "stale")
    page = bench.open(plan_id, "diff")
    leave = file_of(page).get_by_role("button", name="Leave out hunk 2 of long.txt")
    expect(leave).to_be_visible()

    def old(route: Any) -> None:
        route.continue_(post_data=json.dumps({"reject_hunks": ["0" * 20]}))

    page.route("**/review", old)
    leave.click()
    expect(page.locator(".toast")).to_contain_text("The file changed")
    expect(leave).to_be_enabled()
    assert bench.account(plan_id)["left_out"] == []


def test_a_viewer_reads_comments_without_controls(bench: PlanPageBench) -> None:
    plan_id = begin(bench, "viewer")
    on_line = {"text": "Look", "path": "long.txt", "line": 2}
    assert bench.api.post(f"/plans/{plan_id}/comments", json=on_line).status_code == 201
    bench.api.post("/users", json={"name": "vera", "role": "viewer"})
    bench.api.put("/projects/paint/members/vera", json={"role": "viewer"}).raise_for_status()
    token = bench.api.post("/users/vera/tokens", json={"label": "test"}).json()["token"]
    page = bench.open(plan_id, "diff", token=token)
    comment = page.get_by_role("article", name="Comment 1")
    expect(comment).to_contain_text("Look")
    expect(comment.get_by_role("button")).to_have_count(0)
    expect(page.locator(".p-add, .p-hunk-verdict")).to_have_count(0)
