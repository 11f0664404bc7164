"""The page on correcting a plan can be followed: every command runs, and says what is shown.

`python -m tests.docs.test_correct_a_plan_page` writes what the commands say anew.
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


def test_whoever_follows_the_page_sees_what_is_shown(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "error:" not in text  # of what was written anew while something was broken
    assert told(Reader(tmp_path).retold(text)) == told(text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(Reader(Path(home)).retold(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
