"""The user's repository, as far as a commit needs it. No hook runs, no configuration is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import run_git, user_environment

__all__ = ["Head", "UserGit"]

_IDENTITY = tuple(
    f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")
)
_TAKEN_BACK = "cleveragents: taken back"
# What git leaves while something is half done that a commit of ours would mix up with.
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}


@dataclass(frozen=True, slots=True)
class Head:
    """Where a commit goes: the branch, or `HEAD` itself when it is detached. `commit` and `tree` are empty
    before the first commit."""

    ref: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class UserGit:
    """Stateless: any thread may share it."""

    git_directory: Path
    work_tree: Path

    def git(
        self,
        *arguments: str,
        feed: bytes = b"",
        succeeds: tuple[int, ...] = (0,),
        variables: Mapping[str, str] | None = None,
    ) -> bytes:
        """Runs git on the repository. `GitFailed`."""
        identity = {name: os.environ[name] for name in _IDENTITY if name in os.environ}
        place = {"GIT_DIR": str(self.git_directory), "GIT_WORK_TREE": str(self.work_tree)}
        environment = {**user_environment(), **identity, **place, **(variables or {})}
        return run_git(
            *arguments, environment=environment, directory=self.work_tree, feed=feed, succeeds=succeeds
        )

    def text(self, *arguments: str, succeeds: tuple[int, ...] = (0,)) -> str:
        """One line of output."""
        return os.fsdecode(self.git(*arguments, succeeds=succeeds)).strip()

    def under_way(self) -> str:
        """What was begun and not ended; empty if nothing."""
        found = (what for name, what in _UNDER_WAY.items() if (self.git_directory / name).exists())
        return next(found, "")

    def head(self) -> Head:
        ref = self.text("symbolic-ref", "-q", "HEAD", succeeds=(0, 1)) or "HEAD"
        commit = self.text("rev-parse", "-q", "--verify", "HEAD^{commit}", succeeds=(0, 1, 128))
        return Head(ref, commit, self.text("rev-parse", f"{commit}^{{tree}}") if commit else "")

    def has_identity(self) -> bool:
        """Whether the user has said who they are; a guess is not enough to sign with."""
        try:
            for role in ("AUTHOR", "COMMITTER"):
                self.git("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT")
        except GitFailed:
            return False
        return True

    def signs_commits(self) -> bool:
        """Whether the user wants every commit signed."""
        return self.text("config", "--type=bool", "--get", "commit.gpgSign", succeeds=(0, 1)) == "true"

    def staged(self, tree: str) -> set[str]:
        """Paths whose entry in the index is not what the tree has."""
        said = self.git("diff-index", "--cached", "-z", "--name-only", "--no-renames", tree)
        return set(os.fsdecode(said).split("\0")[:-1])

    def value_of(self, ref: str) -> str:
        """The commit that the ref names; empty if there is none. `GitFailed`."""
        if not os.path.lexists(self.git_directory / "HEAD"):  # guard: git says of it what it says of no ref
            problem = f"{self.git_directory} is no repository, or out of reach at the moment"
            raise GitFailed("rev-parse", problem)
        return self.text("rev-parse", "-q", "--verify", f"{ref}^{{commit}}", succeeds=(0, 1, 128))

    def has_moved(self, ref: str, commit: str, mark: str) -> bool:
        """Whether the ref was moved to that commit under that mark, wherever it went on from there."""
        now = self.value_of(ref)
        if now == commit or not now:
            return bool(now)
        # guard: a signature is checked by a program that the repository names
        log = self.git("log", "-g", "--no-show-signature", "--format=%gs", ref, "--", succeeds=(0, 128))
        told = [line for line in os.fsdecode(log).split("\n") if mark in line]
        if told:  # the last one first
            return _TAKEN_BACK not in told[0]
        try:
            self.git("merge-base", "--is-ancestor", commit, now)
        except GitFailed:
            return False
        return True

    def move_ref(self, ref: str, new: str, old: str, *, reason: str) -> None:
        """From `old` to `new`, or not at all: `GitFailed` if it was elsewhere. Empty: no such ref.

        The reason is kept in the ref's log. It is on the command line, too, by which a process that outlived
        us is found.
        """
        none = "0" * len(new or old)
        # guard: the ref moves only from where it was
        self.git("update-ref", "--no-deref", "-m", reason, ref, new or none, old or none)

    def take_back(self, ref: str, new: str, old: str, mark: str) -> None:
        """Undoes `move_ref`."""
        self.move_ref(ref, old, new, reason=f"{_TAKEN_BACK} {mark}")
