"""For every test in a real browser: where there is none, it says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, sync_playwright

from cleveragents.server.routes.page import page_files
from tests.page_bench import CHROMIUM, PATIENCE_MS, PageBench, page_bench

_ORIGIN = "http://page.test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if "tests/browser/" in item.path.as_posix()]
    for item in mine:
        # Longer than any wait, so that a failed wait reports its details.
        item.add_marker(pytest.mark.timeout(600))
    if CHROMIUM is None:
        reason = "no Chromium on this machine: install it (Debian: apt-get install chromium)"
        for item in mine:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def servers_are_forked(commands_are_forked: None) -> None:
    """Fork servers from one process, so that imports happen once."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBench]:
    with page_bench(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.fixture
def bench(server: PageBench) -> Iterator[PageBench]:
    """The module's server; browsers that a test opened are closed, and had nothing to complain about."""
    yield server
    server.close_visits()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """An empty document that may import the page's modules; no server is asked."""
    with sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=PATIENCE_MS)
        empty = browser.new_page()
        empty.set_default_timeout(PATIENCE_MS)
        empty.route(f"{_ORIGIN}/**", _answered)
        empty.goto(f"{_ORIGIN}/")
        yield empty
        browser.close()


def _answered(route: Route) -> None:
    path = route.request.url.removeprefix(f"{_ORIGIN}/static/")
    found = page_files().by_path.get(path)
    if found is None:
        route.fulfill(content_type="text/html", body="<!doctype html><title>empty</title>")
    else:
        route.fulfill(content_type=found.media_type, body=found.content)
