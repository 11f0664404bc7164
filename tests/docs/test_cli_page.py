"""The page on the command line describes every command, option of `run`, and check of the doctor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from cleveragents.cli.commands import cli
from tests.cli_bench import REPLACE, command_line, paint_shop, use_home

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")


def test_every_command_has_a_section() -> None:
    headings = " ".join(line for line in PAGE.splitlines() if line.startswith("## "))
    missing = [name for name in cli.list_commands(click.Context(cli)) if f"`agents {name}`" not in headings]
    assert missing == []


def test_every_command_of_plans_is_in_the_table() -> None:
    plan = cli.get_command(click.Context(cli), "plan")
    assert isinstance(plan, click.Group)
    named = re.findall(r"^\| `(\w+) \[?PLAN|^\| `(\w+)`", PAGE, re.MULTILINE)
    known = {word for pair in named for word in pair} | set(re.findall(r"`(\w+) \[PLAN\] \[NUMBER\]`", PAGE))
    assert [name for name in plan.list_commands(click.Context(plan)) if name not in known] == []


def test_every_option_of_run_is_explained() -> None:
    run = cli.get_command(click.Context(cli), "run")
    assert run is not None
    options = [name for option in run.params for name in option.opts if not getattr(option, "hidden", False)]
    spelt = re.findall(r"`(--?[a-z-]+)\b", _section("run"))
    assert [name for name in options if name.startswith("-") and name not in {*spelt, "--format"}] == []


@pytest.mark.parametrize("name", [name for name in cli.list_commands(click.Context(cli)) if name != "plan"])
def test_every_command_of_a_group_is_in_its_section_or_a_linked_page(name: str) -> None:
    group = cli.get_command(click.Context(cli), name)
    if not isinstance(group, click.Group):
        return
    section = _section(name)
    pages = [(DOCS / link).read_text(encoding="utf-8") for link in re.findall(r"\]\(([\w./-]+\.md)", section)]
    text = re.sub(r"^```.*$", "", "\n".join([section, *pages]), flags=re.MULTILINE)
    spelt = re.finditer(r"`[^`\n]+`|^(?:\$ )?agents .*$", text, re.MULTILINE)
    said = " ".join(found[0] for found in spelt)
    commands = group.list_commands(click.Context(group))
    assert [each for each in commands if not re.search(rf"\b{each}\b", said)] == []


def test_every_field_of_a_plan_for_programs_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(paint_shop(tmp_path / "shop"))
    with command_line(monkeypatch, capfd) as agents:
        plan = agents(*REPLACE, "--review").id
        shown = json.loads(agents("plan", "show", plan, "--format", "json").out)
    table = PAGE.partition("gives programs the same object")[2].partition("\n\n`diff")[0]
    named = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines() if "|" in row))
    assert [name for name in shown if name not in named] == []


def _section(name: str) -> str:
    """Return the section of a command, up to the next heading."""
    return PAGE.partition(f"`agents {name}`")[2].partition("\n## ")[0]


def test_every_check_of_the_doctor_is_shown_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capfd) as agents:
        assert agents("plan", "list").code == 0  # without a database there are fewer checks
        names = {row["check"] for row in json.loads(agents("doctor", "--format", "json").out)}
    shown = PAGE.partition("$ agents doctor\n")[2].partition("\n```")[0]
    explained = PAGE.partition("| check | what it looks at |\n")[2].partition("\n\n")[0]
    assert {line.partition("  ")[0] for line in shown.splitlines()[1:]} == names
    assert (
        set(re.findall(r"`([^`]+)`", "".join(row.split("|")[1] for row in explained.splitlines()))) >= names
    )
