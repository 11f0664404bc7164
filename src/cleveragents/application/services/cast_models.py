"""Which models a cast may ask: of every node that asks one, in subgraphs, too."""

from __future__ import annotations

from collections.abc import Iterable

from cleveragents.application.ports.actors import Actors
from cleveragents.domain.actor import LlmNode, SubgraphNode

__all__ = ["models_of_cast"]


def models_of_cast(actors: Actors, cast: Iterable[str], model: str) -> tuple[str, ...]:
    """Their names, each once, in the order in which they are found; `model` answers for nodes that name none.
    `UnknownActor`, `InvalidActor`, `NotTrusted`."""
    names = list(dict.fromkeys(cast))
    found: dict[str, None] = {}
    for name in names:
        actor = actors.get(name)
        for node in actor.nodes:
            if isinstance(node, LlmNode):
                found[node.model or actor.model or model] = None
            elif isinstance(node, SubgraphNode) and node.actor not in names:
                names.append(node.actor)
    return tuple(found)
