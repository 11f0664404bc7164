"""What several of the unit tests begin with."""

from __future__ import annotations

import pytest

from tests.worker_bench import Bench


@pytest.fixture
def bench() -> Bench:
    """Workers on one store, moved by hand."""
    return Bench()
