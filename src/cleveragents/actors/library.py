"""The library of actors: the built-in actors, the user's, and the repository's.

If several actors have the same name, the first in that order is used, so a repository cannot replace an actor
that the user knows. Actors of a repository are listed with their trust, and only trusted actors can be used.
Prompt files are trusted together with their actor.

Built-in actors are YAML files in this package. The many actors for external agents are read only when one of
them, or the whole list, is requested.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, TypeAlias

from cleveragents.access.trust.repository_files import ACTORS_DIRECTORY, actor_paths
from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.actors.loader import load_actor
from cleveragents.actors.model.actor import Actor, is_actor_file
from cleveragents.actors.prompt_files import PromptReader, prompts_beside
from cleveragents.config.yaml.document import SIZE_LIMIT_BYTES
from cleveragents.core.actions.model import BUILTIN_NAMESPACE
from cleveragents.core.errors import ConfigurationError, InvalidActor, NotTrusted, UnknownActor

__all__ = [
    "EXTERNAL_NAMESPACE",
    "ActorLibrary",
    "ActorListing",
    "ActorOrigin",
    "builtin_actors",
    "external_actors",
    "shipped_file",
    "user_actors_directory",
]


# An invalid file may not parse as YAML, but usually still contains its name.
_NAMED = re.compile(rb"^name:[ \t]*[\"']?([A-Za-z0-9_./-]+)", re.MULTILINE)
ActorOrigin: TypeAlias = Literal["builtin", "request", "user", "repository"]

EXTERNAL_NAMESPACE = "external"
"""Namespace of the actors that run external agents."""


@dataclass(frozen=True, slots=True)
class ActorListing:
    """A listed actor. `problem` is the reason why it cannot be used; `trusted`: it may run."""

    name: str
    origin: ActorOrigin
    source: str
    trusted: bool
    actor: Actor | None = None
    problem: str | None = None


def user_actors_directory() -> Path:
    """Return the directory of the user's actors: `~/.config/cleveragents/actors`."""
    from cleveragents.config.loader import user_file_path

    return user_file_path(os.environ).parent / "actors"


