"""Sessions in a browser: the conversation as it arrives, and the plan of a turn beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.attached_files import PNG
from tests.browser.test_accessibility import SCREENS, violations
from tests.page_bench import PageBench

READS = {
    "when": {"user": "person:\\s+What is in the README"},
    "turns": [
        answer(call("read", path="README.md"), text="I look."),
        says("The **name** of the shop, see `README.md:1`. <b>Not HTML</b>"),
    ],
}
HANGS = {
    "when": {"user": "person:\\s+hang"},
    "turns": [answer(call("read", path="README.md"), text="one two three"), {"fault": {"hang": True}}],
}
PLANS = {
    "when": {"user": "person:\\s+Please rename", "offered": "start_plan"},
    "turns": [answer(call("start_plan", goal="Rename the shop")), says("I started a plan. Review it.")],
}
RENAMES = [
    strategizes(steps({"title": "Rename", "instructions": "Rename"})),
    executes(
        answer(call("edit", path="README.md", old="# Paint shop\n", new="# Colour shop\n")),
        says("The shop has a new name."),
    ),
    reviews(accept()),
]
SEES = {"when": {"attached": "image/png"}, "reply": {"text": "A shed."}}
SAYS = {"reply": {"text": "Hello."}}


def write_talks(directory: Path) -> str:
    """Write the script of the sessions; return the name of its model."""
    script = directory / "talks.yaml"
    rules = [READS, HANGS, PLANS, *RENAMES, SEES, SAYS]
    script.write_text(json.dumps({"version": 1, "facts": {"image_tokens": 900}, "rules": rules}))
    return f"scripted/{script}"


@pytest.fixture(scope="module")
def model(server: PageBench) -> str:
    return write_talks(server.directory)


def begun(bench: PageBench, model: str, **limits: int) -> str:
    body = {"resource": "paint-shop", "model": model, "limits": limits}
    return str(bench.ask("POST", "/conversations", json=body)["id"])


def sent(page: Page, text: str) -> None:
    """Send a message with the keyboard."""
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def test_a_picture_is_attached_to_a_message(bench: PageBench, model: str) -> None:
    page = bench.visit().go(f"/sessions/{begun(bench, model)}")
    field = page.get_by_label("Attach images or PDFs")
    field.set_input_files([{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"}])
    sent(page, "What is this?")
    expect(page.get_by_role("alert")).to_contain_text("'notes.txt' is no PNG")
    page.get_by_role("button", name="Detach").click()
    one = {"name": "a.png", "mimeType": "image/png", "buffer": PNG}
    for files, problem in (
        ([one] * 6, "a question has at most 5 attachments"),
        ([{**one, "buffer": bytes(5_100_000)}] * 2, "at most 10,000,000 bytes together"),
    ):
        field.set_input_files(files)
        expect(page.get_by_role("alert")).to_contain_text(problem)
        expect(page.get_by_role("button", name="Detach")).to_have_count(0)
    field.set_input_files([{"name": "<b>shed.png", "mimeType": "text/plain", "buffer": PNG}])
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text("Attached: <b>shed.png")).to_be_visible()
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("article", name="Answer 1")).to_contain_text("A shed.")
    expect(page.get_by_role("article", name="Message 1")).to_contain_text("Attached: <b>shed.png")
    expect(page.get_by_role("button", name="Detach")).to_have_count(0)


def test_a_message_starts_a_session_and_a_request_becomes_a_plan_beside_it(
    bench: PageBench, model: str
) -> None:
    page = bench.visit().go("/sessions")
    page.get_by_label("Model").fill(model)
    sent(page, "What is in the README?")
    reply = page.get_by_role("article", name="Answer 1")
    expect(reply.locator("strong", has_text="name")).to_be_visible()  # Markdown
    expect(reply).to_contain_text("<b>Not HTML</b>")
    reply.get_by_role("button", name="README.md:1").press("Enter")
    expect(page.get_by_role("dialog").locator(".s-line-meant")).to_have_text("1# Paint shop")
    page.keyboard.press("Escape")
    page.get_by_text("2 steps").click()
    expect(page.locator(".s-steps")).to_contain_text("read")
    expect(page.get_by_role("heading", level=1)).to_have_text("What is in the README?")
    expect(page.get_by_role("complementary", name="Plan")).to_have_count(0)
    sent(page, "Please rename the shop")
    plan = page.get_by_role("complementary", name="Plan")
    expect(plan).to_contain_text("Rename the shop")
    expect(page.get_by_role("article", name="Answer 2")).to_contain_text("I started a plan.")
    expect(plan.get_by_role("heading", name="Ready for review")).to_be_visible()
    expect(plan).to_contain_text("README.md")
    plan.get_by_role("link", name="Review diff").click()
    expect(page.get_by_role("tab", name="Diff")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.get_by_role("article", name="Answer 2")).to_be_visible()


def test_a_turn_streams_is_stopped_and_continued(bench: PageBench, model: str) -> None:
    talk = begun(bench, model)
    visit = bench.visit()
    page = visit.go(f"/sessions/{talk}")
    sent(page, "hang")
    live = page.get_by_role("article", name="Assistant")
    expect(live).to_have_text("one two three")
    page.reload()
    expect(live).to_have_text("one two three")  # once, also after a new start
    other = visit.another_tab()
    other.goto(f"{bench.url}/sessions/{talk}")
    expect(other.get_by_role("article", name="Assistant")).to_have_text("one two three")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-turn='1'][data-state='stopped']")).to_contain_text("one two three")
    expect(other.locator("[data-turn='1'][data-state='stopped']")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("[data-turn='1'][data-state='running']")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("[data-turn='1'][data-state='stopped']")).to_be_visible()


def test_a_turn_that_the_end_of_the_server_interrupted_can_be_resumed(bench: PageBench, model: str) -> None:
    page = bench.visit().go(f"/sessions/{begun(bench, model)}")
    sent(page, "hang")
    expect(page.get_by_role("article", name="Assistant")).to_have_text("one two three")
    bench.stop()
    expect(page.get_by_text("Cannot reach the server").first).to_be_visible()
    bench.start()
    expect(page.locator("[data-turn='1'][data-state='interrupted']")).to_contain_text("one two three")
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()


def _lost(route: Route) -> None:
    """Lose a message, and let all else pass."""
    if route.request.method == "POST":
        route.abort()
    else:
        route.fallback()


def test_a_message_that_cannot_be_sent_stays_in_its_field(bench: PageBench, model: str) -> None:
    visit = bench.visit()
    page = visit.go(f"/sessions/{begun(bench, model)}")
    page.route("**/turns", _lost)
    sent(page, "Are you there?")
    expect(page.get_by_role("alert")).to_contain_text("Message not sent")
    field = page.get_by_label("Message", exact=True)
    expect(field).to_have_value("Are you there?")
    page.unroute("**/turns")
    page.reload()
    expect(field).to_have_value("Are you there?")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("article", name="Answer 1")).to_contain_text("Hello.")
    expect(field).to_have_value("")
    expect(page.locator("[data-turn]")).to_have_count(1)


def test_a_session_is_forked_listed_and_deleted_after_a_confirmation(bench: PageBench, model: str) -> None:
    talk = begun(bench, model)
    page = bench.visit().go(f"/sessions/{talk}")
    sent(page, "hello fork")
    expect(page.get_by_role("article", name="Answer 1")).to_contain_text("Hello.")
    page.get_by_role("button", name="Fork the session after turn 1").click()
    expect(page.get_by_role("link", name="fork of")).to_be_visible()
    expect(page.get_by_role("article", name="Answer 1")).to_contain_text("Hello.")
    page.get_by_role("link", name="Sessions").first.click()
    rows = page.get_by_role("link", name="hello fork")
    expect(rows).to_have_count(2)
    expect(page.locator("main :is(h1, h2)").first).to_have_text("Sessions")
    rows.last.click()  # the source is older
    expect(page.locator(f"[data-session='{talk}']")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Go back").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(rows).to_have_count(1)
    page.goto(f"{bench.url}/sessions/{talk}")
    expect(page.get_by_text("Session not found")).to_be_visible()


def test_a_session_is_renamed(bench: PageBench, model: str) -> None:
    page = bench.visit().go(f"/sessions/{begun(bench, model)}")
    sent(page, "hello")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("hello")
    page.get_by_role("button", name="Rename").click()
    title = page.get_by_role("dialog").get_by_label("Title")
    expect(title).to_have_value("hello")
    title.fill("  ")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()  # a title is required
    title.fill("The <b>shed</b>")
    page.keyboard.press("Enter")
    expect(heading).to_have_text("The <b>shed</b>")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_title("The <b>shed</b> · CleverAgents")


def test_a_spent_budget_is_raised_and_the_turn_continues(bench: PageBench, model: str) -> None:
    talk = begun(bench, model, steps=1)
    page = bench.visit().go(f"/sessions/{talk}")
    sent(page, "What is in the README?")
    page.get_by_role("button", name="Raise limit").click()
    limit = page.get_by_role("dialog").get_by_label("Model calls")
    expect(limit).to_have_value("2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Answer 1")).to_contain_text("The name of the shop")
    expect(page.get_by_role("button", name="Raise limit")).to_have_count(0)
    assert bench.ask("GET", f"/conversations/{talk}")["limits"]["steps"] == 2


def test_a_viewer_reads_and_sends_nothing(bench: PageBench, model: str) -> None:
    talk = begun(bench, model)
    bench.ask("POST", "/users", json={"name": "reader", "role": "viewer"})
    bench.ask("PUT", "/projects/paint/members/reader", json={"role": "viewer"})
    token = bench.ask("POST", "/users/reader/tokens", json={"label": "test"})["token"]
    page = bench.visit(token=token).go(f"/sessions/{talk}")
    expect(page.get_by_text("You need the operator role in paint")).to_be_visible()
    expect(page.get_by_label("Message", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="Fork")).to_have_count(0)


@pytest.mark.parametrize("screen", SCREENS)
def test_no_rule_of_accessibility_is_violated(bench: PageBench, model: str, screen: str) -> None:
    options: dict[str, Any] = SCREENS[screen]
    page = bench.visit(bypass_csp=True, **options).go(f"/sessions/{begun(bench, model)}")
    sent(page, "Please rename the shop")
    plan = page.get_by_role("complementary", name="Plan")
    expect(plan.locator(".p-needs")).to_be_visible()
    expect(page.get_by_role("article", name="Answer 1")).to_be_visible()
    assert violations(page) == []
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= options["viewport"]["width"], "nothing is wider than the screen"
