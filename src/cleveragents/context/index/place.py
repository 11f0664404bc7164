"""The repository and the index of a place, and the time limits for asking git.

A repository can make git wait for ever, for example with a pipe in place of one of its files.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from cleveragents.context.code_index import CodePlace
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import Cancelled, GitFailed, SourceMissing, ToolRefused
from cleveragents.git.plumbing import SecondsLeft, private_environment, run_git, user_environment

__all__ = [
    "GitContext",
    "GitRepository",
    "IndexDeadline",
    "ResolvedPlace",
    "git_seconds",
    "ground_of",
    "repository_at",
]


_FACTS = (
    "--absolute-git-dir",
    "--git-common-dir",
    "--show-object-format",
    "--is-inside-work-tree",
    "--is-bare-repository",
    "--show-prefix",
)
_SECONDS = 10.0
_NAME = re.compile(r"[0-9a-f]{40,64}")

_MOST_SECONDS = 60.0
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class GitRepository:
    """Facts about a repository from git.

    `common_dir` is the same for all its work trees. `prefix` is the directory's path in its work tree, with a
    trailing slash, or empty.
    """

    git_dir: Path
    common_dir: Path
    name_bytes: int
    inside_work_tree: bool
    bare: bool
    prefix: str


@dataclass(frozen=True, slots=True)
class GitContext:
    """The directory and the environment for asking git about a place."""

    directory: Path
    git_dir: Path | None = None

    @staticmethod
    def of(root: Path, git_dir: Path | None) -> GitContext:
        """Return the git context for the root.

        For a sandbox, this is its own git directory, never the `.git` among its files.
        """
        return GitContext(root) if git_dir is None else GitContext(git_dir, git_dir)

    @property
    def environment(self) -> dict[str, str]:
        return user_environment() if self.git_dir is None else private_environment(self.git_dir)


@dataclass(frozen=True, slots=True)
class ResolvedPlace:
    """An existing place. `commit` is the full id of the commit to read; `home` determines the index."""

    place: CodePlace
    root: Path
    home: Path
    repository: GitRepository | None
    commit: str | None
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of the place's index."""
        return hashlib.sha256(os.fsencode(self.home)).hexdigest()[:32]

    @property
    def git(self) -> GitContext:
        return GitContext.of(self.root, self.place.git_dir)

    @property
    def name_bytes(self) -> int:
        return 20 if self.repository is None else self.repository.name_bytes


def ground_of(place: CodePlace, patience: IndexDeadline | None = None) -> ResolvedPlace:
    """Resolve a place. Raises `SourceMissing` if the directory or commit does not exist, and `Cancelled`."""
    patience = patience or IndexDeadline()
    root = Path(os.path.realpath(place.root))
    if not root.is_dir():
        problem = "not a directory" if root.exists() else "there is no such directory"
        raise SourceMissing(str(place.root), problem)
    if place.git_dir is None:
        repository, problem = repository_at(root, patience)
    else:
        repository, problem = _private(place.git_dir, patience), ""
    if place.commit is not None and repository is None:
        raise SourceMissing(f"{place.commit} of {place.root}", problem)
    commit = _commit(place, repository, patience)
    if repository is not None and commit is None and not repository.inside_work_tree:
        # The git directory itself, or something in it.
        repository = None if not repository.bare else repository
    home = root if repository is None else repository.common_dir
    if place.home is not None:
        home = _home(Path(os.path.realpath(place.home)), patience)
    told = repository is None and "not a git repository" not in problem
    notes = (f"read without git: {problem}",) if told and problem else ()
    return ResolvedPlace(place, root, home, repository, commit, notes)


def repository_at(directory: Path, patience: IndexDeadline) -> tuple[GitRepository | None, str]:
    """Return the repository that contains the directory, and an empty message; or None and git's error
    message.
    """
    try:
        told = run_git(
            "rev-parse",
            *_FACTS,
            environment=user_environment(),
            directory=directory,
            seconds_left=git_seconds(patience, _SECONDS),
        )
    except (GitFailed, ToolRefused) as error:
        return None, getattr(error, "problem", str(error))
    lines = os.fsdecode(told).split("\n")
    if len(lines) != len(_FACTS) + 1:
        return None, "the git directory has a line break in its name"
    common = Path(os.path.realpath(directory / lines[1]))
    name_bytes = 32 if lines[2] == "sha256" else 20
    inside, bare = (line == "true" for line in lines[3:5])
    return GitRepository(Path(lines[0]), common, name_bytes, inside, bare, lines[5]), ""


