"""Servers of real models; each ends with the module that uses it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real_model.weights import WeightsMissing, prepare

PYTHON = os.environ.get("CLEVERAGENTS_REAL_MODEL_PYTHON", "")
"""The interpreter of the environment that has the server."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests without a model, and give them the time that a model takes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skipif(not PYTHON, reason="serves a real model: nox -s real_model"))
            item.add_marker(pytest.mark.timeout(1800))


@contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[str]:
    """Serve a model and yield the base URL of its server."""
    log = directory / "log"
    command = [PYTHON, str(Path(__file__).with_name("serve.py")), *arguments]
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


@pytest.fixture(scope="module")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("server"), "smollm2") as url:
        yield url


@pytest.fixture(scope="module")
def coder_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server of the coding model with 1.5 billion parameters."""
    try:
        file = prepare("qwen2.5-coder-1.5b")
    except WeightsMissing as missing:
        pytest.skip(f"no weights: {missing}")
    with serving(tmp_path_factory.mktemp("server"), str(file), "16384") as url:
        yield url
