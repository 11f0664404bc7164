"""Several goals from a file: one to a line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["content_of", "read_goals", "text_of_stdin"]

_MOST = 1000


def read_goals(name: str) -> list[str]:
    """The goals in the file, or on stdin for `-`; empty lines and lines that begin with `#` are none.

    `click.UsageError` says what is wrong with the file.
    """
    lines = _text(name).splitlines()
    goals = [line.strip() for line in lines]
    goals = [goal for goal in goals if goal and not goal.startswith("#")]
    where = "stdin" if name == "-" else name
    if not goals:
        raise click.UsageError(f"there is no goal in {where}; write one to a line")
    if len(goals) > _MOST:
        raise click.UsageError(f"there are {len(goals):,} goals in {where}; {_MOST:,} at once are the most")
    if "-" in goals:
        raise click.UsageError(f"one of the goals in {where} is just a dash; say what is wanted")
    return goals


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


def _text(name: str) -> str:
    if name == "-":
        return text_of_stdin("the goals on stdin")
    try:
        return content_of(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"it is not UTF-8 text (byte {error.start})"
    raise click.UsageError(f"cannot read the goals in {name!r}: {problem}")
