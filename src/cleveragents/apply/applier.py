"""`Applier` with git merges, a journal in the database, and atomic file swaps.

Also finds the cause of a conflict: the user, or a plan that was applied before.

Also refuses a result that creates or changes a git directory. git treats any directory with `HEAD`, `objects`
and `refs`, or with `HEAD` and `commondir`, as a git directory, and runs programs that its configuration
names. A later `git status` in such a directory, or below it, would run code that the plan has written.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol
from unicodedata import normalize

from msgspec.structs import replace

from cleveragents.apply.journal import PREPARED, STAGING, ApplyJournal, Conclusion
from cleveragents.apply.lock import resource_lock, try_resource_lock
from cleveragents.apply.merge import MergeResult, states_in
from cleveragents.apply.ports import (
    BY_PLAN,
    USUAL,
    ApplyOptions,
    ApplyRecord,
    FileConflict,
    Preparation,
    Recovered,
)
from cleveragents.apply.preparation import ApplyEngine, MergeInput, TreePreparation
from cleveragents.apply.recovery import Recovery
from cleveragents.apply.target import ApplyTarget, git_directory_of
from cleveragents.core.change import Difference, FileState
from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import ApplyRefused, Remedy
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.text.control_characters import IGNORED_BY_HFS
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.tree.merge import stored_forms
from cleveragents.storage.database import Database

__all__ = ["TreeApplier", "blamed", "ensure_no_git_directory"]


_APPLIES_LOOKED_AT = 100

# Case-folded: some file systems do not distinguish other spellings.
_FILES = frozenset({"head", "config", "config.worktree", "commondir"})
_DIRECTORIES = frozenset({"objects", "refs", "hooks"})
_MOST_NAMED = 5


class TreeApplier:
    """Applies trees to the resources they were made from.

    Holds no state but the database: any thread may share it, and any number of processes may have one each;
    the lock of the resource lets one apply run at a time. `conclusion` is called in the transaction that ends
    an apply, to store the plan's own state with it. With `durability="full"`, applies survive a power cut.
    `home` names the state directory, for databases that several state directories share.
    """

    def __init__(
        self,
        database: Database,
        identifiers: IdentifierSource,
        clock: Clock | None = None,
        *,
        faults: FaultPoints | None = None,
        durability: Literal["normal", "full"] = "normal",
        conclusion: Conclusion | None = None,
        home: str = "",
    ) -> None:
        faults = faults or NoFaults()
        full = durability == "full"
        journal = ApplyJournal(database, identifiers, clock or SystemClock(), conclusion)
        recovery = Recovery(journal, faults, full=full, home=home)
        self._engine = ApplyEngine(journal, recovery, identifiers, faults, full, home)

    @contextmanager
    def prepare(
        self, plan_id: str, sandbox: Sandbox, tree: str, terms: ApplyOptions = USUAL
    ) -> Iterator[Preparation]:
        apply_target = _apply_target_of(plan_id, sandbox)
        merge_input = MergeInput("apply", plan_id, terms.base or sandbox.base, tree)
        with (
            _lock(apply_target.resource, terms),
            self._prepared(apply_target, merge_input) as preparation,
        ):
            yield preparation

    @contextmanager
    def prepare_undo(
        self, plan_id: str, sandbox: Sandbox, terms: ApplyOptions = USUAL
    ) -> Iterator[Preparation]:
        apply_target = _apply_target_of(plan_id, sandbox)
        with _lock(apply_target.resource, terms):
            self._engine.recovery.recover_held(apply_target.resource, plan_id)
            last = self._engine.journal.last_of_plan(plan_id)
            if last is None or last.kind != "apply":
                raise ApplyRefused(plan_id, "the plan has no apply to undo")
            merge_input = MergeInput("undo", plan_id, last.journal.merged, last.journal.ours, last.journal)
            with self._prepared(apply_target, merge_input) as preparation:
                yield preparation

    def is_busy(self, resource: str) -> bool:
        try:
            with try_resource_lock(Path(resource)) as held:
                return not held
        except (FileNotFoundError, NotADirectoryError):
            return False

    def is_busy_here(self, resource: str) -> bool:
        return self.is_busy(resource)

    @contextmanager
    def deciding(self, plan_id: str, resource: str, terms: ApplyOptions = USUAL) -> Iterator[None]:
        directory = Path(resource)
        with ExitStack() as held:
            # An unreachable resource cannot be applied to by others either.
            with suppress(FileNotFoundError, NotADirectoryError):
                held.enter_context(_lock(directory, terms))
                self._engine.recovery.recover_held(directory, plan_id)
            yield

    def recover(self) -> Sequence[Recovered]:
        return self._engine.recovery.recover()

    def last_of_plan(self, plan_id: str) -> ApplyRecord | None:
        last = self._engine.journal.last_of_plan(plan_id)
        return None if last is None else last.record

    def undecided(self) -> frozenset[str]:
        entries = self._engine.journal.open_entries()
        return frozenset(entry.plan_id for entry in entries if entry.state in (STAGING, PREPARED))

    def give_up(self, plan_id: str) -> Sequence[str]:
        return self._engine.recovery.give_up(plan_id)

    @contextmanager
    def _prepared(self, apply_target: ApplyTarget, merge_input: MergeInput) -> Iterator[TreePreparation]:
        """Yield the prepared merge. The caller must hold the resource's lock."""
        self._engine.recovery.recover_held(apply_target.resource, merge_input.plan_id)
        apply_target.ensure_no_other_journal(merge_input.plan_id)
        apply_target.begin()
        if merge_input.undoes is not None:
            apply_target.know(
                {file.path: file.after for file in merge_input.undoes.files if file.after is not None}
            )
        try:
            merge = apply_target.merge(merge_input.base, apply_target.capture(), merge_input.theirs)
            if merge_input.undoes is None:  # guard: an undo restores the user's own files
                ensure_no_git_directory(
                    merge_input.plan_id, apply_target.repository, merge, apply_target.resource
                )
            if merge.conflicts:
                merge = replace(
                    merge, conflicts=blamed(self._engine.journal, apply_target, merge_input.plan_id, merge)
                )
            preparation = TreePreparation(self._engine, apply_target, merge_input, merge)
            try:
                yield preparation
            finally:
                preparation.close()
        finally:
            apply_target.end()


