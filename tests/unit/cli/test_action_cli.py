"""`agents action` and `agents trust`: what they say, keep and refuse."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path

import click
import pytest

from cleveragents.cli.admin.action import action
from cleveragents.cli.admin.trust import trust
from cleveragents.cli.failure import report
from cleveragents.cli.session import Session
from cleveragents.core.errors import CleverAgentsError

FORMAT = """\
name: team/format
description: Formats the code.
arguments:
  path: {type: path, description: what to format}
  since: {type: string, default: ""}
  files: {type: list, rest: true}
execute:
  steps:
    - {tool: command, with: {argv: [ruff, format, "${path}", "${files}"]}}
    - {tool: command, shell: true, with: {command: "ls ${path}"}}
    - {tool: replace, with: {pattern: a, replacement: b}}
checks:
  - {name: tests, command: pytest -q}
  - {name: style, command: ruff check, required: false}
invariants: ["The public API stays as it is.", "never touch uv.lock"]
definition_of_done: Everything is formatted.
profile: review
sandbox: {setup: {command: pip install x, key: [r.txt], paths: [.venv]}}
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


class Terminal(TextIOWrapper):
    """An input that says it is a terminal."""

    def isatty(self) -> bool:
        return True


Run = Callable[..., Ended]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in, in an empty home."""
    for name in [*os.environ]:
        if name.startswith(("CLEVERAGENTS_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, as the entry point would."""

    def run(command: click.Command, *arguments: str, stdin: bytes = b"", terminal: bool = False) -> Ended:
        kind = Terminal if terminal else TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(BytesIO(stdin)))
        code = 0
        try:
            with command.make_context("agents", list(arguments), obj=Session()) as context:
                command.invoke(context)
        except click.exceptions.Exit as ended:
            code = ended.exit_code
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except CleverAgentsError as error:
            code = report(error)
        captured = capfd.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


