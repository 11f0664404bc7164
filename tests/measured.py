"""Counts which lines and branches of the program run: `pytest -p tests.measured`, reported by SlipCover.

It puts a probe into every line when a module of ours is imported; other people's code runs as it always does.
A tracer is told of every line of everything, which took nearly twice the time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from slipcover import FileMatcher, ImportManager, Slipcover
from slipcover.config import read_config
from slipcover.importer import wrap_spec_from_file_location

__all__ = ["pytest_load_initial_conftests", "pytest_sessionfinish"]

_ROOT = Path(__file__).parents[1]
_PROGRAM = _ROOT / "src" / "cleveragents"
# One more process would say the same of modules that nobody imports.
_FIRST = "gw0"
# To take probes out that have done their duty, it looks through all modules and all threads.
_NEVER = 1 << 30

_counted: list[Slipcover] = []


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anybody imports what is to be counted. Who only hands tests out runs none."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None and early_config.known_args_namespace.numprocesses:
        return
    assert not any(name.split(".")[0] == "cleveragents" for name in sys.modules)
    unseen = [str(_PROGRAM)] if worker in (None, _FIRST) else None
    excluded = read_config(_ROOT / "pyproject.toml")["exclude-also"]
    counted = Slipcover(branch=True, d_miss_threshold=_NEVER, source=unseen, exclude_also=excluded)
    matcher = FileMatcher(sources=[_PROGRAM])
    ImportManager(counted, matcher).__enter__()
    wrap_spec_from_file_location(counted, matcher)  # migrations are loaded by their paths
    _counted.append(counted)


def pytest_sessionfinish() -> None:
    """One file for each process, to be put together."""
    for counted in _counted:
        directory = _ROOT / ".coverage"
        directory.mkdir(exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        (directory / f"{name}.json").write_text(json.dumps(counted.get_coverage()))
