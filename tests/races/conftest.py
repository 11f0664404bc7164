"""What explorations must not leave behind."""

from __future__ import annotations

import pytest
import structlog


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longer than an exploration may take, so that one that does not end is told as such."""
    for item in items:
        if "tests/races/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True)
def nothing_is_printed(logging_is_as_it_was: None) -> None:
    """structlog keeps a lock for what it prints to; one that was made inside an exploration works in no
    other place, and would fail whoever logs next."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
