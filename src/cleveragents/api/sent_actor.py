"""Actors that somebody sends along with what they want, as YAML: what they may be.

Their tools are called under the plan's policy, as those of every actor. What a policy knows nothing of, an
actor that is sent may not have: programs that it starts itself, and files of the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import AgentNode, is_actor_file
from cleveragents.core.actions.model import BUILTIN_NAMESPACE
from cleveragents.core.errors import InvalidActor, UnknownActor
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from pathlib import Path

    from cleveragents.actors.model.actor import Actor
    from cleveragents.actors.ports import Actors
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["SOURCE", "ActorsByName", "checked_actor"]

SOURCE = "the actor that was sent"
_SHIPPED = (BUILTIN_NAMESPACE, "external")


class ActorsByName:
    """The actors that a request can name: no files."""

    def __init__(self, known: Actors) -> None:
        self._known = known

    def get(self, name: str) -> Actor:
        if is_actor_file(name):  # guard: what is sent to a server reads none of its files
            raise UnknownActor(name, None)
        return self._known.get(name)


def checked_actor(parts: PlanParts, text: str, root: Path) -> tuple[str, str]:
    """Its name, and its text as it is kept, without secrets. `InvalidActor` says all that is wrong with it,
    and what of it is not for those who send one."""
    from cleveragents.actors.loading import load_actor

    kept = redact_text(text)
    named = ActorsByName(parts.actors(root))
    actor = load_actor(kept, SOURCE, tools=parts.tools_of_actors, actors=named)
    if actor.name.partition("/")[0] in _SHIPPED:
        raise InvalidActor(SOURCE, (f"{actor.name} is for what is shipped; name it otherwise",))
    for node in actor.nodes:
        if isinstance(node, AgentNode):  # guard: it would run with what the server's own user has
            why = "it starts a program, and only whoever runs the server says which; name an actor of theirs"
            raise InvalidActor(SOURCE, (f"node {node.name}: {why} (NAMESPACE/NAME)",))
    return actor.name, kept
