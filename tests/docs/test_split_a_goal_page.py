"""The page on splitting a goal can be followed: every command runs and prints the shown output.

Parallel sub-plans print their lines in any order, so a block is compared by its set of lines.
`python -m tests.docs.test_split_a_goal_page` updates the shown output.
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
    # The sub-plan that finishes first is merged first.
    (re.compile(r"^\d(?= +merge)", re.MULTILINE), "NUMBER"),
)


def lines_of(text: str) -> list[list[str]]:
    """Return the lines of each block, without the parts that differ from run to run."""
    blocks = []
    for block in map(alike, CONSOLE.findall(text)):
        for pattern, name in VARYING:
            block = pattern.sub(name, block)
        blocks.append(sorted(block.splitlines()))
    return blocks


def test_the_page_shows_the_real_output(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "error:" not in text  # left by an update while something was broken
    assert lines_of(Reader(tmp_path).retold(text)) == lines_of(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(Reader(Path(home)).retold(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