class ActorLibrary:
    """The `ActorSource` of one repository, or of none. Stateless: any thread may share it.

    `tools` are the names of the existing tools; without them, tool names are not checked. `sent` is the YAML
    of an additional actor that was sent with the plan's request.
    """

    def __init__(
        self,
        resource_root: Path | None,
        trust: SqlTrustStore,
        *,
        tools: Collection[str] | None = None,
        user_directory: Path | None = None,
        sent: str | None = None,
    ) -> None:
        self._root = resource_root
        self._trust = trust
        self._tools = tools
        self._user_directory = user_directory or user_actors_directory()
        self._sent = sent

    def get(self, name: str) -> Actor:
        """Return the actor with that name or in that file. Only the user can name a file; an actor's YAML can
        only name actors.

        Raises `UnknownActor` with the closest name, `NotTrusted`, or `InvalidActor` if the file is invalid.
        """
        if is_actor_file(name):
            return self._given_out(self._of_user(Path(name)))
        # Reading these takes time, and all of them are in one namespace.
        for listing in self._found(external=name.startswith(f"{EXTERNAL_NAMESPACE}/")):
            if listing.name == name:
                return self._given_out(listing)
        near = get_close_matches(name, [listing.name for listing in self._found()], n=1)
        raise UnknownActor(name, near[0] if near else None)

    def file_of(self, name: str) -> Path:
        """Return the file of an actor. Raises `UnknownActor`, `NotTrusted` or `InvalidActor`."""
        self.get(name)
        if is_actor_file(name):
            return Path(name)
        listing = next(one for one in self._found() if one.name == name)
        if listing.origin == "builtin":
            return shipped_file(name)
        return Path(listing.source) if listing.origin == "user" else Path(str(self._root), listing.source)

    def list(self) -> Sequence[ActorListing]:
        """Return all actors in order of precedence, including invalid ones with their problems."""
        found: list[ActorListing] = []
        names: set[str] = set()
        for listing in self._found():
            if listing.name in names:
                why = f"hidden by another actor named {listing.name}"
                listing = changed(listing, problem=listing.problem or why)
            names.add(listing.name)
            found.append(listing)
        return found

    def _found(self, *, external: bool = True) -> Iterator[ActorListing]:
        for actor in builtin_actors():
            yield ActorListing(actor.name, "builtin", "shipped", True, actor)
        for actor in external_actors() if external else ():
            yield ActorListing(actor.name, "builtin", "shipped", True, actor)
        if self._sent is not None:
            listing = ActorListing("sent", "request", "the request", True)
            yield self._loaded(listing, self._sent.encode(), lambda relative: None)
        for path in sorted(self._user_directory.rglob("*.yaml")):
            yield self._of_user(path)
        if self._root is not None:
            for relative in actor_paths(self._root):
                yield self._brought(self._root, relative)

    def _of_user(self, path: Path) -> ActorListing:
        # Until the file is parsed, its name stands for the actor's.
        listing = ActorListing(path.stem, "user", str(path), True)
        try:
            with path.open("rb") as file:
                content = file.read(SIZE_LIMIT_BYTES + 1)
        except OSError as error:
            return changed(listing, problem=f"cannot be read: {error.strerror}")
        # If the file is a symbolic link, its prompts are beside the target.
        return self._loaded(listing, content, prompts_beside(path.resolve().parent))

    def _brought(self, root: Path, relative: str) -> ActorListing:
        stem = relative.removeprefix(ACTORS_DIRECTORY + "/").removesuffix(".yaml")
        listing = ActorListing(stem, "repository", relative, False)
        try:
            file = self._trust.look(root, relative)
        except ConfigurationError as error:
            return changed(listing, problem=error.problem)
        if file is None:
            return changed(listing, problem="the file no longer exists")
        trusted = [file.trusted]

        def prompt(beside: str) -> bytes | None:
            found = self._trust.look(root, f"{ACTORS_DIRECTORY}/{beside}")
            trusted.append(found is not None and found.trusted)
            return None if found is None else found.content

        # Load the bytes whose trust was checked, not the file again.
        loaded = self._loaded(listing, file.content, prompt)
        return changed(loaded, trusted=all(trusted))  # guard: a prompt decides what its actor does

    def _loaded(self, listing: ActorListing, content: bytes, prompts: PromptReader) -> ActorListing:
        try:
            actor = load_actor(content, listing.source, tools=self._tools, prompts=prompts)
        except InvalidActor as error:
            named = _NAMED.search(content)  # so that a request by name reports the problem
            name = named[1].decode() if named else listing.name
            return changed(listing, name=name, problem="; ".join(error.problems))
        if actor.name.startswith(f"{BUILTIN_NAMESPACE}/"):  # guard: a built-in name means the same everywhere
            problem = f"the namespace {BUILTIN_NAMESPACE!r} is reserved; choose another"
            return changed(listing, problem=problem)
        return changed(listing, name=actor.name, actor=actor)

    def _given_out(self, listing: ActorListing) -> Actor:
        if not listing.trusted:  # guard: an actor of a repository runs only after it was trusted
            raise NotTrusted(f"actor {listing.name} ({listing.source})", str(self._root))
        if listing.actor is None:
            raise InvalidActor(listing.source, (str(listing.problem),))
        return listing.actor


def builtin_actors() -> tuple[Actor, ...]:
    """Return the built-in actors, sorted by name."""
    return _actors_in(BUILTIN_NAMESPACE)


def external_actors() -> tuple[Actor, ...]:
    """Return the built-in actors for external agents, sorted by name."""
    return _actors_in(EXTERNAL_NAMESPACE)


def shipped_file(name: str) -> Path:
    """Return the file of a built-in actor."""
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