def bring(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_an_action_is_created_listed_shown_and_deleted(run: Run, root: Path) -> None:
    bring(root, "format.yaml", FORMAT)
    made = run(action, "create", "format.yaml")
    assert made.code == 0
    assert "run it with `agents run --action team/format --arg path=PATH -- FILES…`" in made.err
    assert "invariant, enforced: uv.lock may not be changed (never touch uv.lock)" in made.err
    assert (
        "invariant, not enforced, only part of the actors' prompt (The public API stays as it is.)"
        in made.err
    )
    listed = json.loads(run(action, "list", "--format", "json").out)
    assert [(row["name"], row["origin"], row["trusted"]) for row in listed] == [
        ("builtin/command", "builtin", True),
        ("builtin/goal", "builtin", True),
        ("builtin/goals", "builtin", True),
        ("builtin/replace", "builtin", True),
        ("team/format", "user", True),
    ]
    shown = run(action, "show", "team/format").out
    for line in (
        "Formats the code.",
        "what to format",
        "command: ruff format '${path}' '${files}'",
        "command: ls ${path}",
        "replace: pattern=a, replacement=b",
        "pytest -q",
        "ruff check (informational)",
        "The public API stays as it is. (not enforced, only part of the actors' prompt)",
        "never touch uv.lock (enforced: uv.lock may not be changed)",
        "Everything is formatted.",
        "pip install x",
        "review",
        "agents run --action team/format --arg path=PATH -- FILES…",
    ):
        assert line in shown
    assert run(action, "delete", "team/format").code == 0
    gone = run(action, "show", "team/format")
    assert gone.code == 2
    assert "there is no action 'team/format'" in gone.err


def test_programs_get_the_whole_action(run: Run) -> None:
    assert run(action, "create", "-", stdin=FORMAT.encode()).code == 0
    whole = json.loads(run(action, "show", "team/format", "--format", "json").out)
    assert whole["steps"][0]["with"] == {"argv": ["ruff", "format", "${path}", "${files}"]}
    assert whole["setup"] == {"command": "pip install x", "key": ["r.txt"], "paths": [".venv"]}
    assert whole["arguments"][0]["required"] is True
    assert whole["enforced"] == ["never touch uv.lock"]
    assert json.loads(run(action, "show", "builtin/command", "--format", "json").out)["setup"] is None


def test_every_mistake_is_on_a_line_of_its_own_and_nothing_is_kept(run: Run) -> None:
    text = FORMAT.replace("description: F", "descriptoin: F").replace("${path}", "${pth}")
    ended = run(action, "create", "-", stdin=text.encode())
    assert ended.code == 2
    assert ended.err.splitlines()[0] == "error: standard input is not a valid action; it was not added"
    assert "  line 2: unknown key 'descriptoin'; did you mean 'description'?" in ended.err
    assert "  line 9: there is no argument 'pth'" in ended.err
    assert "team/format" not in run(action, "list").out
    many = b"name: a/b\nexecute: {actor: x}\n" + b"".join(b"k%d: 1\n" % n for n in range(30))
    assert "  … and 10 more" in run(action, "create", "-", stdin=many).err


def test_a_single_mistake_is_an_error_like_any_other(run: Run) -> None:
    ended = run(action, "create", "-", stdin=b"")
    assert ended.code == 2
    assert "error: standard input is not a valid action: the file is empty" in ended.err


def test_a_second_action_of_a_name_has_to_say_that_it_replaces(run: Run) -> None:
    run(action, "create", "-", stdin=FORMAT.encode())
    again = run(action, "create", "-", stdin=FORMAT.encode())
    assert again.code == 2
    assert "or replace it" in again.err
    assert run(action, "create", "--replace", "-", stdin=FORMAT.encode()).code == 0


def test_reading_or_deleting_an_unknown_action_names_the_reason(run: Run, root: Path) -> None:
    assert "is not a file; name a YAML file" in run(action, "create", "nowhere.yaml").err
    assert "is not a file; name a YAML file" in run(action, "create", ".").err
    assert "cannot be read: File name too long" in run(action, "create", "x" * 300).err
    built_in = run(action, "delete", "builtin/command")
    assert built_in.code == 2
    assert "is built in and cannot be deleted" in built_in.err


def test_an_action_of_a_repository_needs_trust_and_its_problems_are_listed(run: Run, root: Path) -> None:
    bring(root, ".cleveragents/actions/f.yaml", FORMAT)
    bring(root, ".cleveragents/actions/bad.yaml", "a: [")
    listed = run(action, "list")
    assert ".cleveragents/actions/bad.yaml: line 1:" in listed.err
    refused = run(action, "show", "team/format")
    assert refused.code == 3
    assert f"agents trust {root}" in refused.err
    assert run(trust, "--yes").code == 0
    assert run(action, "show", "team/format").code == 0


def test_an_action_of_actors_names_its_actors(run: Run) -> None:
    text = b"name: a/b\nstrategize: {actor: x/s}\nexecute: {actor: x/e}\n"
    run(action, "create", "-", stdin=text)
    shown = run(action, "show", "a/b").out
    assert "strategist  x/s" in shown
    assert "executor    x/e" in shown


def test_trust_previews_commands_before_it_asks(run: Run, root: Path) -> None:
    bring(root, ".cleveragents/actions/f.yaml", FORMAT)
    bring(root, ".mcp.json", '{"mcpServers": {"a": {"command": "x", "args": ["--password=hunter22"]}}}')
    declined = run(trust, stdin=b"n\n", terminal=True)
    assert declined.code == 1
    assert "runs: ruff format" in declined.err
    assert "server a: x --password=hunter22" in declined.err, "what is trusted is shown as it is"
    assert "no files were trusted" in declined.err
    assert "no trusted files" in run(trust, "--list").err
    accepted = run(trust, stdin=b"y\n", terminal=True)
    assert accepted.code == 0
    assert "Trust 2 files" in accepted.err
    assert ".mcp.json" in run(trust, "--list").out
    again = run(trust)
    assert again.code == 0
    assert "already trusted" in again.out


def test_without_a_terminal_trust_needs_yes(run: Run, root: Path) -> None:
    bring(root, ".mcp.json", "{}")
    ended = run(trust)
    assert ended.code == 3
    assert f"agents trust --yes {root}" in ended.err
    assert run(trust, "--list", "--format", "json").out.strip() == "[]"


def test_trust_can_be_given_to_one_file_and_taken_away(run: Run, root: Path) -> None:
    bring(root, ".mcp.json", "{}")
    bring(root, "s/SKILL.md", "x")
    (root / "SKILL.md").symlink_to("/etc/passwd")
    ended = run(trust, "s/SKILL.md", "--yes", "--format", "json")
    assert [row["path"] for row in json.loads(ended.out)] == ["s/SKILL.md"]
    assert "not trusted: SKILL.md leads out of the repository" in ended.err
    revoked = run(trust, "--revoke", ".")
    assert revoked.out.splitlines() == ["path", f"{root}/s/SKILL.md"]
    assert "no trusted files at ." in run(trust, "--revoke", ".").err


def test_trust_refuses_contradictory_options(run: Run, root: Path) -> None:
    bring(root, "README.md", "x")
    assert "has no files that need trust" in run(trust).err
    assert "does not need trust" in run(trust, "README.md").err
    assert "does not exist" in run(trust, "nowhere").err
    both = run(trust, "--list", "--revoke")
    assert both.code == 2
    assert "not both" in both.err
