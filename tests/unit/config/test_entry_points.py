"""Entry points of installed packages are cached until a package is installed or removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from cleveragents.config.entry_points import installed
from cleveragents.context.strategy_registry import StrategyRegistry
from cleveragents.tools.registry import ToolRegistry


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list with one entry for each search for packages."""
    asked: list[Any] = []

    class Finder:
        @staticmethod
        def find_spec(*_: Any) -> None:
            return None

        @staticmethod
        def find_distributions(context: Any) -> Iterator[Distribution]:
            asked.append(context)
            return iter(())

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    return asked


def install(site: Path, name: str, group: str) -> None:
    made = site / f"{name}-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}_code:make\n")
    later = site.stat().st_mtime_ns + 1_000_000_000  # a file system may give two changes the same time
    os.utime(site, ns=(later, later))


def test_groups_are_separate_and_a_new_package_is_found(site: Path) -> None:
    assert installed("test.groups") == ()
    install(site, "one", "test.groups")
    install(site, "two", "test.others")
    assert [entry.name for entry in installed("test.groups")] == ["one"]
    assert [entry.name for entry in installed("test.others")] == ["two"]


@pytest.mark.parametrize(
    "look", [lambda: StrategyRegistry().offers(), lambda: ToolRegistry().names()], ids=["strategies", "tools"]
)
@pytest.mark.usefixtures("site")
def test_package_metadata_is_cached(readings: list[Any], look: Callable[[], Any]) -> None:
    look()
    before = len(readings)
    look()
    assert 0 < len(readings) == before
