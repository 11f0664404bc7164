"""Settings for tests that kill processes: they wait for many of them, beside other such tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_server import COMMANDS, nursery

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("*.py"))


@pytest.fixture(scope="session", autouse=True)
def programs_are_forked() -> Iterator[None]:
    """Fork the programs, so that their imports happen once for all of them."""
    programs = [f"tests.crash.programs.{name}" for name in PROGRAMS]
    with nursery([*programs, "tests.contracts.store_child", COMMANDS]):
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set timeouts longer than any wait inside a test, so that the test itself reports a failed wait."""
    for item in items:
        if "tests/crash/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1200))
