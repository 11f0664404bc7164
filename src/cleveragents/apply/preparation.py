"""A prepared merge and its execution: stage the files, write the journal, move the files, end the entry.

`PreparedMerge` is shared by applies to files and pushes to a branch; it can be executed only once.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.apply.commit import CommitBuilder, publish_index
from cleveragents.apply.exchange import FileObservation, Metadata, sync_filesystem
from cleveragents.apply.journal import (
    DONE,
    PREPARED,
    STAGING,
    ApplyJournal,
    CommitFacts,
    Journal,
    JournalEntry,
)
from cleveragents.apply.merge import MergeResult, files_in, submodules_in
from cleveragents.apply.moves import FileChanged, Mover
from cleveragents.apply.ports import Applied, CommitRequest, FileConflict
from cleveragents.apply.recovery import Recovery
from cleveragents.apply.staging import (
    Staging,
    emptied_by,
    made_by,
    see,
    staging_directory,
    strange_content,
)
from cleveragents.apply.target import ApplyTarget
from cleveragents.apply.user_git import UserGit
from cleveragents.core.change import Difference
from cleveragents.core.errors import ApplyConflict, ApplyRefused, GitFailed, Remedy
from cleveragents.core.faults import FaultPoints
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.git.plumbing import changed_between, index_line

__all__ = ["ApplyEngine", "MergeInput", "PreparedMerge", "TreePreparation"]

_MOST_NAMED = 5
_APPLY = "apply"
_UNWRITABLE = {
    errno.EACCES: "you may not write to its directory",
    errno.EPERM: "the file or its directory is immutable, or belongs to another user",
    errno.EROFS: "the file system is read-only",
}


class ApplyEngine(Struct, frozen=True):
    """The parts that all preparations of an applier share."""

    journal: ApplyJournal
    recovery: Recovery
    identifiers: IdentifierSource
    faults: FaultPoints
    full: bool
    home: str = ""


class PreparedMerge:
    """The read-only part of `Preparation`.

    Not thread-safe. Use it only in the `with` block of `prepare`, and execute it at most once.
    """

    def __init__(self, merge_input: MergeInput, merge: MergeResult, faults: FaultPoints) -> None:
        self._merge_input = merge_input
        self._merge = merge
        self._faults = faults
        self._usable = True

    @property
    def merged(self) -> str:
        return self._merge.merged

    @property
    def conflicts(self) -> Sequence[FileConflict]:
        return self._merge.conflicts

    @property
    def changes(self) -> Mapping[str, Difference]:
        return MappingProxyType(dict(self._merge.changes))

    def keep_current(self) -> str:
        return self._merge.ours

    def close(self) -> None:
        """Invalidate the preparation, because the resource's lock is released."""
        self._usable = False

    def _use(self) -> None:
        """Claim the single use. Raises `ApplyRefused`, `ApplyConflict`."""
        if not self._usable:  # guard: never without the resource's lock, and never twice
            raise ApplyRefused(
                self._merge_input.plan_id, "the preparation has expired; prepare the apply again"
            )
        if self._merge.conflicts:
            paths = tuple(conflict.path for conflict in self._merge.conflicts)
            raise ApplyConflict(self._merge_input.plan_id, paths, "\n".join(map(str, self._merge.conflicts)))
        self._usable = False

    def _reach(self, step: str) -> None:
        self._faults.reach(f"{self._merge_input.kind}.{step}")


