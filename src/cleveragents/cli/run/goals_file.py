"""Goals from a file: one per line, or a YAML document, whose goals become the sub-plans of one plan.

A YAML document with another name is detected, so that its lines do not become separate plans.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.app.container import Container
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = ["is_goals_document", "read_goals", "requested_goals", "text_of", "text_of_stdin"]

_MOST = 1000
# The start of a line of YAML or JSON, also of a document with mistakes elsewhere.
_KEY = re.compile(r"""^\s*\{?\s*["']?goals["']?\s*:\s*(?:$|[#\[])""", re.MULTILINE)


def read_goals(name: str, typed: str | None = None) -> list[str]:
    """Return the goals in the file, or in the `typed` text, without empty lines and comments.

    Raises `click.UsageError` if the file is invalid.
    """
    text = text_of(name) if typed is None else typed
    if _is_goals_yaml(text):  # guard: each line would become a paid plan
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


def is_goals_document(name: str, typed: str | None = None) -> bool:
    """Return whether the file contains the goals of one plan, judging by its name. Text from standard input
    (`typed`) is recognized by its content.
    """
    return Path(name).suffix.lower() in (".yaml", ".yml") or (typed is not None and _is_goals_yaml(typed))


def requested_goals(container: Container, wanted: PlanSpec, name: str, typed: str | None = None) -> PlanDraft:
    """Return the plan of all goals in the file, or of the `typed` text. Raises `InvalidGoals` after printing
    every mistake, and `click.UsageError` and other errors of invalid requests.
    """
    from cleveragents.api.plans import goal_requests
    from cleveragents.cli.output import progress
    from cleveragents.cli.usage import as_usage
    from cleveragents.core.errors import InvalidGoals

    content = _content_of(name) if typed is None else typed.encode()
    text = goal_requests.GoalsText(content, name if typed is None else "stdin")
    try:
        with as_usage():
            return goal_requests.requested_goals(container, wanted, text, Path.cwd())
    except InvalidGoals as error:
        if len(error.problems) == 1:
            raise
        for problem in error.problems:
            progress(f"{text.source}, {problem}")
        raise InvalidGoals(text.source, (f"{len(error.problems)} mistakes, listed above",)) from None


def _is_goals_yaml(text: str) -> bool:
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


def _content_of(name: str) -> bytes:
    """Return the content of a file of goals. Raises `click.UsageError` if it cannot be read."""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.UsageError(f"cannot read the goals in {name!r}: {error.strerror}") from None


def text_of(name: str) -> str:
    """Return the content of a file of goals as text. Raises `click.UsageError` unless it is UTF-8."""
    try:
        return _content_of(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text (byte {error.start})"
    raise click.UsageError(f"cannot read the goals in {name!r}: {problem}")
