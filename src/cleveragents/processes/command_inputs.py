"""Everything but the files of its sandbox that decides what a command does: for keys of caches.

Every field of a `Command` counts unless it is listed here with a reason, so that a new field counts by
default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from cleveragents.core.json_value import JsonValue
from cleveragents.processes.bubblewrap import HOME, TEMPORARY
from cleveragents.processes.environment import command_environment
from cleveragents.processes.ports import Command

__all__ = ["WITHOUT_EFFECT", "command_inputs"]

WITHOUT_EFFECT: Mapping[str, str] = {
    "root": "every sandbox has its own; its path is replaced wherever it occurs",
    "environment": "part of the variables",
    "passed": "part of the variables, with their values",
    "markers": "differ in each attempt, and name nothing but the attempt",
    "timeout_seconds": "a command that is ended by it has failed",
    "output_limit_bytes": "concerns what is kept of the output",
}
"""The fields of a `Command` that are no input of their own, and why."""

_OWN = "{sandbox}"


def command_inputs(
    command: Command,
    inherited: Mapping[str, str],
    *,
    isolated: bool,
    hidden: tuple[Path, ...],
    allowed_names: tuple[str, ...],
) -> dict[str, JsonValue]:
    """`CommandRunner.inputs_of` for a runner with these settings."""
    if command.home is not None:  # guard: copies of the user's files, which nothing here looks into
        raise ValueError("a command with a home has inputs that are not listed")
    variables = command_environment(
        replace(command, markers={}),
        inherited,
        home=HOME,
        temporary=TEMPORARY,
        hidden=hidden,
        allowed_names=allowed_names,
    )
    facts = {
        field.name: getattr(command, field.name)
        for field in fields(command)
        if field.name not in WITHOUT_EFFECT
    }
    places = dict.fromkeys([str(command.root.parent), os.path.realpath(command.root.parent)])
    own = sorted(places, key=len, reverse=True)
    settings = {"variables": variables, "isolated": isolated, "hidden": hidden}
    return {name: _plain(value, own) for name, value in {**facts, **settings}.items()}


def _plain(value: object, own: list[str]) -> JsonValue:
    """The value as JSON, without the path of the sandbox's own directory."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): _plain(found, own) for key, found in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(found, own) for found in value]
    text = str(value)
    for place in own:
        text = text.replace(place, _OWN)
    return text
