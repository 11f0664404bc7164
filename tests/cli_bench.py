"""Command lines run end to end in this process, on the test's own repository and state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import click
import pytest

from cleveragents.cli import main, prompts
from cleveragents.processes import own_checkout
from tests.ready_database import ready_database
from tests.ready_repository import made_once
from tests.unisolated import ALLOW_UNISOLATED

__all__ = ["COMMAND", "REPLACE", "Agents", "Ended", "command_line", "git", "paint_shop", "use_home"]

REPLACE = ("run", "--action", "builtin/replace", "--arg", "pattern=colour", "--arg", "replacement=color")
COMMAND = ("run", "--action", "builtin/command", "--")
_GIT = ("git", "-c", "user.name=me", "-c", "user.email=me@example.org")


@dataclass(frozen=True)
class Ended:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def id(self) -> str:
        """The id of the created plan, from the first line."""
        return self.err.split()[1].rstrip(":")


Agents = Callable[..., Ended]


class Terminal(StringIO):
    """An input that claims to be a terminal, and supports Ctrl-C."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:
        line = super().readline(size)
        if "\x03" in line:
            raise KeyboardInterrupt
        return line


def use_home(monkeypatch: pytest.MonkeyPatch, home: Path, state: Path) -> None:
    """Ignore all settings of the user who runs the tests.

    The check for files that a check would import is disabled: it takes three interpreters per check, and the
    tests of checks cover it.
    """
    for name in [*os.environ]:
        if name.startswith(("CLEVERAGENTS_", "XDG_", "NO_COLOR")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLEVERAGENTS_STATE_DIRECTORY", str(state))
    for name, value in ALLOW_UNISOLATED.items():
        monkeypatch.setenv(name, value)
    ready_database(state / "state.db")
    monkeypatch.setattr(own_checkout, "_INTERPRETERS", ())
    monkeypatch.setattr(own_checkout, "_TEST_PROGRAMS", ())


def paint_shop(root: Path) -> Path:
    """Return a repository with the word `colour` in two files."""
    made_once(root, "paint_shop", _paint_shop, lambda: git(root, "update-index", "-q", "--refresh"))
    return root


def _paint_shop(root: Path) -> None:
    (root / "src").mkdir()
    (root / "README.md").write_text("The colour of it.\n")
    (root / "src/paint.py").write_text("colour = 1\nother = 2\n")
    git(root, "init", "-q")
    git(root, "config", "user.name", "me")
    git(root, "config", "user.email", "me@example.org")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")


@contextmanager
def command_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Agents]:
    """Return a function that runs command lines; `typed` is the input of the user, `piped` that of a pipe."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(prompts, "read_key", _key)

    def run(*arguments: str, typed: str | None = None, piped: str = "") -> Ended:
        monkeypatch.setattr(sys, "argv", ["agents", *arguments])
        monkeypatch.setattr(sys, "stdin", StringIO(piped) if typed is None else Terminal(typed))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: typed is not None)
        with pytest.raises(SystemExit) as ended:
            main.run()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        return Ended(
            ended.value.code if isinstance(ended.value.code, int) else -1, captured.out, captured.err
        )

    yield run
    signal.signal(signal.SIGTERM, before)


def _key(question: str) -> str:
    """Show the question and return the next typed key, as a terminal does."""
    click.echo(question, nl=False, err=True)
    while (typed := sys.stdin.read(1)) == "\n":
        continue
    if not typed:
        raise EOFError
    if typed == "\x03":
        raise KeyboardInterrupt
    return typed


def git(root: Path, *arguments: str) -> str:
    """Return the output of git in this directory."""
    return subprocess.run([*_GIT, *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
