"""For every test in a real browser: where there is none, it says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.page_bench import CHROMIUM, PageBench, page_bench


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        reason = "no Chromium on this machine: install it (Debian: apt-get install chromium)"
        for item in items:
            if "tests/browser/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageBench]:
    with page_bench(tmp_path_factory.mktemp("page")) as made:
        yield made


@pytest.fixture
def bench(server: PageBench) -> Iterator[PageBench]:
    """The module's server; browsers that a test opened are closed, and had nothing to complain about."""
    yield server
    server.close_visits()
