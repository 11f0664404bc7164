"""Sandboxes of git repositories: a private repository that borrows the user's objects.

The sandbox shares only the objects with the user's repository, and the only write to that repository is one
uniquely named ref. So any number of sandboxes can be created in parallel, and nothing inside a sandbox
affects the user. (A linked worktree would also share refs, stash, configuration and hooks, and a lock in the
repository prevents the creation of two worktrees at the same time.)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cleveragents.core.errors import GitFailed, SandboxMissing, SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.git_directory import (
    FSYNC_SETTINGS,
    GitDirectory,
    LooseObjects,
    copy_index,
    copy_shared_indexes,
    ignores_case,
    traits_of,
)
from cleveragents.git.index_file import hidden_files, holds_attributes, reveal, summary_of
from cleveragents.git.plumbing import STREAMED, PrivateRepository, RunningGit, index_line
from cleveragents.git.stored_forms import EXACT_ATTRIBUTES
from cleveragents.git.user_repository import (
    UserRepository,
    content_of,
    look_at,
    pin,
    pinned_in,
    unpin,
)
from cleveragents.sandboxes.facts import SandboxFacts, SandboxLayout
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.resources import announce_large, is_repository
from cleveragents.sandboxes.tree.ignored_files import IgnoredFiles, bring_included
from cleveragents.sandboxes.tree.index import SandboxTree
from cleveragents.sandboxes.tree.merge import start_from, stored_forms
from cleveragents.storage.files.paths import empty, read_file

if TYPE_CHECKING:
    from cleveragents.sandboxes.ports import Progress, SandboxRequest

__all__ = ["PrivateClone"]

_NAMED = 5


class PrivateClone:
    """A `SandboxStrategy` for git repositories. Stateless: any thread may share it."""

    name = "private_clone"

    def __init__(self, faults: FaultPoints | None = None, *, durable: bool = False) -> None:
        self._faults = faults or NoFaults()
        self._durable = durable

    def suits(self, resource: Path) -> bool:
        return is_repository(resource)

    def create(
        self,
        request: SandboxRequest,
        directory: Path,
        origin: Sandbox | None = None,
        *,
        progress: Progress | None = None,
    ) -> Sandbox:
        self._faults.reach("sandbox.create.before")
        repository = look_at(request.resource)
        if origin is not None:
            repository = _as_known_to(origin, repository)
        place = SandboxLayout(directory)
        place.tree.mkdir(parents=True)
        place.lock.touch()
        exact = request.remote is None if origin is None else origin.facts.exact
        _write_engine(repository, place, FSYNC_SETTINGS if self._durable else {}, exact=exact)
        _ensure_apart(request.resource, place)
        making = _Making(
            request, repository, place, self._faults, self._durable, origin, exact=exact, progress=progress
        )
        try:
            facts = making.run()
        except GitFailed as error:
            if repository.is_partial:
                reason = f"the repository is a partial clone without all objects ({error.problem})"
                raise SandboxRefused(str(request.resource), reason) from error
            raise
        place.write_facts(facts)
        self._faults.reach("sandbox.create.after")
        return Sandbox(place, facts, self._faults)

    def open(self, plan_id: str, resource: Path, directory: Path) -> Sandbox:
        place = SandboxLayout(directory)
        return Sandbox(place, place.read_facts(plan_id), self._faults)

    def remove(self, plan_id: str, resource: Path, directory: Path) -> None:
        self._faults.reach("sandbox.remove.before")
        place = SandboxLayout(directory)
        with contextlib.suppress(SandboxMissing):
            _let_go(plan_id, resource, place)
        self._faults.reach("sandbox.remove.after-ref")
        empty(directory, but=place.lock.name)
        self._faults.reach("sandbox.remove.after")


@dataclass
class _Making:
    """The creation of one sandbox. Not thread-safe: used only by its creating call."""

    request: SandboxRequest
    repository: UserRepository
    place: SandboxLayout
    faults: FaultPoints
    durable: bool
    origin: Sandbox | None = None
    exact: bool = True
    progress: Progress | None = None
    notes: list[str] = field(default_factory=list)
    absent: tuple[str, ...] = ()
    traits: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.traits = traits_of(self.place.directory)

    def run(self) -> SandboxFacts:
        repository, place = self.repository, self.place
        base = self._base_and_checkout()
        place.base_index.hardlink_to(place.index)
        self._write_visible_index(base)
        self._bring_included()
        self.faults.reach("sandbox.create.after-checkout")
        summary = summary_of(place.index, name_bytes=20 if repository.object_format == "sha1" else 32)
        if summary.gitlinks:
            self.notes.append(
                f"submodules are left empty, and changes inside them are not recorded: "
                f"{', '.join(summary.gitlinks)}"
            )
        if self.absent:
            more = f" and {len(self.absent) - _NAMED} more" if len(self.absent) > _NAMED else ""
            self.notes.append(
                "files outside your sparse checkout are copied from the index; a change to one "
                f"can be applied after you check it out: {', '.join(self.absent[:_NAMED])}{more}"
            )
        if self._uses_filters():
            self.notes.append(
                "filters such as git-lfs do not run in the sandbox: the files have the content that git "
                "stores"
            )
        return SandboxFacts(
            plan_id=self.request.plan_id,
            strategy=PrivateClone.name,
            resource=str(self.request.resource),
            base=base,
            object_format=repository.object_format,
            plain=self._is_plain,
            size_bytes=summary.size_bytes,
            head=repository.head,
            branch=repository.branch,
            common_dir=str(repository.common_dir),
            gitlinks=summary.gitlinks,
            readable=tuple(str(store) for store in (*repository.object_stores, place.engine / "objects")),
            notes=tuple(self.notes),
            traits=self.traits,
            durable=self.durable,
            exact=self.exact,
            converts=_converts(repository),
            filters=self._filters,
        )

    @property
    def _is_plain(self) -> bool:
        keeps_all = self.traits["core.filemode"] == self.traits["core.symlinks"] == "true"
        return keeps_all and (self.exact or not _converts(self.repository))

    def _write_visible_index(self, base: str) -> None:
        """Write the index that commands see. Its entries hold the bytes that git would commit, because git in
        the sandbox applies the user's conversions.
        """
        shown, head_tree = self.place.tree / ".git" / "index", self.repository.head_tree
        if not self._has_other_forms(self.place.index) or head_tree in (None, base):
            copy_index(self.place.index, shown)
            return
        engine, draft = PrivateRepository(self.place.engine), self.place.scratch("index")
        copy_index(self.place.index, draft)
        options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--diff-filter=MT")
        listed = os.fsdecode(engine.git("diff-tree", *options, base, str(head_tree))).split("\0")[:-1]
        lines = []
        for facts, path in zip(listed[::2], listed[1::2], strict=True):
            _, mode, _, name, _ = facts.split(" ")
            lines.append(index_line(int(mode, 8), name, path))
        engine.git("update-index", "-z", "--index-info", index=draft, feed=b"".join(lines))
        draft.replace(shown)

    def _has_other_forms(self, index: Path) -> bool:
        """Return whether git may commit other bytes for a file in this index than those on disk."""
        return self.exact and (_converts(self.repository) or holds_attributes(index))

    def _bring_included(self) -> None:
        came, notes = bring_included(self.request, self.place)
        self.notes += notes
        if came:
            engine = PrivateRepository(self.place.engine, self.traits)
            objects = LooseObjects(self.place.engine / "objects", self.repository.object_format, self.durable)
            IgnoredFiles(SandboxTree(self.place, engine, objects, plain=False), self.durable).bring(came)

    def _uses_filters(self) -> bool:
        return bool(self._filters) and b"filter=" in content_of(self.place.tree / ".gitattributes")

    @property
    def _filters(self) -> tuple[str, ...]:
        """The names of the user's filter programs."""
        names = (name for name in self.repository.settings if name.startswith("filter."))
        return tuple(sorted({name.removeprefix("filter.").rpartition(".")[0] for name in names}))

    def _base_and_checkout(self) -> str:
        """Check out the base and return its tree. HEAD is checked out while a search for uncommitted changes
        runs in parallel.
        """
        head, head_tree = self.repository.head, self.repository.head_tree
        engine = PrivateRepository(self.place.engine)
        index = self.place.scratch("index")
        if head:
            self._pin(head)
        self.faults.reach("sandbox.create.after-ref")
        with contextlib.ExitStack() as running:
            checkout = None
            if head_tree and self.request.start is None:
                checkout = running.enter_context(self._start_checkout(index, head_tree))
            _write_visible(self.repository, self.place, self.traits)
            base = self._base(engine)
            if checkout:
                checkout.finish()
        base = base or engine.text("mktree")
        if base != head_tree or checkout is None:
            self._keep_uncommitted(engine, base)
            with self._start_checkout(index, base) as checkout:
                checkout.finish()
        index.replace(self.place.index)
        return base

    def _base(self, engine: PrivateRepository) -> str | None:
        """Return the tree of the base; None if HEAD was requested and the repository has no commits."""
        start, origin = self.request.start, self.origin
        if start is not None and origin is not None:
            start_from(start, origin.place, self.place, known=self.repository.head_tree)
            return start.tree
        if self.request.from_head and self.repository.head is None:
            return None
        other_forms = self._has_other_forms(self.repository.git_dir / "index")
        if not other_forms and self._is_only_what_is_committed(engine):
            return self.repository.head_tree
        return self._capture(engine)

    def _pin(self, head: str) -> None:
        try:
            pin(self.repository, self.request.plan_id, head)
        except (GitFailed, OSError) as error:
            said = error.problem if isinstance(error, GitFailed) else str(error)
            where = self.repository.common_dir
            reason = (
                f"cannot write the ref of the plan's base in {where} ({said}); "
                "make it writable, or use a clone"
            )
            raise SandboxRefused(str(self.request.resource), reason) from error

    def _start_checkout(self, index: Path, tree: str) -> RunningGit:
        engine = PrivateRepository(self.place.engine, {**self.traits, **STREAMED})
        return engine.start("read-tree", "--reset", "-u", tree, work_tree=self.place.tree, index=index)

    def _is_only_what_is_committed(self, engine: PrivateRepository) -> bool:
        """Return whether the base is HEAD's tree, by request or because nothing is uncommitted."""
        if self.request.from_head:
            return True
        if self.repository.head is None or self._shared_indexes():
            return False
        # Reads the user's index in place: locks are off, so nothing is written back.
        options = (
            "--porcelain",
            "-z",
            "--no-renames",
            "--ignore-submodules=dirty",
            "--untracked-files=normal",
        )
        index = self.repository.git_dir / "index"
        with engine.start("status", *options, work_tree=self.request.resource, index=index) as status:
            hidden = hidden_files(engine, self.request.resource, index)
            unchanged = not status.finish()[0]
        if hidden.assumed or hidden.present:  # guard: git does not report an edit that the index hides
            return False
        self.absent = hidden.absent
        return unchanged

    def _shared_indexes(self) -> list[Path]:
        """Return the shared parts of a split index, which git expects in its own directory."""
        return list(self.repository.git_dir.glob("sharedindex.*"))

    def _capture(self, engine: PrivateRepository) -> str:
        """Return the tree of the user's current files; new objects go to our store."""
        index = self.place.scratch("index")
        copy_index(self.repository.git_dir / "index", index)
        copy_shared_indexes(self.repository.git_dir, self.place.engine)
        resource = self.request.resource
        forms = stored_forms(self.place, self.traits, self._filters)
        try:
            if self.request.from_head:
                tree = str(self.repository.head_tree)
                engine.git("read-tree", "--reset", tree, work_tree=resource, index=index)
                forms.check_out(resource, index)
                return engine.text("write-tree", index=index)
            self.absent = reveal(engine, resource, index).absent
            self._announce(engine, index)
            nested = engine.stage(resource, index)
            if nested:
                self.notes.append(f"nested repositories are left out: {', '.join(nested)}")
            if self._has_other_forms(index):
                forms.read_exactly(resource, index)
            return engine.text("write-tree", index=index)
        finally:
            index.unlink(missing_ok=True)

    def _announce(self, engine: PrivateRepository, index: Path) -> None:
        if self.progress is not None:
            options = ("-z", "--others", "--modified", "--exclude-standard")
            listed = engine.git("ls-files", *options, work_tree=self.request.resource, index=index)
            paths = os.fsdecode(listed).split("\0")[:-1]
            announce_large(self.progress, self.request.resource, paths, "uncommitted files")

    def _keep_uncommitted(self, engine: PrivateRepository, base: str) -> None:
        """Copy content that is in no commit into the sandbox's store. Staged content is only in the user's
        store, where `git gc` may prune it. Content from another sandbox is already copied.
        """
        if self.origin is not None:
            return
        revisions = [base, *([f"^{self.repository.head_tree}"] if self.repository.head_tree else [])]
        engine.pack(revisions)  # guard: see above


