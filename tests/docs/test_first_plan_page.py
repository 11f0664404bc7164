"""The tutorial can be followed exactly: every command of its first part runs and prints the shown output.

`python -m tests.docs.test_first_plan_page` updates the shown output.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.transcript import Reader, alike

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-plan.md"
BEGIN = "## Prepare a repository\n"
END = "## Run in the background\n"


def part_one(text: str) -> tuple[str, str, str]:
    """Return the text before, the part that depends only on this machine, and the text after."""
    before, begin, rest = text.partition(BEGIN)
    offline, end, after = rest.partition(END)
    assert begin
    assert end
    return before, begin + offline, end + after


def test_the_first_part_shows_the_real_output(tmp_path: Path) -> None:
    _, offline, _ = part_one(PAGE.read_text(encoding="utf-8"))
    assert "error:" not in offline  # left by an update while something was broken
    retold = Reader(tmp_path).retold(offline)
    assert alike(retold) == alike(offline)


@pytest.mark.parametrize("name", ["first-plan.md", "first-steps.md"])
def test_a_tutorial_needs_no_environment_of_make(name: str) -> None:
    """A user of uv tool, pipx or pip follows it to the letter."""
    text = PAGE.with_name(name).read_text()
    assert "If you have installed CleverAgents with `uv tool`, `pipx` or `pip`" in text
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    assert [block for block in blocks if ".venv" in block and not block.startswith("make demo\n")] == []


if __name__ == "__main__":
    before, offline, after = part_one(PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(before + Reader(Path(home)).retold(offline) + after, encoding="utf-8")
