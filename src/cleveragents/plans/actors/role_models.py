"""The models and external agents of the actors of a plan (its *cast*), including their subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cleveragents.actors.model.actor import Actor, AgentNode, LlmNode, SubgraphNode
from cleveragents.actors.ports import ActorSource
from cleveragents.core.errors import SpendingUncounted
from cleveragents.models.model.budget import BudgetLimits

__all__ = ["agents_of_roles", "ensure_counted", "models_of_roles", "programs_of_roles", "with_money_limit"]


def models_of_roles(actors: ActorSource, cast: Iterable[str], model: str) -> tuple[str, ...]:
    """Return the names of the models of all actors, each once, in order; `model` is for nodes that name none.

    Raises `UnknownActor`, `InvalidActor`, `NotTrusted`.
    """
    found: dict[str, None] = {}
    for actor in _every(actors, cast):
        for node in actor.nodes:
            if isinstance(node, LlmNode):
                found[node.model or actor.model or model] = None
    return tuple(found)


def ensure_counted(actors: ActorSource, cast: Iterable[str], limits: BudgetLimits) -> None:
    """Raise `SpendingUncounted` if money or tokens are limited and an actor has an external agent."""
    if limits.picodollars is None and limits.tokens is None:
        return
    programs = programs_of_roles(actors, cast)
    if programs:  # guard: a limit that cannot be enforced is no limit
        raise SpendingUncounted(programs[0])


def programs_of_roles(actors: ActorSource, cast: Iterable[str]) -> tuple[str, ...]:
    """Return the programs of the external agents, each once. CleverAgents cannot count their spending."""
    return tuple(dict.fromkeys(node.argv[0] for _, node in agents_of_roles(actors, cast)))


def agents_of_roles(actors: ActorSource, cast: Iterable[str]) -> Iterator[tuple[str, AgentNode]]:
    """Yield each node with an external agent, together with the name of its actor."""
    for actor in _every(actors, cast):
        for node in actor.nodes:
            if isinstance(node, AgentNode):
                yield actor.name, node


def with_money_limit(actors: ActorSource, cast: Iterable[str]) -> tuple[str, ...]:
    """Return the actors with their own money limit, including subgraphs."""
    return tuple(actor.name for actor in _every(actors, cast) if actor.limits.usd is not None)


def _every(actors: ActorSource, cast: Iterable[str]) -> Iterator[Actor]:
    """Yield each actor once, including subgraphs."""
    names = list(dict.fromkeys(cast))
    for name in names:
        actor = actors.get(name)
        yield actor
        for node in actor.nodes:
            if isinstance(node, SubgraphNode) and node.actor not in names:
                names.append(node.actor)
