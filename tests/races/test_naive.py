"""Every naive class is in the list, so that the page on concurrency must mention it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.races.naive import NAIVE


def test_every_naive_class_is_listed() -> None:
    modules = [import_module(f"tests.races.{path.stem}") for path in Path(__file__).parent.glob("naive_*.py")]
    written = {f"{module.__name__}.{name}" for module in modules for name in module.__all__}
    assert written == {f"{cls.__module__}.{cls.__name__}" for cls in NAIVE}
