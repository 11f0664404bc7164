"""The git operations on the user's repository that a commit needs. They run no hooks and write no
configuration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import run_git, user_environment

__all__ = ["Head", "UserGit"]

_IDENTITY = tuple(
    f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")
)
_TAKEN_BACK = "cleveragents: taken back"
# Files that git keeps during an operation with which our commit would get mixed up.
_UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}


class Head(Struct, frozen=True):
    """The target of a commit: the branch, or a detached `HEAD` itself. `commit` and `tree` are empty before
    the first commit.
    """

    ref: str
    commit: str
    tree: str


class UserGit(Struct, frozen=True):
    """The user's repository. Stateless: any thread may share it."""

    git_directory: Path
    work_tree: Path

    def git(
        self,
        *arguments: str,
        feed: bytes = b"",
        succeeds: tuple[int, ...] = (0,),
        variables: Mapping[str, str] | None = None,
    ) -> bytes:
        """Run git on the repository. Raises `GitFailed`."""
        identity = {name: os.environ[name] for name in _IDENTITY if name in os.environ}
        place = {"GIT_DIR": str(self.git_directory), "GIT_WORK_TREE": str(self.work_tree)}
        environment = {**user_environment(), **identity, **place, **(variables or {})}
        return run_git(
            *arguments, environment=environment, directory=self.work_tree, feed=feed, succeeds=succeeds
        )

    def text(self, *arguments: str, succeeds: tuple[int, ...] = (0,)) -> str:
        """Run git and return one line of output."""
        return os.fsdecode(self.git(*arguments, succeeds=succeeds)).strip()

    def under_way(self) -> str:
        """Return the operation in progress, such as a merge; empty if there is none."""
        found = (what for name, what in _UNDER_WAY.items() if (self.git_directory / name).exists())
        return next(found, "")

    def head(self) -> Head:
        ref = self.text("symbolic-ref", "-q", "HEAD", succeeds=(0, 1)) or "HEAD"
        commit = self.text("rev-parse", "-q", "--verify", "HEAD^{commit}", succeeds=(0, 1, 128))
        return Head(ref, commit, self.text("rev-parse", f"{commit}^{{tree}}") if commit else "")

    def has_identity(self) -> bool:
        """Return whether the user has configured an identity. An identity that git guesses does not count."""
        try:
            for role in ("AUTHOR", "COMMITTER"):
                self.git("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT")
        except GitFailed:
            return False
        return True

    def signs_commits(self) -> bool:
        """Return whether the user requires signed commits."""
        return self.text("config", "--type=bool", "--get", "commit.gpgSign", succeeds=(0, 1)) == "true"

    def staged(self, tree: str) -> set[str]:
        """Return the paths whose index entry differs from the tree."""
        said = self.git("diff-index", "--cached", "-z", "--name-only", "--no-renames", tree)
        return set(os.fsdecode(said).split("\0")[:-1])

    def value_of(self, ref: str) -> str:
        """Return the commit of the ref; empty if the ref does not exist. Raises `GitFailed`."""
        if not os.path.lexists(self.git_directory / "HEAD"):  # guard: git reports it like a missing ref
            problem = f"{self.git_directory} is not a repository, or is unreachable"
            raise GitFailed("rev-parse", problem)
        return self.text("rev-parse", "-q", "--verify", f"{ref}^{{commit}}", succeeds=(0, 1, 128))

    def has_moved(self, ref: str, commit: str, mark: str) -> bool:
        """Return whether the ref was moved to that commit with `mark` in its reflog, even if the ref has
        moved on since.
        """
        now = self.value_of(ref)
        if now == commit or not now:
            return bool(now)
        # guard: a program named by the repository would check signatures
        log = self.git("log", "-g", "--no-show-signature", "--format=%gs", ref, "--", succeeds=(0, 128))
        told = [line for line in os.fsdecode(log).split("\n") if mark in line]
        if told:  # newest first
            return _TAKEN_BACK not in told[0]
        try:
            self.git("merge-base", "--is-ancestor", commit, now)
        except GitFailed:
            return False
        return True

    def move_ref(self, ref: str, new: str, old: str, *, reason: str) -> None:
        """Move the ref from `old` to `new`; an empty value means that the ref does not exist. Raises
        `GitFailed` if the ref is not at `old`.

        The reason goes to the reflog. It also identifies the git process by its command line, in case that
        process outlives ours.
        """
        none = "0" * len(new or old)
        # guard: the ref moves only from its expected commit
        self.git("update-ref", "--no-deref", "-m", reason, ref, new or none, old or none)

    def take_back(self, ref: str, new: str, old: str, mark: str) -> None:
        """Undo `move_ref`."""
        self.move_ref(ref, old, new, reason=f"{_TAKEN_BACK} {mark}")
