"""The actors that are shipped: YAML files beside this module, and their prompts, read like anybody's."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from cleveragents.domain.actor import Actor
from cleveragents.infrastructure.actors.loading import load_actor

__all__ = ["builtin_actors"]


@lru_cache(maxsize=1)
def builtin_actors() -> tuple[Actor, ...]:
    """All of them, by name."""
    folder = files("cleveragents.infrastructure.actors") / "builtin"
    found = [
        load_actor(entry.read_bytes(), entry.name, prompts=lambda path: folder.joinpath(path).read_bytes())
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    ]
    return tuple(sorted(found, key=lambda actor: actor.name))
