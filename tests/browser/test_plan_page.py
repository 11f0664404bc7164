"""The demo's six plans, driven and watched through their pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.page_bench import until
from tests.plan_page_bench import PlanPageBench, plan_page_bench, words_of


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanPageBench]:
    with plan_page_bench(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.fixture(scope="module")
def ids(bench: PlanPageBench) -> dict[str, str]:
    """All six at once; the first has to ask before it runs a command."""
    begun = {"discount": bench.begin("discount", profile="review")}
    return begun | {
        goal: bench.begin(goal) for goal in ("tax", "receipt", "catalogue", "simulation", "welcome")
    }


@pytest.fixture(scope="module")
def page(bench: PlanPageBench, ids: dict[str, str]) -> Page:
    """A browser that most tests share."""
    return bench.open(ids["catalogue"], "timeline")


def press(page: Page, action: str, yes: str) -> None:
    """Opens the dialog of an action and says yes."""
    page.get_by_role("group", name="Actions").get_by_role("button", name=action).click()
    page.get_by_role("dialog").get_by_role("button", name=yes, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_page_whose_server_is_started_anew_in_the_middle_shows_all_that_happened_once(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["catalogue"]
    until("its command", lambda: len(bench.account(plan_id)["calls"]) > 2)
    bench.server.stop()
    expect(page.get_by_text("Not connected")).to_be_visible()
    bench.server.start()
    expect(page.locator(".p-state")).to_contain_text("ready")
    bench.agrees(page, plan_id)
    expect(page.get_by_text("Not connected")).to_have_count(0)
    # The account is read before the events that were missed meanwhile, of which the timeline is drawn.
    calls = [str(call["number"]) for call in bench.account(plan_id)["calls"]]
    expect(page.locator(".p-entry-number")).to_have_text(calls)
    expect(page.locator(".p-entry-what", has_text="taken by")).to_have_count(_claims(bench, plan_id))


def _claims(bench: PlanPageBench, plan_id: str) -> int:
    claims = bench.api.get("/events", params={"type": "job.claimed", "limit": 1000}).json()["items"]
    return sum(one["facts"]["kind"] == f"plan:{plan_id}" for one in claims)


def test_a_pending_call_is_approved_on_the_page(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["discount"]
    bench.go(page, plan_id)
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Approval needed")
    expect(needs).to_contain_text("sh test.sh")
    needs.get_by_role("button", name="Approve").click()
    expect(page.locator(".p-state")).to_contain_text("ready")
    bench.agrees(page, plan_id)
    assert [call["state"] for call in bench.account(plan_id)["calls"] if call["tool"] == "command"] == [
        "ended"
    ]


def test_a_result_that_changed_after_its_diff_was_shown_is_not_applied(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["discount"]
    bench.wait(plan_id, "execute", "complete")
    bench.go(page, plan_id, "diff")
    expect(page.get_by_role("region", name="prices.sh")).to_be_visible()
    page.get_by_role("tab", name="Checks").click()
    assert bench.api.post(f"/plans/{plan_id}/review", json={"reject": ["prices.sh"]}).status_code < 300
    expect(page.get_by_role("tab", name="Diff")).to_contain_text("1")
    press(page, "Apply", "Apply")
    expect(page.get_by_text("Nothing was applied")).to_be_visible(timeout=20_000)
    expect(page.locator(".p-totals")).to_contain_text("1 left out")
    assert bench.account(plan_id)["state"] == "complete"
    assert bench.api.post(f"/plans/{plan_id}/review", json={"accept": ["prices.sh"]}).status_code < 300
    expect(page.get_by_text("The result has changed")).to_be_visible(timeout=20_000)


def test_a_file_that_is_left_out_by_a_key_is_not_applied(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["discount"]
    bench.go(page, plan_id, "diff")
    expect(page.get_by_role("region", name="prices.sh")).to_be_visible()
    _go_down(page)
    page.keyboard.press("x")
    expect(page.locator(".p-totals")).to_contain_text("1 left out")
    assert bench.account(plan_id)["left_out"] == ["test_discount.sh"]
    press(page, "Apply", "Apply")
    expect(page.locator(".p-state")).to_contain_text("applied")
    bench.agrees(page, plan_id)
    assert "90 / 100" in (bench.sample.text("prices.sh") or "")
    assert bench.sample.text("test_discount.sh") is None


def _go_down(page: Page) -> None:
    """To the last file by its key, which is heard once the page has drawn itself."""

    def is_there() -> bool:
        page.keyboard.press("n")
        return page.locator(".p-filediff[data-now]").get_attribute("aria-label") == "test_discount.sh"

    until("the second file", is_there)


def test_a_cancel_in_one_browser_shows_in_the_other(bench: PlanPageBench, ids: dict[str, str]) -> None:
    """Field report 30 (OpenHands#5817): the interface said stopped while the agent ran. The badge says
    `running` until the last process of the plan has ended, then `cancelled`."""
    plan_id = ids["simulation"]
    until("the command", lambda: bool(_processes(bench)))
    one, other = bench.open(plan_id), bench.open(plan_id, "output")
    for page in (one, other):
        expect(page.locator(".p-state")).to_contain_text("running")
    one.get_by_role("button", name="Cancel").click()
    one.get_by_role("dialog").get_by_role("textbox", name="Reason").fill("enough")
    one.get_by_role("dialog").get_by_role("button", name="Cancel plan").click()
    for page in (one, other):
        expect(page.locator(".p-state")).to_contain_text("cancelled")
        assert _processes(bench) == []
        assert words_of(page) == ["running", "cancelled"]
        bench.agrees(page, plan_id)
        page.context.close()


def _processes(bench: PlanPageBench) -> list[int]:
    """Return the processes of the plan's command, whatever their parent is now."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or [])
        mine = "simulate.sh" in words or ("trap" in words and "sleep 1" in words)
        if mine and str(bench.sample.root.parent) in str(process.info["cwd"]):
            found.append(process.pid)
    return found


def test_a_plan_in_conflict_is_shown_with_its_reason(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["tax"]
    bench.wait(plan_id, "execute", "complete")
    bench.go(page, plan_id)
    press(page, "Apply", "Apply")
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Not applied")
    expect(needs.get_by_role("list", name="Conflicting files")).to_contain_text("prices.sh")
    for side in ("This plan", "The repository"):
        expect(needs.get_by_role("group", name=side).first).to_be_visible()
    expect(needs.get_by_role("button", name="Rebase")).to_be_visible()
    sent: list[Any] = []

    def refuse(route: Route) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(status=409, json={"code": "result-changed", "title": "", "detail": "changed since"})

    page.route("**/resolve", refuse, times=1)
    needs.get_by_role("button", name="Take this plan: prices.sh").click()
    expect(needs).to_contain_text("changed since")
    plan = bench.account(plan_id)
    assert sent == [{"path": "prices.sh", "take": "ours", "version": plan["version"], "tree": plan["tree"]}]
    needs.get_by_role("button", name="Leave prices.sh out").click()
    expect(needs).to_contain_text("left out")
    bench.agrees(page, plan_id)
    assert "119" not in (bench.sample.text("prices.sh") or "")


def test_a_plan_is_applied_and_undone_on_the_page(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["receipt"]
    bench.wait(plan_id, "execute", "complete")
    before = bench.sample.text("receipt.sh")
    bench.go(page, plan_id)
    press(page, "Apply", "Apply")
    expect(page.locator(".p-state")).to_contain_text("applied")
    assert bench.sample.text("receipt.sh") != before
    bench.go(page, plan_id)
    expect(page.locator(".p-state")).to_have_text("applied")
    assert words_of(page) == ["applied"]
    press(page, "Undo", "Undo")
    expect(page.locator(".p-state")).to_contain_text("undone")
    assert bench.sample.text("receipt.sh") == before
    bench.agrees(page, plan_id)


def test_a_decision_is_corrected_after_what_that_undoes_was_shown(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["welcome"]
    bench.wait(plan_id, "execute", "complete")
    bench.go(page, plan_id, "decisions")
    page.get_by_role("button", name="Correct …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("group", name="Effects")).to_contain_text("README.md")
    dialog.get_by_role("textbox", name="Guidance").fill("At the beginning, please")
    dialog.get_by_role("button", name="Correct").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("At the beginning, please").first).to_be_visible()
    bench.wait(plan_id, "execute", "complete")
    page.get_by_label(re.compile("superseded")).check()
    states = [one["state"] for one in bench.api.get(f"/plans/{plan_id}/decisions").json()["items"]]
    expect(page.locator(".p-decision.p-gone")).to_have_count(states.count("superseded"))
    expect(page.locator(".p-decision:not(.p-gone)")).to_have_count(states.count("active"))
    assert states.count("superseded") == 1
    bench.agrees(page, plan_id)


def test_a_plan_that_may_spend_no_more_goes_on_when_it_is_allowed_more(
    bench: PlanPageBench, page: Page
) -> None:
    plan_id = bench.begin("welcome", limits={"steps": 2})
    bench.go(page, plan_id)
    needs = page.get_by_role("region", name="Pending request")
    expect(needs).to_contain_text("Budget spent")
    needs.get_by_role("spinbutton", name="Model calls").fill("30")
    needs.get_by_role("button", name="Raise limit").click()
    expect(page.locator(".p-state")).to_contain_text("ready")
    bench.agrees(page, plan_id)
    assert bench.account(plan_id)["spending"]["limits"]["steps"] == 30


def test_the_slower_of_two_users_sees_the_conflict_and_the_current_state(
    bench: PlanPageBench, ids: dict[str, str], page: Page
) -> None:
    plan_id = ids["catalogue"]
    bench.go(page, plan_id)
    # The page gets no events for a moment: another user is faster.
    page.get_by_role("group", name="Actions").get_by_role("button", name="Discard").click()
    page.route("**/api/plans/*/reject", lambda route: _rejected_first(bench, plan_id, route))
    page.get_by_role("dialog").get_by_role("button", name="Discard", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator(".p-state")).to_contain_text("discarded")
    page.unroute("**/api/plans/*/reject")
    page.get_by_role("button", name="Go back").click()
    bench.agrees(page, plan_id)


def _rejected_first(bench: PlanPageBench, plan_id: str, route: Route) -> None:
    assert bench.api.post(f"/plans/{plan_id}/reject", json={}).status_code < 300
    route.continue_()


_UNNAMED = """() => [...document.querySelectorAll("main button, main input, main a, main textarea")]
  .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length))
  .map((one) => one.outerHTML)"""


def test_every_part_is_reached_by_a_key_has_names_and_fits_a_narrow_screen(
    bench: PlanPageBench, ids: dict[str, str]
) -> None:
    narrow = bench.open(ids["discount"], viewport={"width": 360, "height": 740}, color_scheme="dark")
    tabs = ["Conversation", "Diff", "Checks", "Sub-plans", "Details"]
    details = ["Timeline", "Output", "Decisions", "Actors", "Cost & budget"]
    keys = [*enumerate(tabs, start=1), *(("ArrowRight", name) for name in details[1:])]
    for key, name in keys:
        if key == "ArrowRight":
            narrow.get_by_role("tablist", name="Details").get_by_role("tab", selected=True).focus()
        tab = narrow.get_by_role("tab", name=name, selected=True)
        until(name, partial(_pressed, narrow, str(key), tab))
        expect(narrow.locator("#p-panel .loading")).to_have_count(0)
        assert narrow.evaluate("document.documentElement.scrollWidth") <= 360, name
        assert narrow.evaluate(_UNNAMED) == [], name
    narrow.context.close()


def _pressed(page: Page, key: str, wanted: Locator) -> bool:
    """Presses it; whether that led there. A key is heard once the page has drawn itself."""
    page.keyboard.press(key)
    return wanted.is_visible()


def test_a_viewer_sees_everything_and_can_do_nothing(bench: PlanPageBench, ids: dict[str, str]) -> None:
    bench.api.post("/users", json={"name": "vera", "role": "viewer"})
    project = bench.api.get(f"/plans/{ids['welcome']}").json()["project"]
    bench.api.put(f"/projects/{project}/members/vera", json={"role": "viewer"}).raise_for_status()
    token = bench.api.post("/users/vera/tokens", json={"label": "test"}).json()["token"]
    page = bench.open(ids["welcome"], "diff", token=token)
    expect(page.get_by_role("region", name="README.md")).to_be_visible()
    expect(page.get_by_role("group", name="Actions").get_by_role("button")).to_have_count(0)
    expect(page.get_by_role("button", name="Leave out")).to_have_count(0)
    page.context.close()