def _lock(resource: Path, terms: ApplyOptions) -> AbstractContextManager[None]:
    return resource_lock(
        resource, waiting=terms.waiting, timeout_seconds=terms.timeout_seconds, stop=terms.stop
    )


def _apply_target_of(plan_id: str, sandbox: Sandbox) -> ApplyTarget:
    resource = Path(sandbox.facts.resource)
    if not resource.is_dir():
        raise ApplyRefused(plan_id, f"{resource} is no longer a directory")
    directory = None if sandbox.facts.common_dir is None else git_directory_of(resource)
    index = sandbox.repository.directory / f"apply-{secrets.token_hex(8)}.index"
    facts = sandbox.facts
    forms = None
    if facts.exact and directory is not None:
        forms = stored_forms(sandbox.place, facts.traits, facts.filters)
    return ApplyTarget(resource, sandbox.repository, directory, index, forms, facts.converts)


def blamed(
    journal: ApplyJournal, apply_target: ApplyTarget, plan_id: str, merge: MergeResult
) -> tuple[FileConflict, ...]:
    """Return the conflicts with their causes. If a file is unchanged since an earlier apply, the plan of that
    apply is the cause.
    """
    paths = [conflict.path for conflict in merge.conflicts]
    present = states_in(apply_target.repository, merge.ours, paths)
    left = _left_behind(journal, str(apply_target.resource), set(paths))
    found = []
    for conflict in merge.conflicts:
        state, author = left.get(conflict.path, (None, plan_id))
        by_plan = author != plan_id and present.get(conflict.path) == state
        found.append(replace(conflict, cause=conflict.cause or (f"{BY_PLAN}{author}" if by_plan else "you")))
    return tuple(found)


