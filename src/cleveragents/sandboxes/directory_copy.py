"""Sandboxes of plain directories: a copy, with our own git directory beside it.

All files are copied. `.gitignore` files work as in a repository: commands can use ignored files, but these
are not recorded. A nested repository is copied as plain files, without its `.git`: a `.git` may point to a
place outside the directory, and commits made in a copy would be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.core.errors import SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.git_directory import FSYNC_SETTINGS, GitDirectory, LooseObjects, ignores_case, traits_of
from cleveragents.git.index_file import summary_of
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.git.stored_forms import EXACT_ATTRIBUTES
from cleveragents.sandboxes.facts import SandboxFacts, SandboxLayout
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.resources import announce_large, is_repository
from cleveragents.sandboxes.tree.ignored_files import IgnoredFiles
from cleveragents.sandboxes.tree.index import SandboxTree
from cleveragents.sandboxes.tree.merge import start_from
from cleveragents.storage.files.file_copy import copy_content
from cleveragents.storage.files.paths import delete_file, empty

if TYPE_CHECKING:
    from cleveragents.sandboxes.ports import Progress, SandboxRequest, StartTree

__all__ = ["DirectoryCopy"]


class DirectoryCopy:
    """A `SandboxStrategy` for directories outside any repository. Stateless: any thread may share it."""

    name = "directory_copy"

    def __init__(self, faults: FaultPoints | None = None, *, durable: bool = False) -> None:
        self._faults = faults or NoFaults()
        self._durable = durable

    def suits(self, resource: Path) -> bool:
        return resource.is_dir() and not is_repository(resource)

    def create(
        self,
        request: SandboxRequest,
        directory: Path,
        origin: Sandbox | None = None,
        *,
        progress: Progress | None = None,
    ) -> Sandbox:
        self._faults.reach("sandbox.create.before")
        place = SandboxLayout(directory)
        _ensure_possible(request, place)
        place.tree.mkdir(parents=True)
        place.lock.touch()
        traits = traits_of(place.directory)
        settings = {
            "core.bare": "true",
            "core.ignorecase": str(ignores_case(request.resource)).lower(),
            "core.untrackedcache": "false",
            "merge.directoryrenames": "false",
            **(FSYNC_SETTINGS if self._durable else {}),
        }
        exact = origin is None or origin.facts.exact
        GitDirectory(settings=settings, attributes=EXACT_ATTRIBUTES if exact else b"").write(place.engine)
        if progress is not None:
            announce_large(progress, request.resource, _files(request.resource), "files")
        left_out = _copy(request.resource, place.tree)
        engine = PrivateRepository(place.engine, traits)
        index = place.scratch("index")
        base = engine.capture(place.tree, index)
        if request.start is not None and origin is not None:
            base = _begin_with(request.start, origin, place, index)
        self._faults.reach("sandbox.create.after-checkout")
        index.replace(place.index)
        place.base_index.hardlink_to(place.index)
        objects = LooseObjects(place.engine / "objects", "sha1", self._durable)
        ignored = IgnoredFiles(SandboxTree(place, engine, objects, plain=False), self._durable)
        ignored.bring(ignored.every_file())
        summary = summary_of(place.index, name_bytes=20)
        facts = SandboxFacts(
            plan_id=request.plan_id,
            strategy=self.name,
            resource=str(request.resource),
            base=base,
            object_format="sha1",
            plain=traits["core.filemode"] == traits["core.symlinks"] == "true",
            size_bytes=2 * summary.size_bytes,
            notes=tuple(_notes(left_out)),
            traits=traits,
            durable=self._durable,
            exact=exact,
        )
        place.write_facts(facts)
        self._faults.reach("sandbox.create.after")
        return Sandbox(place, facts, self._faults)

    def open(self, plan_id: str, resource: Path, directory: Path) -> Sandbox:
        place = SandboxLayout(directory)
        return Sandbox(place, place.read_facts(plan_id), self._faults)

    def remove(self, plan_id: str, resource: Path, directory: Path) -> None:
        self._faults.reach("sandbox.remove.before")
        empty(directory, but=SandboxLayout(directory).lock.name)
        self._faults.reach("sandbox.remove.after")


def _ensure_possible(request: SandboxRequest, place: SandboxLayout) -> None:
    resource = request.resource.resolve()
    if request.from_head:
        raise SandboxRefused(
            str(resource), "the directory is not a git repository, so it has no HEAD to start from"
        )
    if place.directory.resolve().is_relative_to(resource):
        # It would copy itself into itself without end.
        raise SandboxRefused(str(resource), "sandboxes are stored inside the directory; set state.directory")


def _begin_with(start: StartTree, origin: Sandbox, place: SandboxLayout, index: Path) -> str:
    """Replace the recorded files by those of `start`; ignored files stay as they were copied."""
    start_from(start, origin.place, place, known=None)
    engine = PrivateRepository(place.engine, traits_of(place.directory))
    engine.git("read-tree", "--reset", "-u", start.tree, work_tree=place.tree, index=index)
    listed = engine.git("ls-files", "--others", "--exclude-standard", "-z", work_tree=place.tree, index=index)
    for path in os.fsdecode(listed).split("\0")[:-1]:
        delete_file(place.tree, path)  # guard: ignored in the resource, but not by the tree's own rules
    return start.tree


def _files(resource: Path) -> Iterator[str]:
    for directory, _, names in os.walk(resource):
        yield from (os.path.relpath(Path(directory, name), resource) for name in names)


def _copy(resource: Path, tree: Path) -> list[str]:
    source = os.open(resource, os.O_RDONLY | os.O_DIRECTORY)
    target = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return copy_content(source, target, without=".git")
    finally:
        os.close(target)
        os.close(source)


def _notes(left_out: list[str]) -> Iterator[str]:
    repositories = [path.removesuffix("/.git") for path in left_out if path.endswith("/.git")]
    others = [path for path in left_out if not path.endswith("/.git")]
    if repositories:
        yield f"nested repositories are copied as plain files, without history: {', '.join(repositories)}"
    if others:
        yield f"sockets, pipes, devices and unreadable files are left out: {', '.join(others)}"