def _private(git_dir: Path, patience: IndexDeadline) -> GitRepository:
    """Return the repository of a sandbox's git directory. Raises `SourceMissing` if it is gone."""
    git = GitContext.of(git_dir, git_dir)
    try:
        told = run_git(
            "rev-parse",
            "--show-object-format",
            environment=git.environment,
            directory=git.directory,
            seconds_left=git_seconds(patience, _SECONDS),
        )
    except (GitFailed, ToolRefused) as error:
        raise SourceMissing(str(git_dir.parent), "the sandbox no longer exists") from error
    name_bytes = 32 if told.strip() == b"sha256" else 20
    return GitRepository(git_dir, git_dir, name_bytes, inside_work_tree=True, bare=False, prefix="")


def _home(directory: Path, patience: IndexDeadline) -> Path:
    repository, _ = repository_at(directory, patience) if directory.is_dir() else (None, "")
    return directory if repository is None else repository.common_dir


def _commit(place: CodePlace, repository: GitRepository | None, patience: IndexDeadline) -> str | None:
    """Return the full commit id; None for the current files, and for an empty bare repository."""
    if repository is None or (place.commit is None and not repository.bare):
        return None
    wanted = "HEAD" if place.commit is None else place.commit
    git = GitContext.of(Path(os.path.realpath(place.root)), place.git_dir)
    try:
        told = run_git(
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{wanted}^{{commit}}",
            environment=git.environment,
            directory=git.directory,
            succeeds=(0, 1, 128),
            seconds_left=git_seconds(patience, _SECONDS),
        )
    except GitFailed as error:
        raise SourceMissing(f"{wanted} of {place.root}", f"git rev-parse failed: {error.problem}") from error
    name = told.decode("ascii", "replace").strip()
    if not name and place.commit is not None:
        raise SourceMissing(f"{place.commit} of {place.root}", "there is no such commit")
    if name and not _NAME.fullmatch(name):
        raise SourceMissing(f"{wanted} of {place.root}", "it does not name a single commit; use a commit id")
    return name or None


def git_seconds(patience: IndexDeadline, most: float = _MOST_SECONDS) -> SecondsLeft:
    """Return the time limit of one git command: half of the remaining time, at most `most`, so that some time
    is left for the next steps. After the deadline a command still gets one second, in which a healthy
    repository answers, so that the part of the code that is already indexed can be used.
    """
    began = time.monotonic()
    patience = patience.half

    def left() -> float:
        now = time.monotonic()
        least = began + min(most, _LEAST_SECONDS) - now
        if patience.is_over:  # guard: a caller that gave up is not waited for
            return least
        return max(least, patience.seconds(began + most - now))

    return left


@dataclass(frozen=True, slots=True)
class IndexDeadline:
    """A time limit: it is over at `deadline` on the monotonic clock, or when the work is cancelled."""

    deadline: float | None = None
    cancelled: CancelSignal | None = None

    @staticmethod
    def of(seconds: float | None, cancelled: CancelSignal | None) -> IndexDeadline:
        return IndexDeadline(None if seconds is None else time.monotonic() + seconds, cancelled)

    @property
    def is_over(self) -> bool:
        """Whether the time is over. Raises `Cancelled`."""
        if self.cancelled is not None and self.cancelled.is_cancelled:
            raise Cancelled("the index was being opened")
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def half(self) -> IndexDeadline:
        """A limit that ends after half of the remaining time."""
        if self.deadline is None:
            return self
        now = time.monotonic()
        return IndexDeadline(now + (self.deadline - now) / 2, self.cancelled)

    def seconds(self, at_most: float) -> float:
        """Return the time for the next wait."""
        if self.deadline is None:
            return at_most
        return max(0.0, min(at_most, self.deadline - time.monotonic()))
