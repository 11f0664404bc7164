"""Steps that run the command line in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from behave import given, then, when

_SECONDS = 300


@given("the command line has a fresh home")
def fresh_home(context: Any) -> None:
    home = tempfile.TemporaryDirectory()
    context.add_cleanup(home.cleanup)
    context.home = Path(home.name)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("CLEVERAGENTS_", "XDG_"))
    }
    context.cli_environment = {**kept, "HOME": home.name}


@given('the command line is in a repository whose file says "{text}"')
def in_a_repository(context: Any, text: str) -> None:
    (context.home / ".git").mkdir(exist_ok=True)
    table, _, setting = text.partition("] ")
    (context.home / ".cleveragents.toml").write_text(f"{table}]\n{setting}\n")


@given("the command line has a database that is none")
def no_database(context: Any) -> None:
    state = context.home / ".local/share/cleveragents"
    state.mkdir(parents=True, exist_ok=True)
    (state / "state.db").write_text("this is not a database, whatever its name may say" * 10)


@when('the command line finds "{value}" in the environment variable "{name}"')
def in_the_environment(context: Any, value: str, name: str) -> None:
    context.cli_environment[name] = value


@when('the command line runs "{line}"')
def runs(context: Any, line: str) -> None:
    context.ended = subprocess.run(
        [sys.executable, "-m", "cleveragents", *shlex.split(line)],
        env=context.cli_environment,
        cwd=context.home,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert "Traceback" not in context.ended.stderr, context.ended.stderr


@then("the command line ends with {code:d}")
def ends_with(context: Any, code: int) -> None:
    ended = context.ended
    assert ended.returncode == code, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"


@then('the command line shows "{key}" as "{value}" from "{layer}"')
def shows(context: Any, key: str, value: str, layer: str) -> None:
    runs(context, "config list --format json")
    [row] = [row for row in json.loads(context.ended.stdout) if row["key"] == key]
    assert (str(row["value"]), row["layer"]) == (value, layer), row


@then('the command line complains "{text}"')
def complains(context: Any, text: str) -> None:
    assert text in context.ended.stderr, context.ended.stderr


@then('the command line prints "{text}"')
def prints(context: Any, text: str) -> None:
    assert context.ended.stdout.strip() == text, context.ended.stdout


@then("the command line prints a JSON list")
def prints_json(context: Any) -> None:
    assert isinstance(json.loads(context.ended.stdout), list)
    assert context.ended.stderr == ""
