"""No comment suppresses a checker, in sources or tests."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("src", "tests", "features", "robot", "benchmarks", "models")
HIDING = re.compile(r"#\s*(type:\s*ignore|noqa|pragma:\s*no\s*cover|pyright:)", re.IGNORECASE)


def test_no_comment_suppresses_a_finding() -> None:
    paths = [ROOT / "noxfile.py", *(path for place in OURS for path in sorted((ROOT / place).rglob("*.py")))]
    suspected = [path for path in paths if HIDING.search(path.read_text(encoding="utf-8"))]
    found = [f"{path.relative_to(ROOT)}: {comment}" for path in suspected for comment in _comments(path)]
    assert [comment for comment in found if HIDING.search(comment)] == []


def _comments(path: Path) -> Iterator[str]:
    with tokenize.open(path) as opened:
        for token in tokenize.generate_tokens(opened.readline):
            if token.type == tokenize.COMMENT:
                yield token.string
