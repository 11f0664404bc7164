"""What explorations must not leave behind."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True)
def nothing_is_printed(logging_is_as_it_was: None) -> None:
    """structlog keeps a lock for what it prints to; one that was made inside an exploration works in no
    other place, and would fail whoever logs next."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
