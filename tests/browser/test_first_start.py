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


def test_an_admin_chooses_a_model_and_stores_its_key(bench: PageBench) -> None:
    """The answers of the server are given: a test changes neither its settings nor a keyring."""
    visit = bench.visit()
    page, sent, known = visit.page, list[object](), {"model": "anthropic/claude-sonnet-4-5", "key": "missing"}

    def choose(route: Route) -> None:
        sent.append(route.request.post_data_json)
        known["key"] = "there" if "key" in route.request.post_data_json else "missing"
        route.fulfill(json=known)

    def about(route: Route) -> None:
        said = route.fetch().json()
        route.fulfill(json={**said, "default_model": known["model"] if sent else None})

    page.route("**/api/about", about)
    page.route("**/api/models?name=*", lambda route: route.fulfill(json={"items": [known], "next": None}))
    page.route("**/api/models/default", choose)
    page.goto(f"{bench.url}/")
    start = page.get_by_role("region", name="Get started")
    start.get_by_label("Model").fill("anthropic/claude-sonnet-4-5")
    start.get_by_role("button", name="Choose model").click()
    start.get_by_label("API key").fill("a-key")
    start.get_by_role("button", name="Store key").click()
    expect(start).to_be_hidden()  # all steps are done
    assert sent == [
        {"model": "anthropic/claude-sonnet-4-5", "base_url": None},
        {"model": "anthropic/claude-sonnet-4-5", "key": "a-key"},
    ]
