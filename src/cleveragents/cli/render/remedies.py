"""Remedies as command lines. Only this module formats them.

People paste these lines into a shell, and a remedy may come from a server. So only names of the expected
shape are written, and values are quoted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from cleveragents.api.format import duration_text, on_one_line

if TYPE_CHECKING:
    from cleveragents.core.errors import OptionValue, Remedy

__all__ = ["command_line", "prompt_lines", "remedy_lines", "step_pairs"]

_SERVED = ("action", "actor", "job", "model", "plan", "policy", "project", "resource", "session", "user")
"""Commands that act on a server; all others act on this machine."""

_COMMANDS_OF_PLANS = {"reject": "discard", "reread": "capture"}
"""Operations of the API that have another name on the command line."""
_COMMANDS = {"job": "jobs"}
_ARGUMENTS = {
    "call": "NUMBER",
    "checkpoint": "NUMBER",
    "command": "COMMAND",
    "decision": "NUMBER",
    "goal": "GOAL",
    "key": "KEY",
    "name": "NAME",
    "path": "PATH",
    "reject": "PATH",
    "session": "SESSION",
    "target": "TARGET",
    "text": "TEXT",
    "url": "URL",
    "value": "VALUE",
}
"""Positional arguments, and their placeholders where the user chooses the value."""

_OPTIONS = {
    "discard": "--yes",
    "file": "-f",
    "force": "--yes",
    "limits": "--max-…",
    "limits.seconds": "--timeout",
    "limits.steps": "--max-steps",
    "limits.tokens": "--max-tokens",
    "limits.usd": "--max-usd",
    "reject_hunks": "--reject-hunk",
    "scope": "--for",
}
"""Fields of the API with another name on the command line; all others are written with dashes."""

_CHOSEN = {
    "file": "FILE",
    "limits.seconds": "TIME",
    "limits.steps": "N",
    "limits.tokens": "N",
    "limits.usd": "USD",
    "message": "TEXT",
    "model": "PROVIDER/NAME",
    "reject_hunks": "HUNK",
    "token_file": "FILE",
}
_VALUES = {
    "audit.anchor": "TARGET",
    "models.default": "PROVIDER/NAME",
    "models.fallback": "PROVIDER/NAME",
    "models.prices": "FILE",
    "sandbox.quota_bytes": "BYTES",
}
"""Placeholders for values of settings."""

_PROMPT_UNITS = {
    "limits.usd": "",
    "limits.tokens": " tokens",
    "limits.steps": " steps",
    "limits.seconds": " time",
}
"""Units of limits after `/budget`."""

_TAKES = ("ours", "theirs", "edited")
_SIDES = "|".join(f"--{side}" for side in _TAKES)

_ACTION = re.compile(r"[a-z]+(\.[a-z-]+)*")
_PLAN = re.compile(r"[0-9A-Za-z]+")
_OPTION = re.compile(r"[a-z_.]+")


def command_line(remedy: Remedy, prefix: str = "agents") -> str | None:
    """Return the command line of the remedy. It begins with `prefix`, so that it uses the same server.

    Returns None if a name in the remedy has an unexpected shape, because such a remedy is not a command of
    this program.
    """
    if not _is_spelt(remedy):
        return None
    group, *rest = remedy.action.split(".")
    there = group in _SERVED or "resource" in remedy.options
    words = [prefix if there else "agents", _COMMANDS.get(group, group)]
    words += [_COMMANDS_OF_PLANS.get(name, name) for name in rest] if group == "plan" else rest
    words += [] if remedy.plan is None else [remedy.plan]
    # Options first, so that a command or text comes last.
    named = [name for name in remedy.options if name not in _ARGUMENTS]
    given = [name for name in remedy.options if name in _ARGUMENTS]
    words += [word for name in named for word in _option(name, remedy.options[name])]
    separated = False
    for name in given:
        shown, begins_with_dash = _argument(name, remedy)
        if (name == "command" or begins_with_dash) and not separated:  # guard: not taken for an option
            separated = True
            words.append("--")
        words.append(shown)
    return " ".join(words)


def remedy_lines(remedies: Sequence[Remedy], prefix: str = "agents") -> list[str]:
    """Return a line for each remedy: its purpose and the command."""
    pairs = step_pairs(remedies, prefix)
    return [f"  {text}: {command}" if text else f"  {command}" for command, text in pairs]


def prompt_lines(remedies: Sequence[Remedy], prefix: str = "agents") -> list[str]:
    """Return the lines of `remedy_lines` for the prompt of a session, where `/budget` raises its limits."""
    lines: list[str] = []
    for one in remedies:
        raised = [name for name in _PROMPT_UNITS if name in one.options]
        if one.action == "session.budget" and raised and _is_spelt(one):
            amount = _option(raised[0], one.options[raised[0]])[-1]
            lines.append(f"  {on_one_line(one.text)}: /budget {amount}{_PROMPT_UNITS[raised[0]]}")
        else:
            lines += remedy_lines([one], prefix)
    return lines


def step_pairs(steps: Sequence[Remedy], prefix: str = "agents") -> list[tuple[str, str]]:
    """Return the command and the description of each step; steps without a command are left out."""
    commands = [(command_line(step, prefix), on_one_line(step.text)) for step in steps]
    return [(command, text) for command, text in commands if command is not None]


def _is_spelt(remedy: Remedy) -> bool:
    """Return whether every name in the remedy has an expected shape."""
    take = remedy.options.get("take")
    return (
        _ACTION.fullmatch(remedy.action) is not None
        and (remedy.plan is None or _PLAN.fullmatch(remedy.plan) is not None)
        and all(_OPTION.fullmatch(name) for name in remedy.options)
        and (take is None or take in _TAKES)
        and all(isfinite(value) for value in remedy.options.values() if isinstance(value, float))
    )


def _argument(name: str, remedy: Remedy) -> tuple[str, bool]:
    """Return the argument, quoted, and whether it begins with a dash."""
    value, chosen = remedy.options[name], _ARGUMENTS[name]
    if name == "value":
        chosen = _VALUES.get(str(remedy.options.get("key")), chosen)
    said = chosen if value is None else str(value)
    return (said if value is None else shlex.quote(said)), said.startswith("-")


def _option(name: str, value: OptionValue) -> list[str]:
    if name == "take":
        return [_SIDES if value is None else f"--{value}"]
    option = _OPTIONS.get(name) or f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    if value is False:
        return [f"--not-{option.removeprefix('--')}"]
    return [option, _CHOSEN.get(name, "NAME") if value is None else _written(name, value)]


def _written(name: str, value: OptionValue) -> str:
    if name == "limits.usd" and isinstance(value, float):
        return f"{value:.2f}"
    if name == "limits.seconds" and isinstance(value, int | float):
        return duration_text(value)
    return shlex.quote(str(value))
