"""All actors that can be named here: those shipped, the user's, and the repository's.

Of two with one name the first counts, in that order: a repository cannot put its own in the place of what
the user knows. Its actors are shown with whether they are trusted, and only trusted ones are given out; the
prompts that stand in files of their own count with the actor.

The actors that are shipped: YAML files beside this module, and their prompts, read like anybody's.

Those for other agents are many, and are read when somebody asks for one of them, or for all.
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


# A file with a mistake anywhere is no YAML perhaps, but mostly says its name.
_NAMED = re.compile(rb"^name:[ \t]*[\"']?([A-Za-z0-9_./-]+)", re.MULTILINE)
ActorOrigin: TypeAlias = Literal["builtin", "request", "user", "repository"]

EXTERNAL_NAMESPACE = "external"
"""Of the actors that are other agents."""


@dataclass(frozen=True, slots=True)
class ActorListing:
    """An actor that was found. `problem` says why it cannot be used; `trusted`, whether it may run."""

    name: str
    origin: ActorOrigin
    source: str
    trusted: bool
    actor: Actor | None = None
    problem: str | None = None


def user_actors_directory() -> Path:
    """Beside the user's settings: `~/.config/cleveragents/actors`."""
    from cleveragents.config.loader import user_file_path

    return user_file_path(os.environ).parent / "actors"


class ActorLibrary:
    """`Actors`: those known in one repository (or in none). Stateless: any thread may share it. `tools` are
    the names of the tools that exist; without them, tools are not checked. `sent` is the YAML of one more,
    that came with the request of the plan which asks."""

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
        """Of that name, or in that file, which no YAML may name: only the user does.

        `UnknownActor` with the nearest; `NotTrusted`; `InvalidActor` if its file is broken.
        """
        if is_actor_file(name):
            return self._given_out(self._of_user(Path(name)))
        # Reading them takes a while, and all of them are in that namespace.
        for listing in self._found(external=name.startswith(f"{EXTERNAL_NAMESPACE}/")):
            if listing.name == name:
                return self._given_out(listing)
        near = get_close_matches(name, [listing.name for listing in self._found()], n=1)
        raise UnknownActor(name, near[0] if near else None)

    def file_of(self, name: str) -> Path:
        """Where the actor of that name is written, or the file itself. `UnknownActor`, `NotTrusted`,
        `InvalidActor`."""
        self.get(name)
        if is_actor_file(name):
            return Path(name)
        listing = next(one for one in self._found() if one.name == name)
        if listing.origin == "builtin":
            return shipped_file(name)
        return Path(listing.source) if listing.origin == "user" else Path(str(self._root), listing.source)

    def list(self) -> Sequence[ActorListing]:
        """All of them, in the order in which they count; broken ones with what is wrong with them."""
        found: list[ActorListing] = []
        names: set[str] = set()
        for listing in self._found():
            if listing.name in names:
                why = f"there is another actor {listing.name}, which counts before it"
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
        # Until it can be read, a file's name is all that names its actor.
        listing = ActorListing(path.stem, "user", str(path), True)
        try:
            with path.open("rb") as file:
                content = file.read(SIZE_LIMIT_BYTES + 1)
        except OSError as error:
            return changed(listing, problem=f"it cannot be read: {error.strerror}")
        # Whoever keeps their files elsewhere and links them has the prompts there, too.
        return self._loaded(listing, content, prompts_beside(path.resolve().parent))

    def _brought(self, root: Path, relative: str) -> ActorListing:
        stem = relative.removeprefix(ACTORS_DIRECTORY + "/").removesuffix(".yaml")
        listing = ActorListing(stem, "repository", relative, False)
        try:
            file = self._trust.look(root, relative)
        except ConfigurationError as error:
            return changed(listing, problem=error.problem)
        if file is None:
            return changed(listing, problem="it is gone")
        trusted = [file.trusted]

        def prompt(beside: str) -> bytes | None:
            found = self._trust.look(root, f"{ACTORS_DIRECTORY}/{beside}")
            trusted.append(found is not None and found.trusted)
            return None if found is None else found.content

        # The bytes that were judged, not the file once more.
        loaded = self._loaded(listing, file.content, prompt)
        return changed(loaded, trusted=all(trusted))  # guard: a prompt is as good as what it tells to do

    def _loaded(self, listing: ActorListing, content: bytes, prompts: PromptReader) -> ActorListing:
        try:
            actor = load_actor(content, listing.source, tools=self._tools, prompts=prompts)
        except InvalidActor as error:
            named = _NAMED.search(content)  # whoever asks for it by name is told what is wrong with it
            name = named[1].decode() if named else listing.name
            return changed(listing, name=name, problem="; ".join(error.problems))
        if actor.name.startswith(f"{BUILTIN_NAMESPACE}/"):  # guard: what is shipped means the same everywhere
            problem = f"the namespace {BUILTIN_NAMESPACE!r} is for what is shipped; choose another"
            return changed(listing, problem=problem)
        return changed(listing, name=actor.name, actor=actor)

    def _given_out(self, listing: ActorListing) -> Actor:
        if not listing.trusted:  # guard: what a repository brings along runs nothing unasked
            raise NotTrusted(f"actor {listing.name} ({listing.source})", str(self._root))
        if listing.actor is None:
            raise InvalidActor(listing.source, (str(listing.problem),))
        return listing.actor


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
