"""Fixtures that keep explorations from affecting other tests."""

from __future__ import annotations

import pytest
import structlog

from cleveragents.core import errors
from cleveragents.core.errors.families import error_fields

for name in errors.__all__:
    kind = getattr(errors, name)
    if isinstance(kind, type) and issubclass(kind, errors.CleverAgentsError):
        # Otherwise the first error of a class would take other steps than the next one, and an explorer that
        # repeats a schedule would find another program.
        error_fields(kind)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set a timeout longer than an exploration may take, so that one that does not end reports itself."""
    for item in items:
        if "tests/races/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(autouse=True)
def nothing_is_printed(logging_is_as_it_was: None) -> None:
    """Disable printing, because structlog's output lock made inside an exploration works nowhere else."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
