"""Which models a cast may ask, and which other agents it has: of every node, in subgraphs, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cleveragents.actors.model.actor import Actor, AgentNode, LlmNode, SubgraphNode
from cleveragents.actors.ports import ActorSource
from cleveragents.core.errors import SpendingUncounted
from cleveragents.models.model.budget import BudgetLimits

__all__ = ["agents_of_roles", "ensure_counted", "models_of_roles", "programs_of_roles", "with_money_limit"]


def models_of_roles(actors: ActorSource, cast: Iterable[str], model: str) -> tuple[str, ...]:
    """Their names, each once, in the order in which they are found; `model` answers for nodes that name none.
    `UnknownActor`, `InvalidActor`, `NotTrusted`."""
    found: dict[str, None] = {}
    for actor in _every(actors, cast):
        for node in actor.nodes:
            if isinstance(node, LlmNode):
                found[node.model or actor.model or model] = None
    return tuple(found)


def ensure_counted(actors: ActorSource, cast: Iterable[str], limits: BudgetLimits) -> None:
    """`SpendingUncounted` where there is a limit of money or tokens, and the cast has another agent."""
    if limits.picodollars is None and limits.tokens is None:
        return
    programs = programs_of_roles(actors, cast)
    if programs:  # guard: a limit that nobody can keep is none
        raise SpendingUncounted(programs[0])


def programs_of_roles(actors: ActorSource, cast: Iterable[str]) -> tuple[str, ...]:
    """The programs of other agents that they run, each once: what those spend, nobody here can count."""
    return tuple(dict.fromkeys(node.argv[0] for _, node in agents_of_roles(actors, cast)))


def agents_of_roles(actors: ActorSource, cast: Iterable[str]) -> Iterator[tuple[str, AgentNode]]:
    """The nodes that have other agents work, with the names of their actors."""
    for actor in _every(actors, cast):
        for node in actor.nodes:
            if isinstance(node, AgentNode):
                yield actor.name, node


def with_money_limit(actors: ActorSource, cast: Iterable[str]) -> tuple[str, ...]:
    """Those of them, in subgraphs, too, that have a limit of money of their own."""
    return tuple(actor.name for actor in _every(actors, cast) if actor.limits.usd is not None)


def _every(actors: ActorSource, cast: Iterable[str]) -> Iterator[Actor]:
    """Each once."""
    names = list(dict.fromkeys(cast))
    for name in names:
        actor = actors.get(name)
        yield actor
        for node in actor.nodes:
            if isinstance(node, SubgraphNode) and node.actor not in names:
                names.append(node.actor)
