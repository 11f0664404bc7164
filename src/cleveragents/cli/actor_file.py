"""Actors that a command is given, by their name or as a YAML file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.cli.yaml_input import STDIN, print_problems, yaml_content

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorLibrary
    from cleveragents.actors.model.actor import Actor
    from cleveragents.actors.ports import ActorSource
    from cleveragents.cli.session import Session
    from cleveragents.core.errors import InvalidActor

__all__ = ["CheckedActor", "library_here", "loaded_actor", "named_actor", "runnable_name"]


@dataclass(frozen=True, slots=True)
class CheckedActor:
    """A file's actor, or what is wrong with it."""

    actor: Actor | None
    error: InvalidActor | None = None


def library_here(session: Session) -> ActorLibrary:
    """The actors that are known in the repository that the command was given in."""
    from cleveragents.access.trust.repository_files import repository_root

    return session.container().plan_parts.actors(repository_root(Path()))


def named_actor(session: Session, name: str) -> Actor:
    """The actor of that name, or in that file. All that is wrong with a file is told; then it ends."""
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
    """The actor in the content of that file. `actors` are those that it may name; without them, nobody looks
    whether they exist."""
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
    """By which a plan finds the actor, wherever it is resumed. A file is judged first: what is wrong with it
    is told all at once."""
    if name == "-":
        raise click.UsageError("an actor is read again when its plan is resumed; name a file, not -")
    if not is_actor_file(name):
        return name
    named_actor(session, name)
    return str(Path(name).absolute())
