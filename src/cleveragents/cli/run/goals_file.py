"""Several goals from a file: one to a line. What is YAML of goals is told from that, since each of its lines
would else be taken for a goal, and paid for."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

__all__ = ["content_of", "is_goals_yaml", "read_goals", "text_of", "text_of_stdin"]

_MOST = 1000
# As it begins a line of YAML, or of JSON, even one that cannot be read for some mistake elsewhere.
_KEY = re.compile(r"""^\s*\{?\s*["']?goals["']?\s*:\s*(?:$|[#\[])""", re.MULTILINE)


def read_goals(name: str, typed: str | None = None) -> list[str]:
    """The goals in the file, or those that were `typed`; empty lines and lines that begin with `#` are none.

    `click.UsageError` says what is wrong with the file.
    """
    text = text_of(name) if typed is None else typed
    if is_goals_yaml(text):  # guard: each line would be a plan of its own, and be paid for
        raise click.UsageError(
            f"{name} is YAML with `goals:`, and one goal to a line is read from a file of that name; "
            f"rename it to {name}.yaml"
        )
    goals = [line.strip() for line in text.splitlines()]
    goals = [goal for goal in goals if goal and not goal.startswith("#")]
    where = "stdin" if name == "-" else name
    if not goals:
        raise click.UsageError(f"there is no goal in {where}; write one to a line")
    if len(goals) > _MOST:
        raise click.UsageError(f"there are {len(goals):,} goals in {where}; {_MOST:,} at once are the most")
    if "-" in goals:
        raise click.UsageError(f"one of the goals in {where} is just a dash; say what is wanted")
    return goals


def is_goals_yaml(text: str) -> bool:
    """Whether the text is meant to be a YAML document of goals that belong together."""
    return _KEY.search(text) is not None


def text_of_stdin(what: str) -> str:
    """All of it, whatever the terminal's encoding is. `click.UsageError` unless it is UTF-8."""
    source = getattr(sys.stdin, "buffer", None)
    try:
        return sys.stdin.read() if source is None else source.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"cannot read {what}: it is not UTF-8 text (byte {error.start})") from None


def content_of(name: str) -> bytes:
    """What the file of goals holds. `click.UsageError` if it cannot be read."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read the goals in {name!r}: {error.strerror}") from None


def text_of(name: str) -> str:
    """The same as text. `click.UsageError` unless it is UTF-8, too."""
    try:
        return content_of(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start})"
    raise click.UsageError(f"cannot read the goals in {name!r}: {problem}")
