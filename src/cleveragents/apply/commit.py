"""Commit an applied result, separately from the user's uncommitted changes.

The commit merges the plan into HEAD, not into the working tree, so the user's uncommitted edits stay
uncommitted. The order is: prepare the commit, move the files, replace the index, move the branch. The apply
is complete when the branch has moved.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.apply.journal import CommitFacts, JournalEntry
from cleveragents.apply.lock import fingerprint_of, lock_index
from cleveragents.apply.merge import MergeResult, merge_trees
from cleveragents.apply.staging import index_line_of
from cleveragents.apply.target import ApplyTarget
from cleveragents.apply.user_git import Head, UserGit
from cleveragents.core.change import Difference
from cleveragents.core.errors import ApplyRefused
from cleveragents.git.git_directory import copy_index
from cleveragents.git.index_file import LISTING, marked_in
from cleveragents.git.plumbing import changed_between

if TYPE_CHECKING:
    import psutil

__all__ = ["CommitBuilder", "is_committed", "publish_index", "take_back_commit", "wait_for_stragglers"]

_INDEX_PATIENCE_SECONDS = 5.0
_STRAGGLER_PATIENCE_SECONDS = 10.0
_LOOSE_LIMIT = 100
_TRAILERS = re.compile(r"(?:\A|\n\n)(?:[A-Za-z0-9-]+: .*\n?)+\Z")


class CommitBuilder(Struct, frozen=True):
    """The preparation of one commit. Not thread-safe: used only by its creating call."""

    plan_id: str
    apply_target: ApplyTarget
    scratch: Path

    def lock(self) -> None:
        """Lock the index until `unlock_index`. Raises `ApplyRefused`."""
        if not lock_index(self.scratch, patience_seconds=_INDEX_PATIENCE_SECONDS):
            raise self._refused("another git command holds index.lock; wait until it ends")

    def make(self, merge: MergeResult, message: str) -> CommitFacts | None:
        """Prepare the commit and the index without publishing them. Return None if HEAD already has all
        changes. Raises `ApplyRefused`.
        """
        user = self._user()
        head = user.head()
        tree = head.tree or self.apply_target.repository.text("hash-object", "-t", "tree", os.devnull)
        base, theirs = self._as_committed(merge, tree)
        merged = merge_trees(self.apply_target.repository, base, tree, theirs)
        if merged.conflicts:
            named = ", ".join(conflict.path for conflict in merged.conflicts)
            raise self._refused(
                f"the result depends on your uncommitted changes ({named}); commit them first, or apply "
                "without a commit"
            )
        if not merged.changes:
            return None
        self._ensure_committable(user, tree, {*merge.changes, *merged.changes})
        self._hand_over(user, merged.merged, tree, len(merged.changes))
        new = self._commit(user, head, merged.merged, message)
        index = self.apply_target.required_git_directory / "index"
        before = fingerprint_of(index)
        after = self._new_index(user, index, merged.changes)
        return CommitFacts(str(user.git_directory), head.ref, head.commit, new, before, after)

    def _as_committed(self, merge: MergeResult, head: str) -> tuple[str, str]:
        """Return the trees before and after the merge, with their files as git commits them (for example,
        with converted line endings).
        """
        repository, forms = self.apply_target.repository, self.apply_target.forms
        if forms is None or not self._converts(merge):
            return merge.base, merge.theirs
        return forms.to_commit(head, merge.base, changed_between(repository, merge.base, merge.theirs))

    def _converts(self, merge: MergeResult) -> bool:
        """Return whether git may commit other bytes than those in the files."""
        if self.apply_target.forms is None or self.apply_target.has_other_forms:
            return self.apply_target.forms is not None
        changes = changed_between(self.apply_target.repository, merge.base, merge.theirs)
        return any(map(_is_attributes, changes))

    def tree_of(self, facts: CommitFacts, merge: MergeResult) -> str:
        """Return the tree of a commit that was made. If git converts files, return the merged files instead,
        which the tree cannot be compared with.
        """
        if self._converts(merge):
            return merge.merged
        return self._user().git("rev-parse", f"{facts.new}^{{tree}}").decode("ascii").strip()

    def ensure_possible(self) -> None:
        """Raise `ApplyRefused` if no commit can be made in the user's repository."""
        if self.apply_target.git_directory is None:
            raise self._refused("the directory is not a git repository; apply without a commit")
        user = self._user()
        under_way = user.under_way()
        if under_way:
            raise self._refused(f"{under_way} is in progress; finish it first, or apply without a commit")
        if not user.has_identity():
            raise self._refused("git has no identity for you; set user.name and user.email")
        if user.signs_commits():  # guard: never skip a required signature
            raise self._refused(
                "commit.gpgSign is set, but only your own git can sign; apply without a commit, then commit "
                "yourself"
            )

    def _user(self) -> UserGit:
        return UserGit(self.apply_target.required_git_directory, self.apply_target.resource)

    def _ensure_committable(self, user: UserGit, tree: str, paths: set[str]) -> None:
        staged = sorted(user.staged(tree) & paths)
        if staged:  # guard: staged changes of the user are neither committed nor lost
            raise self._refused(
                f"you have staged changes to {', '.join(staged)}; commit or unstage them, "
                "or apply without a commit"
            )
        feed = b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))
        said = user.git("check-attr", "-z", "--stdin", "filter", feed=feed).split(b"\0")
        values = zip(said[0::3], said[2::3], strict=False)
        filtered = [os.fsdecode(path) for path, value in values if _is_set(value)]
        if filtered:
            raise self._refused(
                f"{', '.join(filtered)} uses a filter that only your own git runs; apply without a "
                "commit, then commit it yourself"
            )

    def _hand_over(self, user: UserGit, tree: str, known: str, changes: int) -> None:
        """Copy the commit's objects into the user's store."""
        feed = f"{tree}\n^{known}\n".encode("ascii")
        pack = self.apply_target.repository.git("pack-objects", "--revs", "--stdout", "-q", feed=feed)
        if changes <= _LOOSE_LIMIT:
            user.git("unpack-objects", "-q", feed=pack)
        else:
            user.git("index-pack", "--stdin", feed=pack)

    def _commit(self, user: UserGit, head: Head, tree: str, message: str) -> str:
        text = message.strip() or f"Apply plan {self.plan_id}"
        gap = "\n" if _TRAILERS.search(text) and "\n\n" in text else "\n\n"
        parents = ("-p", head.commit) if head.commit else ()
        feed = f"{text}{gap}CleverAgents-Plan: {self.plan_id}\n".encode("utf-8", "backslashreplace")
        return user.git("commit-tree", *parents, "-F", "-", tree, feed=feed).decode("ascii").strip()

    def _new_index(self, user: UserGit, index: Path, changes: Mapping[str, Difference]) -> str:
        draft = self.scratch / "index.new"
        copy_index(index, draft)
        # Removals first: a directory may take a file's name.
        ordered = sorted(changes.items(), key=lambda item: item[1].after is not None)
        feed = b"".join(index_line_of(path, change) for path, change in ordered)
        variables = {"GIT_INDEX_FILE": str(draft)}
        marked = marked_in(user.git(*LISTING, variables=variables))
        user.git("update-index", "-z", "--index-info", feed=feed, variables=variables)
        staying = {path for path, change in changes.items() if change.after is not None}
        for mark, paths in zip(("--assume-unchanged", "--skip-worktree"), marked, strict=True):
            again = b"".join(os.fsencode(path) + b"\0" for path in paths if path in staying)
            if again:  # guard: a new entry lacks the user's marks of the old one
                user.git("update-index", mark, "-z", "--stdin", feed=again, variables=variables)
        return fingerprint_of(draft)

    def _refused(self, reason: str) -> ApplyRefused:
        return ApplyRefused(self.plan_id, reason)


