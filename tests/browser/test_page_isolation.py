"""The page of a server that runs commands without isolation says so, wherever one looks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.test_page import VIEWS
from tests.page_bench import PageBench, page_bench


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
        with page_bench(tmp_path_factory.mktemp("page"), workers=1) as made:
            yield made


def test_every_page_and_every_plan_say_that_commands_are_not_isolated(bench: PageBench) -> None:
    page = bench.visit().page
    for path in VIEWS:
        page.goto(f"{bench.url}{path}")
        banner = page.locator("#unisolated")
        expect(banner).to_contain_text("Commands are not isolated on server-")
    body = {"action": "builtin/command", "resource": "paint-shop", "arguments": {"argv": ["true"]}}
    plan = bench.ask("POST", "/plans", json=body)
    page.goto(f"{bench.url}/plans/{plan['id']}")
    expect(page.locator("#unisolated")).to_be_visible()
    about = page.get_by_label("About this plan")
    expect(about).to_contain_text("none: commands run with all rights of the worker's user")
