"""Python's garbage collector is relaxed only while a worker may run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.jobs.object_collector import COLLECTOR, CollectorPause


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Restore Python's own threshold, without frozen objects, as all suites do."""
    COLLECTOR.release_hold()
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)
    COLLECTOR.hold()


def settings_in(directory: Path) -> Settings:
    directory.mkdir()
    told = {"state": {"directory": str(directory)}, "database": {"url": f"sqlite:///{directory}/state.db"}}
    return msgspec.convert(told, Settings)


def test_freezes_objects_from_the_first_worker_to_the_last(tmp_path: Path) -> None:
    with Container(settings_in(tmp_path / "one")) as one:
        assert gc.get_freeze_count() == 0
        with Container(settings_in(tmp_path / "other")) as other:
            one.worker({}, name="one")
            other.worker({}, name="other")
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold() == (10_000, 10, 10)
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (10_000, 10, 10)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("youngest", [0, 50_000])
def test_respects_a_collector_that_runs_even_less(youngest: int) -> None:
    gc.set_threshold(youngest, 5, 5)
    collector = CollectorPause()
    collector.hold()
    assert gc.get_threshold() == (youngest, 5, 5)
    collector.release_hold()
    assert gc.get_threshold() == (youngest, 5, 5)


def test_objects_frozen_by_other_code_stay_frozen() -> None:
    gc.freeze()
    collector = CollectorPause()
    collector.hold()
    collector.release_hold()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
