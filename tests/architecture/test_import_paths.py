"""Published import paths, and those of 0.1.0 that documents showed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from cleveragents.moved import MOVED

ROOT = Path(__file__).parents[2]
PUBLISHED = {
    "application.services.async_worker": ("CancellationToken", "AsyncWorker"),
    "application.services.acms_pipeline": ("CircuitBreaker", "ParallelStrategyExecutor"),
    "application.services.plan_execution_context": ("PlanExecutionContext",),
    "infrastructure.events.reactive": ("ReactiveEventBus",),
    "langgraph.bridge": ("RxPyLangGraphBridge",),
}

IMPORTS_ALL = """
import warnings
from importlib import import_module
from cleveragents.moved import MOVED
for old, new in MOVED.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeprecationWarning)
        module = import_module(f"cleveragents.{old}")
    assert module is import_module(f"cleveragents.{new}")
    assert module.__name__ == module.__spec__.name == f"cleveragents.{new}"
    [warning] = [one.message for one in caught if "has moved" in str(one.message)]
    print(warning)
"""


@pytest.mark.parametrize("path", PUBLISHED)
def test_a_published_path_offers_the_same_objects_without_a_warning(path: str) -> None:
    moves = tomllib.loads((ROOT / "moves.toml").read_text())["modules"]
    published, real = import_module(f"cleveragents.{path}"), import_module(f"cleveragents.{moves[path]}")
    assert set(PUBLISHED[path]) <= set(published.__all__)
    assert all(getattr(published, name) is getattr(real, name) for name in published.__all__)


def test_a_documented_path_of_0_1_0_is_the_new_module_and_warns() -> None:
    """In a process of its own, because an import happens once."""
    done = subprocess.run([sys.executable, "-c", IMPORTS_ALL], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    moved = [f"cleveragents.{old} has moved to cleveragents.{new}" for old, new in MOVED.items()]
    assert done.stdout.splitlines() == moved
