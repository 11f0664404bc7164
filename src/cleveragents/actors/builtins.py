"""The actors that are shipped: YAML files beside this module, and their prompts, read like anybody's.

Those for other agents are many, and are read when somebody asks for one of them, or for all.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from cleveragents.actors.loading import load_actor
from cleveragents.actors.model.actor import Actor
from cleveragents.core.actions.model import BUILTIN_NAMESPACE

__all__ = ["EXTERNAL_NAMESPACE", "builtin_actors", "external_actors", "shipped_file"]

EXTERNAL_NAMESPACE = "external"
"""Of the actors that are other agents."""


def builtin_actors() -> tuple[Actor, ...]:
    """Our own, by name."""
    return _actors_in(BUILTIN_NAMESPACE)


def external_actors() -> tuple[Actor, ...]:
    """Those that run other agents, by name."""
    return _actors_in(EXTERNAL_NAMESPACE)


def shipped_file(name: str) -> Path:
    """Where the shipped actor of that name is written."""
    return Path(str(files("cleveragents.actors"))) / f"{name}.yaml"


@lru_cache(maxsize=2)
def _actors_in(name: str) -> tuple[Actor, ...]:
    folder = files("cleveragents.actors") / name
    found = [
        load_actor(entry.read_bytes(), entry.name, prompts=lambda path: folder.joinpath(path).read_bytes())
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    ]
    return tuple(sorted(found, key=lambda actor: actor.name))
