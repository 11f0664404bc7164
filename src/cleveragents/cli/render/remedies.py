"""Remedies as command lines: the one place that spells them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.core.errors.remedy import OptionValue, Remedy

__all__ = ["command_line", "remedy_lines", "step_pairs"]

_SERVED = ("action", "actor", "job", "model", "plan", "project", "resource", "user")
"""Commands about what a server has; the others are about this machine."""

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
    "target": "TARGET",
    "text": "TEXT",
    "url": "URL",
    "value": "VALUE",
}
"""What is written without the name of an option, and what stands for it where the person chooses."""

_OPTIONS = {
    "discard": "--yes",
    "file": "-f",
    "force": "--yes",
    "limits": "--max-…",
    "limits.seconds": "--timeout",
    "limits.steps": "--max-steps",
    "limits.tokens": "--max-tokens",
    "limits.usd": "--max-usd",
}
"""Fields of the API that the command line calls otherwise; any other is spelt with dashes."""

_CHOSEN = {
    "file": "FILE",
    "limits.seconds": "TIME",
    "limits.steps": "N",
    "limits.tokens": "N",
    "limits.usd": "USD",
    "model": "PROVIDER/NAME",
    "token_file": "FILE",
}
_VALUES = {
    "audit.anchor": "TARGET",
    "models.default": "PROVIDER/NAME",
    "models.prices": "FILE",
    "sandbox.quota_bytes": "BYTES",
}
"""What stands for the value of a setting."""

_SIDES = "--ours|--theirs|--edited"


def command_line(remedy: Remedy, prefix: str = "agents") -> str:
    """Return the command that carries the remedy out; `prefix` begins one that goes to the same server."""
    group, *rest = remedy.action.split(".")
    there = group in _SERVED or "resource" in remedy.options
    words = [prefix if there else "agents", _COMMANDS.get(group, group), *rest]
    words += [] if remedy.plan is None else [remedy.plan]
    # Options first, so that a command or a text to run stands last.
    named = [name for name in remedy.options if name not in _ARGUMENTS]
    given = [name for name in remedy.options if name in _ARGUMENTS]
    words += [word for name in named for word in _option(name, remedy.options[name])]
    words += [word for name in given for word in _argument(name, remedy)]
    return " ".join(words)


def remedy_lines(remedies: Sequence[Remedy], prefix: str = "agents") -> list[str]:
    """Return a line for each remedy: what it is for, and the command."""
    said = [(remedy.text, command_line(remedy, prefix)) for remedy in remedies]
    return [f"  {text}: {command}" if text else f"  {command}" for text, command in said]


def step_pairs(steps: Sequence[Remedy], prefix: str = "agents") -> list[tuple[str, str]]:
    """Return the command of each step, and what it does."""
    return [(command_line(step, prefix), step.text) for step in steps]


def _argument(name: str, remedy: Remedy) -> list[str]:
    value, chosen = remedy.options[name], _ARGUMENTS[name]
    if name == "value":
        chosen = _VALUES.get(str(remedy.options.get("key")), chosen)
    shown = chosen if value is None else shlex.quote(str(value))
    return ["--", shown] if name == "command" else [shown]


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
        from cleveragents.api.wording import spelt_duration

        return spelt_duration(value)
    return shlex.quote(str(value))
