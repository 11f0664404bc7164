"""Each numbered promise is in the README and the specification, and is named by a test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISES = {f"G{number}" for number in range(1, 15)}


def test_every_promise_is_documented_and_tested() -> None:
    tests = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "features").glob("*.feature")]
    others = [path for path in tests if path != Path(__file__)]
    for place in ([ROOT / "README.md"], [ROOT / "docs" / "specification.md"], others):
        assert PROMISES - _named(place) == set(), place[0].name


def _named(paths: list[Path]) -> set[str]:
    """Return the numbers in the files; a range counts for all its members."""
    found: set[str] = set()
    for path in paths:
        text = path.read_text(encoding="utf-8").replace(
            "G1–G14", ""
        )  # the range of all promises is not a promise
        found |= set(re.findall(r"\bG\d+\b", text))
        for first, last in re.findall(r"\bG(\d+)–G(\d+)\b", text):
            found |= {f"G{number}" for number in range(int(first), int(last) + 1)}
    return found
