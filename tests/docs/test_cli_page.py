"""The page on the command line has a word on every command, and on every check of the doctor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from cleveragents.interfaces.cli.commands import cli
from tests.cli_bench import command_line, use_home

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def test_every_command_has_a_section() -> None:
    headings = " ".join(line for line in PAGE.splitlines() if line.startswith("## "))
    missing = [name for name in cli.list_commands(click.Context(cli)) if f"`agents {name}`" not in headings]
    assert missing == []


def test_every_command_of_plans_is_in_the_table() -> None:
    plan = cli.get_command(click.Context(cli), "plan")
    assert isinstance(plan, click.Group)
    named = re.findall(r"^\| `(\w+) PLAN|^\| `(\w+)`", PAGE, re.MULTILINE)
    known = {word for pair in named for word in pair} | set(re.findall(r"`(\w+) PLAN \[NUMBER\]`", PAGE))
    assert [name for name in plan.list_commands(click.Context(plan)) if name not in known] == []


def test_every_check_of_the_doctor_is_shown_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capfd) as agents:
        assert agents("plan", "list").code == 0  # without a database there is less to look at
        names = {row["check"] for row in json.loads(agents("doctor", "--format", "json").out)}
    shown = PAGE.partition("$ agents doctor\n")[2].partition("\n```")[0]
    explained = PAGE.partition("| check | what it looks at |\n")[2].partition("\n\n")[0]
    assert {line.partition("  ")[0] for line in shown.splitlines()[1:]} == names
    assert (
        set(re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in explained.splitlines()))) >= names
    )
