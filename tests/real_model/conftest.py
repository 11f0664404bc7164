"""The server that the real model is asked through; it ends with the module that asks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = os.environ.get("CLEVERAGENTS_REAL_MODEL_PYTHON", "")
"""The interpreter of the environment that has the model."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """None of them can do without the model, and all of them wait for it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skipif(not PYTHON, reason="serves a real model: nox -s real_model"))
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "log"
    command = [PYTHON, str(Path(__file__).with_name("serve.py"))]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as server,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url, log.read_text()
        yield url
        server.communicate(timeout=60)
