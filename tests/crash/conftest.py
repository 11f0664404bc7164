"""For every test that kills processes: it waits for many of them, beside other tests that do."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longer than any wait inside a test, so that what is waited for in vain is told by the test itself."""
    for item in items:
        if "tests/crash/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1200))
