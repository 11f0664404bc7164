"""Narrow terminals: what is left out, so that the rest can be read."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from cleveragents.cli.output import Output, printed, progress
from cleveragents.cli.render.narrow_terminal import columns_for, in_lines, steps_in_lines
from tests.cli_bench import REPLACE, Agents, Terminal, command_line, paint_shop, use_home

STEPS = [("agents plan diff 7QX2", "shows what it changed"), ("agents plan undo 7QX2", "takes it out again")]


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(paint_shop(tmp_path / "repository"))
    with command_line(monkeypatch, capfd) as run:
        yield run


def wide(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))


@pytest.mark.parametrize("columns", [40, 59])
def test_a_table_without_room_has_fewer_columns_and_no_broken_words(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    wide(monkeypatch, columns)
    tools = agents("tool", "list", "--format", "rich").out
    assert tools.splitlines()[0].split() == ["name", "description"]
    assert "Replaces an exact text" in tools
    models = agents("model", "list", "--format", "rich").out.splitlines()
    assert "anthropic/claude-haiku-4-5" in {line.split()[0] for line in models if line.strip()}
    assert max(len(line) for line in [*models, *tools.splitlines()]) <= columns


def test_plans_are_listed_by_ends_of_their_ids_that_name_them(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide(monkeypatch, 40)
    ran = agents(*REPLACE)
    heading, _, row, *_ = agents("plan", "list", "--format", "rich").out.splitlines()
    assert heading.split() == ["id", "status", "updated", "goal"]
    short = row.split()[0]
    assert ran.id.endswith(short)
    assert "agents plan apply" in agents("plan", "show", short).out
    shown = agents("plan", "log", short, "--format", "rich").out
    assert "…" not in shown.splitlines()[0], "no heading is cut"


def test_nothing_is_left_out_where_there_is_room_or_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, 59)
    every = ["name", "needs"]
    assert columns_for(Output("plain"), every, ["needs"]) == every
    assert columns_for(Output("rich"), every, ["needs"]) == ["name"]
    wide(monkeypatch, 60)
    assert columns_for(Output("rich"), every, ["needs"]) == every


def test_a_description_is_beside_or_below_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = [
        "  agents plan diff 7QX2  shows what it changed",
        "  agents plan undo 7QX2  takes it out again",
    ]
    wide(monkeypatch, 40)
    assert steps_in_lines(STEPS, StringIO()) == beside
    assert steps_in_lines(STEPS, Terminal()) == [
        "  agents plan diff 7QX2",
        "    shows what it changed",
        "  agents plan undo 7QX2",
        "    takes it out again",
    ]
    wide(monkeypatch, len(beside[0]))
    assert steps_in_lines(STEPS, Terminal()) == beside
    assert steps_in_lines([], Terminal()) == []


def test_an_error_is_broken_between_words_and_never_within_a_command_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide(monkeypatch, 60)
    command = "`agents plan resume 01M7G3V99K985KXNFW6883HCQ7 --yes`"
    said = f"it waits for what you have to say of it, and then {command} goes on; x{'y' * 70} is left"
    lines = in_lines(said, Terminal(), taken=7)
    assert lines[0] == "it waits for what you have to say of it, and then"
    assert lines[1].startswith(f"{command} ")
    assert f"x{'y' * 70}" in lines
    assert " ".join(lines) == said
    long = f"`agents run {'word ' * 20}`"
    assert len(in_lines(long, Terminal())) > 1
    assert in_lines("", Terminal()) == [""]
    assert in_lines(said, StringIO()) == [said]


def test_sentences_wrap_and_copyable_text_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wide(monkeypatch, 40)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress("the plan continues; stop it with `agents plan cancel 7QX2`\a")
    progress("  agents plan rollback 01M7EMB7PF5FZZMZKGQEAJMPDK 3")
    printed("7QX2    test_prices_of_a_customer.py passed")
    progress("")
    assert terminal.getvalue().split("\n") == [
        "the plan continues; stop it with",
        "`agents plan cancel 7QX2`\\x07",
        "  agents plan rollback 01M7EMB7PF5FZZMZKGQEAJMPDK 3",
        "7QX2    test_prices_of_a_customer.py passed",
        "",
        "",
    ]


def test_the_terminal_that_is_written_to_counts_where_the_result_goes_to_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 40))
    with os.fdopen(leader), os.fdopen(follower, "w") as terminal:
        lines = in_lines("there is no setting 'worker.nope'; did you mean 'worker.poll_seconds'?", terminal)
    assert lines == ["there is no setting 'worker.nope'; did", "you mean 'worker.poll_seconds'?"]
