"""Search on the board, the costs of model calls, and notifications."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.page_bench import until
from tests.plan_page_bench import PlanPageBench, plan_page_bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanPageBench]:
    with plan_page_bench(tmp_path_factory.mktemp("search")) as made:
        yield made


def test_a_plan_is_found_by_what_its_agent_wrote_and_costs_are_shown(bench: PlanPageBench) -> None:
    plan_id = bench.begin("discount")
    bench.wait(plan_id, "execute", "complete")
    page = bench.server.visit().go("/")
    page.keyboard.press("/")
    page.keyboard.type("lt 100 ] ||")
    found = page.get_by_role("region", name="Found in plans")
    expect(found).to_contain_text("Changes")
    expect(found.locator("mark").first).to_have_text("lt 100 ] ||")
    page.get_by_label("Search plans").fill("no plan says this")
    expect(page.get_by_text("No matching plans")).to_be_visible()
    page.get_by_label("Search plans").fill("test_discount.sh")
    found.get_by_role("link").first.click()
    expect(page.locator(f"[data-plan='{plan_id}']")).to_be_visible()

    page.goto(f"{bench.server.url}/costs")
    spent = bench.account(plan_id)["spending"]
    calls = page.get_by_role("region", name="Costs by actor")
    expect(calls).to_contain_text("builtin/executor")
    shown = page.locator(".cost-sums div", has_text="Model calls").locator("dd")
    expect(shown).to_have_text(str(spent["model_calls"]))
    page.get_by_label("Period").select_option("7")
    page.get_by_role("link", name="paint").click()
    expect(page.get_by_text("Only project paint")).to_be_visible()
    expect(shown).to_have_text(str(spent["model_calls"]))


_RECORDED = """window.shown = [];
window.Notification = class { constructor(title, options) { window.shown.push([title, options.body]); } };
window.Notification.permission = "default";
window.Notification.requestPermission = async () => (window.Notification.permission = "granted");"""


def test_a_notification_is_shown_once_the_user_turned_them_on(bench: PlanPageBench) -> None:
    visit = bench.server.visit()
    visit.page.add_init_script(_RECORDED)
    page = visit.go("/jobs")
    expect(page.locator(".connection")).to_contain_text("Live")
    bench.wait(bench.begin("receipt"), "execute", "complete")
    last = bench.server.ask("GET", "/events?limit=1")["items"][0]["position"]
    position = "Number(sessionStorage.getItem('cleveragents.position'))"
    until("the events of the first plan", lambda: bool(page.evaluate(position) >= last))
    assert page.evaluate("window.shown") == []
    page.get_by_role("button", name="Turn notifications on").click()
    expect(page.get_by_role("button", name="Turn notifications off")).to_be_visible()
    goal = bench.account(bench.begin("welcome"))["goal"]
    until("the notification", lambda: page.evaluate("window.shown") == [[goal, "Ready for review"]])
