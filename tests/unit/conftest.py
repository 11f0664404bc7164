"""What several of the unit tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plan_bench import BenchParts, PlanBench, new_repository, plan_bench
from tests.worker_bench import Bench


@pytest.fixture
def bench() -> Bench:
    """Workers on one store, moved by hand."""
    return Bench()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanBench]:
    """The parts of the plan engine on one database for a whole module."""
    with plan_bench(tmp_path_factory.mktemp("engine")) as made:
        yield made


@pytest.fixture
def plans(engine: PlanBench, tmp_path: Path) -> PlanBench:
    """Plans on a repository of the test's own."""
    engine.repository = new_repository(tmp_path / "repository")
    engine.adapt = lambda run: run
    engine.parts = BenchParts(engine.container)
    engine.said.clear()
    return engine