def publish_index(facts: CommitFacts, scratch: Path, plan_id: str) -> None:
    """Replace the user's index by the prepared one, and keep the old index. Raises `ApplyRefused`."""
    index = Path(facts.git_directory, "index")
    if fingerprint_of(index) != facts.index_before:  # guard: replace only the index that was read
        raise ApplyRefused(plan_id, "the repository's index changed during the apply; try again")
    if facts.index_before:
        os.link(index, scratch / "index.old")
    (scratch / "index.new").replace(index)


def is_committed(facts: CommitFacts, resource: Path, apply_id: str) -> bool:
    """Return whether the branch has moved, which makes the apply complete."""
    return UserGit(Path(facts.git_directory), resource).has_moved(facts.ref, facts.new, apply_id)


def take_back_commit(facts: CommitFacts, scratch: Path, resource: Path, apply_id: str) -> None:
    """Restore the branch and the index. An index that another program changed meanwhile is not touched."""
    user = UserGit(Path(facts.git_directory), resource)
    if user.value_of(facts.ref) == facts.new:
        user.take_back(facts.ref, facts.new, facts.old, apply_id)
    index = Path(facts.git_directory, "index")
    if fingerprint_of(index) != facts.index_after:
        return
    if facts.index_before:
        # The old index keeps its own name until it is in place, so this can be repeated.
        (scratch / "index.old").replace(index)
    else:
        index.unlink()


def wait_for_stragglers(entry: JournalEntry) -> bool:
    """Wait for a git process that moves the branch and may outlive its parent; return whether
    none is left.
    """
    if entry.journal.commit is None:
        return True
    import psutil

    deadline = time.monotonic() + _STRAGGLER_PATIENCE_SECONDS
    while any(_moves_ref(process, entry.id) for process in psutil.process_iter(["cmdline"])):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _moves_ref(process: psutil.Process, apply_id: str) -> bool:
    command = process.info["cmdline"] or ()
    return "update-ref" in command and any(apply_id in word for word in command)


def _is_attributes(path: str) -> bool:
    return path.rpartition("/")[2] == ".gitattributes"


def _is_set(value: bytes) -> bool:
    return value not in (b"unspecified", b"unset")