class TreePreparation(PreparedMerge):
    """A `Preparation` that moves files. Not thread-safe: use it in the block that prepared it, once."""

    def __init__(
        self, engine: ApplyEngine, apply_target: ApplyTarget, merge_input: MergeInput, merge: MergeResult
    ) -> None:
        super().__init__(merge_input, merge, engine.faults)
        self._engine = engine
        self._apply_target = apply_target

    @property
    def landed(self) -> bool:
        return False

    def keep_current(self) -> str:
        merge = self._merge
        current = self._without_ignored() if merge.ignored else merge.ours
        self._apply_target.keep(replace(merge, ours=current, merged=current))
        return current

    def _without_ignored(self) -> str:
        """Return the tree of the current files without ignored files, which the agent must not read. Raises
        `ApplyRefused` if the plan changes one of them.
        """
        merge, repository, plan_id = self._merge, self._apply_target.repository, self._merge_input.plan_id
        planned = changed_between(repository, merge.base, merge.theirs)
        changed = [path for path in merge.ignored if path in planned][:_MOST_NAMED]
        if changed:
            reason = f"git ignores your {', '.join(changed)}, so the agent must not read it"
            review = [
                Remedy("plan.review", plan_id, {"reject": path}, "Leave the file out") for path in changed
            ]
            raise ApplyRefused(plan_id, reason, remedies=tuple(review))
        gone = (index_line(0, "0" * len(merge.ours), path) for path in merge.ignored)
        return repository.tree_with(merge.ours, gone, self._apply_target.index.with_suffix(".current"))

    def apply(self, commit: CommitRequest | None = None) -> Applied:
        self._use()
        merge = self._merge
        if commit is None:
            self._apply_target.ensure_known_submodules(self._merge_input.plan_id, merge.changes)
        entry = JournalEntry(
            self._engine.identifiers.new(),
            self._merge_input.plan_id,
            str(self._apply_target.resource),
            self._merge_input.kind,
            STAGING,
            Journal(
                "",
                base=merge.base,
                ours=merge.ours,
                merged=merge.merged,
                home=self._engine.home,
                renames=merge.renames,
            ),
        )
        if not merge.changes and commit is None:
            self._engine.journal.record_empty(replace(entry, state=DONE))
            return Applied(entry.id, {})
        return self._applied(entry, commit)

    def commit_apart(self, message: str) -> tuple[str, str] | None:
        """Commit the result on top of HEAD, and return the commit and its tree; None if HEAD has all changes.

        No file, index or branch changes. Raises `ApplyRefused`, `ApplyConflict`.
        """
        self._use()
        with TemporaryDirectory() as scratch:
            making = CommitBuilder(self._merge_input.plan_id, self._apply_target, Path(scratch))
            making.ensure_possible()
            facts = making.make(self._merge, message)
            return None if facts is None else (facts.new, making.tree_of(facts, self._merge))

    def _looked_again(self) -> dict[str, FileObservation]:
        """Read the files to change again, and verify that they are byte for byte those that were merged.

        Raises `ApplyConflict` if they differ, and `ApplyRefused` for a file with a filter program, because
        the merge used only the form of the file that git stores. Other files that the user changed since the
        merge are not touched.
        """
        files = files_in(self._merge.changes)
        seen = see(self._apply_target.resource, files)
        strange = strange_content(self._apply_target, files, seen)
        filtered = self._apply_target.filtered(strange)
        if filtered:
            reason = f"{', '.join(filtered)} uses a filter that only your own git runs"
            text = "Leave the file out and change it yourself"
            review = Remedy("plan.review", self._merge_input.plan_id, {"reject": None}, text)
            raise ApplyRefused(self._merge_input.plan_id, reason, remedies=(review,))
        if strange:  # guard: later edits are detected when the bytes are swapped out
            raise self._changed_since(strange)
        return seen

    def _applied(self, entry: JournalEntry, commit: CommitRequest | None) -> Applied:
        engine = self._engine
        entry = self._begun(entry, commit)
        try:
            entry = self._staged(entry, commit)
            self._reach("journal.before")
            engine.journal.prepare(entry)
            entry = replace(entry, state=PREPARED)
            self._reach("journal.after")
            self._moved(entry)
            self._reach("done.before")
        except FileChanged as error:
            self._undone(entry)
            raise self._changed_since([error.path]) from error
        except (OSError, GitFailed) as error:
            self._undone(entry)
            raise _refusal(entry, error) from error
        except BaseException:
            self._undone(entry)
            raise
        # From here on it is done: if recording fails, the next start finds all files in their new state.
        engine.journal.end(entry, done=True)
        self._reach("done.after")
        engine.recovery.discard(entry)
        self._reach("end.after")
        facts = entry.journal.commit
        changes = MappingProxyType(dict(self._merge.changes))
        return Applied(entry.id, changes, facts.new if facts else None, self._merge.renames)

    def _begun(self, entry: JournalEntry, commit: CommitRequest | None) -> JournalEntry:
        """Start the journal entry. It names every place where a crash could leave files."""
        apply_target = self._apply_target
        scratch = ""
        if commit is not None:
            CommitBuilder(entry.plan_id, apply_target, Path()).ensure_possible()
            scratch = str(apply_target.required_git_directory / "cleveragents" / entry.id)
        staging = staging_directory(apply_target.resource, apply_target.git_directory, entry.id)
        entry = replace(entry, journal=replace(entry.journal, staging=str(staging), scratch=scratch))
        self._reach("stage.before")
        self._engine.journal.begin(entry)
        return entry

    def _staged(self, entry: JournalEntry, commit: CommitRequest | None) -> JournalEntry:
        apply_target, changes = self._apply_target, self._merge.changes
        facts = None
        staging = Path(entry.journal.staging)
        if commit is not None:
            scratch = Path(entry.journal.scratch)
            scratch.mkdir(parents=True)
            making = CommitBuilder(entry.plan_id, apply_target, scratch)
            making.lock()
            facts = making.make(self._merge, commit.message)
        with Staging(apply_target, staging, files_in(changes), self._merge_input.undoes) as arriving:
            apply_target.keep(self._merge)  # guard: an undo needs content that the user may delete
            files, metadata = arriving.finish(self._looked_again())
        made, emptied = made_by(apply_target.resource, changes), emptied_by(apply_target.resource, changes)
        permissions: dict[str, Metadata | int] = {}
        if self._merge_input.undoes is not None:
            before = self._merge_input.undoes
            # A directory that existed before the apply stays, and one that it removed is restored.
            gone = {*before.made, *before.submodules}
            emptied = {path: had for path, had in emptied.items() if path in gone}
            permissions = {path: before.emptied[path] for path in made if path in before.emptied}
        journal = replace(
            entry.journal,
            files=files,
            metadata=metadata,
            made=made,
            emptied=emptied,
            permissions=permissions,
            submodules=submodules_in(changes),
            commit=facts,
        )
        if self._engine.full:
            sync_filesystem(staging)
        self._reach("stage.after")
        return replace(entry, journal=journal)

    def _moved(self, entry: JournalEntry) -> None:
        resource = self._apply_target.resource
        with Mover(resource, entry.journal, self._engine.faults, self._merge_input.kind) as mover:
            mover.forward()
        facts = entry.journal.commit
        if facts is not None:
            self._committed(entry, facts)
        if self._engine.full:
            sync_filesystem(resource)

    def _committed(self, entry: JournalEntry, facts: CommitFacts) -> None:
        self._reach("index.before")
        publish_index(facts, Path(entry.journal.scratch), entry.plan_id)
        self._reach("index.after")
        if self._engine.full:
            sync_filesystem(self._apply_target.resource)
        self._reach("ref.before")
        user = UserGit(Path(facts.git_directory), self._apply_target.resource)
        reason = f"cleveragents: {self._merge_input.kind} {entry.id} of plan {entry.plan_id}"
        try:
            user.move_ref(facts.ref, facts.new, facts.old, reason=reason)
        except GitFailed as error:
            raise ApplyRefused(entry.plan_id, f"cannot move {facts.ref}: {error.problem}") from error
        self._reach("ref.after")

    def _undone(self, entry: JournalEntry) -> None:
        if entry.state == PREPARED:
            self._engine.recovery.undo(entry)
        else:
            self._engine.recovery.conclude(entry)

    def _changed_since(self, paths: Sequence[str]) -> ApplyConflict:
        return ApplyConflict(self._merge_input.plan_id, tuple(paths), "changed since the merge was prepared")


class MergeInput(Struct, frozen=True):
    """The change to merge: base → theirs. `kind` is `apply` or `undo`; `undoes` is the journal of the undone
    apply.
    """

    kind: str
    plan_id: str
    base: str
    theirs: str
    undoes: Journal | None = None


def _refusal(entry: JournalEntry, error: OSError | GitFailed) -> ApplyRefused:
    """Return the refusal for an error at a file: which file, why, and what to do."""
    why = _UNWRITABLE.get(error.errno or 0) if isinstance(error, OSError) else None
    if why is None or not isinstance(error, OSError) or error.filename is None:
        return ApplyRefused(entry.plan_id, str(error))
    path = os.fsdecode(error.filename)
    again = Remedy(f"plan.{entry.kind}", entry.plan_id, text=f"Make it writable, then {entry.kind} again")
    changed = any(file.path == path for file in entry.journal.files)
    leave = Remedy("plan.review", entry.plan_id, {"reject": path}, "Leave the file out")
    remedies = (again, leave) if changed and entry.kind == _APPLY else (again,)
    return ApplyRefused(entry.plan_id, f"cannot write {path}: {why}", remedies=remedies)
