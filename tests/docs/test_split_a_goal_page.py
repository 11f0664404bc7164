"""The page on splitting a goal can be followed: every command runs, and says what is shown.

What runs at once says its lines in any order, so a block counts by its lines alone.
`python -m tests.docs.test_split_a_goal_page` writes what the commands say anew.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.transcript import Reader, alike

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "split-a-goal.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
VARYING = (
    (re.compile(r"^[0-9A-HJKMNP-TV-Z]{6}(?=  )", re.MULTILINE), "PART"),
    (re.compile(r"\([0-9A-HJKMNP-TV-Z]{6}\)"), "(PART)"),
    # Whichever is done first is merged first.
    (re.compile(r"^\d(?= +merge)", re.MULTILINE), "NUMBER"),
)


def lines_of(text: str) -> list[list[str]]:
    """Those of each block, without what differs from reader to reader."""
    blocks = []
    for block in map(alike, CONSOLE.findall(text)):
        for pattern, name in VARYING:
            block = pattern.sub(name, block)
        blocks.append(sorted(block.splitlines()))
    return blocks


def test_whoever_follows_the_page_sees_what_is_shown(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "error:" not in text  # of what was written anew while something was broken
    assert lines_of(Reader(tmp_path).retold(text)) == lines_of(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(Reader(Path(home)).retold(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
