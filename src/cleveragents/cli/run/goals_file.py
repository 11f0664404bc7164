"""Goals from a file, one per line. A YAML document of goals is detected, so that its lines do not become
separate plans.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

__all__ = ["content_of", "is_goals_yaml", "read_goals", "text_of", "text_of_stdin"]

_MOST = 1000
# The start of a line of YAML or JSON, also of a document with mistakes elsewhere.
_KEY = re.compile(r"""^\s*\{?\s*["']?goals["']?\s*:\s*(?:$|[#\[])""", re.MULTILINE)


def read_goals(name: str, typed: str | None = None) -> list[str]:
    """Return the goals in the file, or in the `typed` text, without empty lines and comments.

    Raises `click.UsageError` if the file is invalid.
    """
    text = text_of(name) if typed is None else typed
    if is_goals_yaml(text):  # guard: each line would become a paid plan
        raise click.UsageError(
            f"{name} is YAML with `goals:`, but a file of this name is read as one goal per line; "
            f"rename it to {name}.yaml"
        )
    goals = [line.strip() for line in text.splitlines()]
    goals = [goal for goal in goals if goal and not goal.startswith("#")]
    where = "stdin" if name == "-" else name
    if not goals:
        raise click.UsageError(f"no goals in {where}; write one per line")
    if len(goals) > _MOST:
        raise click.UsageError(f"too many goals in {where}: {len(goals):,}; at most {_MOST:,} are allowed")
    if "-" in goals:
        raise click.UsageError(f"a goal in {where} is only a dash; describe the goal")
    return goals


def is_goals_yaml(text: str) -> bool:
    """Return whether the text looks like a YAML document of goals."""
    return _KEY.search(text) is not None


def text_of_stdin(what: str) -> str:
    """Return stdin as text, whatever the encoding of the terminal. Raises `click.UsageError` unless it is
    UTF-8.
    """
    source = getattr(sys.stdin, "buffer", None)
    try:
        return sys.stdin.read() if source is None else source.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"cannot read {what}: not UTF-8 text (byte {error.start})") from None


def content_of(name: str) -> bytes:
    """Return the content of a file of goals. Raises `click.UsageError` if it cannot be read."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read the goals in {name!r}: {error.strerror}") from None


def text_of(name: str) -> str:
    """Return the content of a file of goals as text. Raises `click.UsageError` unless it is UTF-8."""
    try:
        return content_of(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text (byte {error.start})"
    raise click.UsageError(f"cannot read the goals in {name!r}: {problem}")
