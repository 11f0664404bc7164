"""The guided first start: a repository, a model and its key."""

from __future__ import annotations

import shutil

from playwright.sync_api import Route, expect

from tests.page_bench import PageBench


def _nothing(route: Route) -> None:
    route.fulfill(json={"items": [], "next": None})


def test_a_first_start_leads_to_the_form_of_a_new_plan(bench: PageBench) -> None:
    visit = bench.visit()
    page = visit.page
    page.route(
        "**/api/resources*",
        lambda route: _nothing(route) if route.request.method == "GET" else route.fallback(),
    )
    page.goto(f"{bench.url}/new")
    start = page.get_by_role("region", name="Get started")
    expect(start.get_by_role("heading", name="Add a repository")).to_contain_text("to do")
    other = bench.sample.root.with_name("other-shop")
    shutil.copytree(bench.sample.root, other)
    start.get_by_label("Directory").fill(str(other))
    page.unroute("**/api/resources*")
    start.get_by_role("button", name="Add repository").click()
    expect(page.get_by_label("Goal", exact=True)).to_be_visible()
