"""Each promise with a number is told in the README and the specification, and a test is named for it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISES = {f"G{number}" for number in range(1, 15)}


def test_every_promise_is_told_and_tested() -> None:
    tests = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "features").glob("*.feature")]
    others = [path for path in tests if path != Path(__file__)]
    for place in ([ROOT / "README.md"], [ROOT / "docs" / "specification.md"], others):
        assert PROMISES - _named(place) == set(), place[0].name


def _named(paths: list[Path]) -> set[str]:
    """The numbers that are there; a range names all of its own."""
    found: set[str] = set()
    for path in paths:
        text = path.read_text(encoding="utf-8").replace("G1–G14", "")  # that is no promise, but all of them
        found |= set(re.findall(r"\bG\d+\b", text))
        for first, last in re.findall(r"\bG(\d+)–G(\d+)\b", text):
            found |= {f"G{number}" for number in range(int(first), int(last) + 1)}
    return found