def _as_known_to(origin: Sandbox, repository: UserRepository) -> UserRepository:
    """Return the repository with HEAD and branch as they were when `origin` was created: the tree of `origin`
    does not contain later commits of the user.
    """
    head = origin.facts.head
    head_tree = origin.repository.text("rev-parse", f"{head}^{{tree}}") if head else None
    return replace(repository, head=head, head_tree=head_tree, branch=origin.facts.branch)


def _ensure_apart(resource: Path, place: SandboxLayout) -> None:
    """Raise `SandboxRefused` if the sandbox lies inside the resource and git does not ignore it: it would
    become part of the next sandbox's base.
    """
    if not place.directory.resolve().is_relative_to(resource.resolve()):
        return
    inside = str(place.directory.resolve().relative_to(resource.resolve()))
    engine = PrivateRepository(place.engine)
    said = engine.git("check-ignore", inside, work_tree=resource, index=place.index, succeeds=(0, 1))
    if not said:
        reason = (
            f"sandboxes are stored inside it, in {Path(inside).parent}; ignore it, or set state.directory"
        )
        raise SandboxRefused(str(resource), reason)


def _write_engine(
    repository: UserRepository, place: SandboxLayout, more: Mapping[str, str], *, exact: bool
) -> None:
    """Write our git directory."""
    own_attributes = content_of(repository.common_dir / "info" / "attributes")
    attributes_file = {"core.attributesfile": str(place.engine / "user-attributes")}
    GitDirectory(
        object_format=repository.object_format,
        faithful=repository.settings,
        # Changes relative to this commit are uncommitted.
        head=repository.head or "ref: refs/heads/none",
        settings={
            "core.bare": "true",
            "core.ignorecase": str(ignores_case(repository.common_dir / "objects")).lower(),
            "core.excludesfile": str(place.engine / "user-exclude"),
            "core.untrackedcache": "false",
            "core.splitindex": "false",
            "merge.directoryrenames": "false",
            **attributes_file,
            **({"core.autocrlf": "false"} if exact else {}),
            **more,
        },
        borrowed=(repository.common_dir / "objects",),
        exclude=content_of(repository.common_dir / "info" / "exclude"),
        attributes=own_attributes + (EXACT_ATTRIBUTES if exact else b""),
        shallow=content_of(repository.common_dir / "shallow"),
    ).write(place.engine)
    if exact:
        GitDirectory(
            object_format=repository.object_format,
            faithful=repository.settings,
            settings={"core.bare": "true", **attributes_file, **more},
            attributes=own_attributes,
        ).write(place.converting)
    (place.engine / "user-exclude").write_bytes(repository.user_exclude)
    (place.engine / "user-attributes").write_bytes(repository.user_attributes)


