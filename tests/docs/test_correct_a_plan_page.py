"""The page on correcting a plan can be followed: every command runs and prints the shown output.

`python -m tests.docs.test_correct_a_plan_page` updates the shown output.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.transcript import Reader, alike

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "correct-a-plan.md"
SHORT = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{6}(?=@1 | --stat)")


def told(text: str) -> str:
    return SHORT.sub("PLAN", alike(text))


def test_the_page_shows_the_real_output(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "error:" not in text  # left by an update while something was broken
    assert told(Reader(tmp_path).retold(text)) == told(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(Reader(Path(home)).retold(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
