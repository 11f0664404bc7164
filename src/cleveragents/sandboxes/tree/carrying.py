"""Content on its way from one sandbox to another, so that neither needs the other afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.durability import flush
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.git.stored_forms import StoredForms
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.sandboxes.ports import Sandbox, StartTree

__all__ = ["copy_objects", "is_exact", "place_of", "start_from", "stored_forms"]


def place_of(sandbox: Sandbox) -> SandboxPlace:
    """The parts of a sandbox that one of our strategies made."""
    return SandboxPlace(sandbox.root.parent)


def is_exact(sandbox: Sandbox) -> bool:
    """Whether the trees of a sandbox hold the bytes of files; see `SandboxFacts`."""
    return place_of(sandbox).read_facts(sandbox.plan_id).exact


def stored_forms(place: SandboxPlace, traits: Mapping[str, str], filters: Collection[str]) -> StoredForms:
    """The two git directories of a sandbox whose trees are exact."""
    converting = PrivateRepository(place.converting, objects=place.engine / "objects")
    return StoredForms(PrivateRepository(place.engine), converting, traits, frozenset(filters))


def copy_objects(
    source: SandboxPlace, target: SandboxPlace, tree: str, *, known: str | None, durable: bool = False
) -> None:
    """All that the tree is made of is in the target's own store, less what `known`, a tree that it has, is
    made of. Appears whole, by a rename. `GitFailed`."""
    if tree == known:
        return
    revisions = [tree] if known is None else [tree, f"^{known}"]
    packs = target.engine / "objects" / "pack"
    feed = "\n".join(revisions).encode("ascii") + b"\n"
    PrivateRepository(source.engine).git("pack-objects", "--revs", "-q", str(packs / "pack"), feed=feed)
    if durable:
        flush(packs)


def start_from(start: StartTree, origin: Sandbox, target: SandboxPlace, *, known: str | None) -> None:
    """`copy_objects` for a sandbox on its way. `SandboxRefused` if the origin does not have that tree."""
    try:
        copy_objects(place_of(origin), target, start.tree, known=known)
    except GitFailed as error:
        reason = f"the sandbox of plan {start.plan_id} does not give its tree {start.tree} ({error.problem})"
        raise SandboxRefused(str(target.directory), reason) from error