def _write_visible(repository: UserRepository, place: SandboxLayout, traits: Mapping[str, str]) -> None:
    """Write the git directory that commands see. The user's settings may name files that commands cannot
    read, so the content of these files is included.
    """
    settings = repository.settings
    author = {name: settings[name] for name in ("user.name", "user.email") if name in settings}
    head, branch = repository.head, repository.branch

    def shown(path: str) -> bytes:
        # guard: a link could expose files outside the repository to commands
        return read_file(repository.common_dir, path) or b""

    visible = GitDirectory(
        object_format=repository.object_format,
        faithful=settings,
        settings={"core.bare": "false", "core.logallrefupdates": "true", **author, **traits},
        head=f"ref: {branch}" if branch else str(head),
        refs={branch: head} if branch and head else {},
        borrowed=(repository.common_dir / "objects", place.engine / "objects"),
        # Lowest precedence first: a later pattern wins.
        exclude=repository.own_exclude + b"\n" + shown("info/exclude"),
        attributes=repository.own_attributes + b"\n" + shown("info/attributes"),
        shallow=shown("shallow"),
    )
    visible.write(place.tree / ".git")
    visible.write(place.engine / "visible")  # the template for resetting the visible git directory


def _converts(repository: UserRepository) -> bool:
    """Return whether settings make git commit other bytes than those on disk, even without a .gitattributes
    file.
    """
    return bool(
        repository.flag("core.autocrlf", otherwise=False)
        or content_of(repository.common_dir / "info" / "attributes").strip()
        or repository.user_attributes.strip()
    )


def _let_go(plan_id: str, resource: Path, place: SandboxLayout) -> None:
    """Remove the plan's pin. Raises `SandboxRefused` if it exists and cannot be removed."""
    try:
        common_dir = _common_dir(plan_id, resource, place)
    except SandboxRefused:
        return
    try:
        unpin(common_dir, plan_id)
    except (GitFailed, OSError) as error:
        if plan_id in pinned_in(resource)[1]:  # otherwise there is no pin
            reason = f"cannot remove the ref of plan {plan_id} in {common_dir}; make it writable"
            raise SandboxRefused(str(resource), reason) from error


def _common_dir(plan_id: str, resource: Path, place: SandboxLayout) -> Path:
    """Return the git directory that holds the pin: from the facts of the sandbox or, if it is incomplete and
    has none, from the resource.
    """
    with contextlib.suppress(SandboxMissing):
        known = place.read_facts(plan_id).common_dir
        if known is not None:
            return Path(known)
    return look_at(resource).common_dir