def _left_behind(
    journal: ApplyJournal, resource: str, paths: set[str]
) -> dict[str, tuple[FileState | None, str]]:
    """Return the last applied state of each path, with its plan."""
    found: dict[str, tuple[FileState | None, str]] = {}
    for entry in journal.latest(resource, _APPLIES_LOOKED_AT):
        for file in entry.journal.files:
            if file.path in paths:
                found.setdefault(file.path, (file.after, entry.plan_id))
    return found


class _IsThere(Protocol):
    """A function that returns whether a path exists after the merge; with `as_file`, whether it exists as a
    file.
    """

    def __call__(self, path: str, *, as_file: bool = False) -> bool: ...


def ensure_no_git_directory(
    plan_id: str, repository: PrivateRepository, merge: MergeResult, resource: Path | None = None
) -> None:
    """Raise `ApplyRefused` if the merge writes a part of a directory that would then be a git directory.

    `resource` is the directory with the user's files, which may include empty directories and other entries
    that are in no tree.
    """
    touched = _touched(merge.changes)
    if not touched:
        return
    listed = _listed(repository, merge.merged)
    gone = {path for path, change in merge.changes.items() if change.after is None}

    def is_there(path: str, *, as_file: bool = False) -> bool:
        kind = listed.get(_folded(path))
        if kind is not None:
            return kind != "tree" or not as_file
        return resource is not None and _stays(resource, path, gone, as_file=as_file)

    found = [directory for directory in sorted(touched) if _is_git_directory(directory, is_there)]
    if found:
        named = ", ".join(directory or "." for directory in found[:_MOST_NAMED])
        reason = f"the result would write to a git directory, whose configuration can run programs: {named}"
        paths = [path for directory in found for path in ([directory] if directory else sorted(touched[""]))]
        review = [Remedy("plan.review", plan_id, {"reject": path}, "Leave the files out") for path in paths]
        raise ApplyRefused(plan_id, reason, remedies=tuple(review[:_MOST_NAMED]))


def _touched(changes: Mapping[str, Difference]) -> dict[str, list[str]]:
    """Return the directories in which the changes write typical entries of a git directory, with the paths of
    these entries.
    """
    touched: dict[str, list[str]] = {}
    for path, change in changes.items():
        parts = path.split("/")
        for number, part in enumerate(parts if change.after is not None else ()):
            name = _folded(part)
            if name in _DIRECTORIES or (number == len(parts) - 1 and name in _FILES):
                touched.setdefault("/".join(parts[:number]), []).append(path)
    return touched


def _is_git_directory(directory: str, is_there: _IsThere) -> bool:
    before = f"{directory}/" if directory else ""
    if not is_there(f"{before}HEAD", as_file=True):
        return False
    return is_there(f"{before}commondir") or (is_there(f"{before}objects") and is_there(f"{before}refs"))


def _folded(path: str) -> str:
    """Return the path as a case-insensitive file system compares it; some also
    ignore zero-width characters.
    """
    return normalize("NFC", path).translate(IGNORED_BY_HFS).casefold()


def _listed(repository: PrivateRepository, tree: str) -> dict[str, str]:
    """Return every path of a tree, as `_folded` returns it, with its kind in git; a directory is a `tree`."""
    said = repository.git("ls-tree", "-r", "-t", "-z", "--full-tree", tree)
    rows = (line.partition("\t") for line in os.fsdecode(said).split("\0")[:-1])
    return {_folded(path): about.split(" ")[1] for about, _, path in rows}


def _stays(resource: Path, path: str, gone: Collection[str], *, as_file: bool) -> bool:
    """Return whether the path exists in the user's directory and remains after the merge removes `gone`; with
    `as_file`, whether it remains as a file.
    """
    place = resource / path
    if path in gone or not os.path.lexists(place):
        return False
    if as_file:
        return place.is_symlink() or not place.is_dir()
    if not any(other.startswith(f"{path}/") for other in gone):
        return True
    files = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    return any(str(file.relative_to(resource)) not in gone for file in files)
