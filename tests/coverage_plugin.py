"""Coverage of lines and branches: `pytest -p tests.coverage_plugin`, reported by SlipCover.

`counted` returns a command that is measured, too: for a program in a separate process. A probe is inserted
into every line when one of our modules is imported; foreign code runs unchanged. A tracer is called for every
line of all code, which took nearly twice the time. Compiling code with probes takes longer than the rest of
an import, so `tests.instrumented_code` caches it.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest
from slipcover import FileMatcher, ImportManager, Slipcover
from slipcover.config import read_config
from slipcover.importer import wrap_spec_from_file_location

from tests.instrumented_code import make_ready, take_what_is_ready

__all__ = ["counted", "pytest_load_initial_conftests", "pytest_sessionfinish"]

_ROOT = Path(__file__).parents[1]
_PROGRAM = _ROOT / "src" / "cleveragents"
# A second process would report the same about modules that are never imported.
_FIRST = "gw0"
# It scans all modules and threads to remove probes that were reached.
_NEVER = 1 << 30

_MODULE = "tests.coverage_plugin"
_counting: list[Slipcover] = []


def counted(module: str) -> list[str]:
    """Return a command that calls `main` of the module in a separate process, measured if this one is."""
    return [sys.executable, "-m", *([_MODULE] if _counting else []), module]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start before the measured modules are imported. The xdist controller runs no tests."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None or not early_config.known_args_namespace.numprocesses:
        _count([str(_PROGRAM)] if worker in (None, _FIRST) else None)
    if worker is not None:
        own, of = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        make_ready(sorted(_PROGRAM.rglob("*.py"))[own::of])


def pytest_sessionfinish() -> None:
    """Write one file for each process, to be combined."""
    _keep(os.environ.get("PYTEST_XDIST_WORKER", "alone"))


def _count(unseen: list[str] | None) -> None:
    assert not any(name.split(".")[0] == "cleveragents" for name in sys.modules)
    excluded = read_config(_ROOT / "pyproject.toml")["exclude-also"]
    counting = Slipcover(branch=True, d_miss_threshold=_NEVER, source=unseen, exclude_also=excluded)
    take_what_is_ready()
    matcher = FileMatcher(sources=[_PROGRAM])
    ImportManager(counting, matcher).__enter__()
    wrap_spec_from_file_location(counting, matcher)  # migrations are loaded by their paths
    _counting.append(counting)


def _keep(name: str) -> None:
    for counting in _counting:
        directory = _ROOT / ".coverage"
        directory.mkdir(exist_ok=True)
        (directory / f"{name}.json").write_text(json.dumps(counting.get_coverage()))


if __name__ == "__main__":
    _count(None)
    try:
        sys.exit(import_module(sys.argv[1]).main())
    finally:
        _keep(f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}-{os.getpid()}")
