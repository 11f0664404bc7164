"""A cache of the environments that setup commands make: virtual environments, node_modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cleveragents.core.json_value import JsonValue

__all__ = ["SetupInputs", "SetupStore"]


@dataclass(frozen=True, slots=True)
class SetupInputs:
    """Everything but the files of the sandbox that decides what a setup makes, or who may have it.

    `project` is the plan's: no project gets what another one's plans made. `paths` are kept. `command` is
    what `CommandRunner.inputs_of` says of the setup command.
    """

    project: str
    paths: tuple[str, ...]
    command: Mapping[str, JsonValue]


class SetupStore(Protocol):
    """Environments by key. Safe for many processes at once."""

    def key(self, inputs: SetupInputs, tree: Path) -> str | None:
        """The key of what the setup makes of the files in `tree`; every input and every file is part of it.

        Call it before the setup runs. None if not all files can be read; such a setup is not cached.
        """
        ...

    def take(self, key: str, tree: Path, paths: Sequence[str]) -> bool:
        """Copies the environment with that key into `tree`; False if there is none, or it was altered."""
        ...

    def keep(self, key: str, tree: Path, paths: Sequence[str]) -> None:
        """Keeps a copy of these directories of `tree`."""
        ...
