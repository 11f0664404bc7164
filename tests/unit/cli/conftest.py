"""The command line in a repository of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_bench import Agents, command_line, paint_shop, use_home


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for all tests of a module; each works on a repository of its own."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def repository(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, state)
    root = paint_shop(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def agents(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    with command_line(monkeypatch, capfd) as run:
        yield run
