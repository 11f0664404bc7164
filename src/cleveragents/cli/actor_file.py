"""Actors given to a command by name or as a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.cli.yaml_input import STDIN, print_problems, yaml_content

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorLibrary
    from cleveragents.actors.model.actor import Actor
    from cleveragents.actors.ports import ActorSource
    from cleveragents.cli.session import Session
    from cleveragents.core.errors import InvalidActor

__all__ = ["CheckedActor", "library_here", "loaded_actor", "named_actor", "runnable_name"]


class CheckedActor(Struct, frozen=True):
    """The actor in a file, or its mistakes."""

    actor: Actor | None
    error: InvalidActor | None = None


def library_here(session: Session) -> ActorLibrary:
    """Return the actors known in the repository of the command."""
    from cleveragents.access.trust.repository_files import repository_root

    return session.container().plan_parts.actors(repository_root(Path()))


def named_actor(session: Session, name: str) -> Actor:
    """Return the actor with this name or in this file. Prints all mistakes of a file and exits."""
    if name != "-" and not is_actor_file(name):
        return library_here(session).get(name)
    content, source = yaml_content(Path(name))
    judged = loaded_actor(session, Path(name), content, library_here(session))
    if judged.actor is not None:
        return judged.actor
    assert judged.error is not None
    if len(judged.error.problems) == 1:
        raise judged.error
    print_problems(f"{source} is not a valid actor", judged.error.problems)
    raise click.exceptions.Exit(judged.error.exit_code)


def loaded_actor(session: Session, file: Path, content: bytes, actors: ActorSource | None) -> CheckedActor:
    """Return the actor in the content of a file. `actors` are the actors that it may refer to; without
    `actors`, references are not checked.
    """
    from cleveragents.actors.loader import load_actor
    from cleveragents.actors.prompt_files import prompts_beside
    from cleveragents.core.errors import InvalidActor

    tools = session.container().plan_parts.tools_of_actors
    source = STDIN if str(file) == "-" else str(file)
    prompts = prompts_beside(file.resolve().parent)
    try:
        return CheckedActor(load_actor(content, source, tools=tools, actors=actors, prompts=prompts))
    except InvalidActor as error:
        return CheckedActor(None, error)


def runnable_name(session: Session, name: str) -> str:
    """Return a name with which a resumed plan finds the actor again. Prints all mistakes of a file and
    exits.
    """
    if name == "-":
        raise click.UsageError("pass a file instead of -: the actor is read again when the plan is resumed")
    if not is_actor_file(name):
        return name
    named_actor(session, name)
    return str(Path(name).absolute())
