"""The manual page has the help of all commands."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tools.man_page import PAGE, man_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """`python -m tools.man_page` updates it."""
    assert PAGE.read_text(encoding="utf-8") == man_page()


def test_every_command_has_a_section_with_its_options() -> None:
    page = man_page()
    assert '.SH "agents plan apply"\n' in page
    assert "\\fB\\-\\-commit [MESSAGE]\\fR\n" in page
    assert ".nf\nExample:\n" in page


def test_the_wheel_contains_the_page() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"]["shared-data"] == {"docs/man/agents.1": "share/man/man1/agents.1"}
