"""Accessibility: axe-core finds no violation on any view, in both themes and on narrow screens."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page_bench import until
from tests.plan_page_bench import PlanPageBench, plan_page_bench

VENDOR = Path(__file__).parent / "vendor"
AXE = (VENDOR / "axe.min.js").read_text()
VIEWS = ["/", "/new", "/sessions", "/context", "/costs", "/events", "/jobs", "/projects", "/users", "/docs"]
TABS = ["conversation", "diff", "checks", "plans", "timeline", "output", "decisions", "graph", "budget"]
SCREENS: dict[str, Any] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanPageBench]:
    with plan_page_bench(tmp_path_factory.mktemp("axe")) as made:
        yield made


@pytest.fixture(scope="module")
def plans(bench: PlanPageBench) -> dict[str, str]:
    ids = {"waiting": bench.begin("discount", profile="review"), "ready": bench.begin("receipt")}
    bench.wait(ids["ready"], "execute", "complete")
    until("the request", lambda: bench.account(ids["waiting"])["needs"] == "approval")
    return ids


def violations(page: Page) -> list[str]:
    """Return each violation with the elements that have it."""
    expect(page.locator(".loading, [aria-busy='true']")).to_have_count(0)
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("screen", SCREENS)
def test_no_view_violates_a_rule(bench: PlanPageBench, plans: dict[str, str], screen: str) -> None:
    # The policy of the page refuses the inline styles of the checker.
    page = bench.server.visit(bypass_csp=True, **SCREENS[screen]).page
    found: list[str] = []

    def check(where: str) -> None:
        found.extend(f"{where}: {problem}" for problem in violations(page))

    for view in VIEWS:
        page.goto(f"{bench.server.url}{view}")
        page.locator("main h1").wait_for()
        check(view)
    for tab in TABS:
        bench.go(page, plans["ready"], tab)
        check(tab)
    bench.go(page, plans["waiting"])
    check("waiting")
    page.get_by_role("button", name="Cancel").first.click()
    check("dialog")
    assert not found, "\n".join(found)


def test_the_checker_is_unmodified_and_has_a_licence() -> None:
    digest = sha256((VENDOR / "axe.min.js").read_bytes()).hexdigest()
    assert digest in (VENDOR / "ORIGIN.txt").read_text()
    assert "Mozilla Public License" in (VENDOR / "LICENSE.axe-core.txt").read_text()
