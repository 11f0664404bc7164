"""Runs git's plumbing, with an environment of our own making.

Whatever called us may have GIT_DIR and the like set (a hook does), and a repository's own configuration may
name programs to run: filters, hooks, file monitors. So no variable of git's is passed on, the user's and the
system's configuration are not read unless asked for, and hooks are off.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cleveragents.errors import GitFailed, ToolRefused

__all__ = ["PrivateRepository", "run_git", "user_environment"]

_NEUTRAL = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
    # Wrapping a tree in a commit must give the same name each time.
    "GIT_AUTHOR_NAME": "CleverAgents",
    "GIT_AUTHOR_EMAIL": "cleveragents@localhost",
    "GIT_AUTHOR_DATE": "0 +0000",
    "GIT_COMMITTER_NAME": "CleverAgents",
    "GIT_COMMITTER_EMAIL": "cleveragents@localhost",
    "GIT_COMMITTER_DATE": "0 +0000",
}
# Programs that configuration could name; the command line has the last word.
_HARMLESS = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")


def run_git(
    *arguments: str,
    environment: Mapping[str, str],
    directory: Path | None = None,
    feed: bytes = b"",
    succeeds: tuple[int, ...] = (0,),
) -> bytes:
    """What git writes to stdout. `GitFailed` with git's own words unless it exits with one of `succeeds`."""
    try:
        done = subprocess.run(
            ["git", *_HARMLESS, *arguments],
            cwd=directory,
            env=dict(environment),
            input=feed,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ToolRefused("git", "the git command is not installed, or the directory is gone") from error
    if done.returncode not in succeeds:
        words = done.stderr.decode("utf-8", "backslashreplace").strip() or f"exit code {done.returncode}"
        raise GitFailed(arguments[0], " ".join(words.split()))
    return done.stdout


def user_environment() -> dict[str, str]:
    """The environment for reading the user's own repository: theirs, without git's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class PrivateRepository:
    """A git directory of ours, with no work tree of its own. Stateless: any thread may share it.

    Every call names the work tree and the index it is about, so that one object store serves the sandbox's
    files, the user's files and what is merged of both.
    """

    directory: Path

    def git(
        self,
        *arguments: str,
        work_tree: Path | None = None,
        index: Path | None = None,
        feed: bytes = b"",
        succeeds: tuple[int, ...] = (0,),
    ) -> bytes:
        """Runs git here. `GitFailed`."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_NEUTRAL, "GIT_DIR": str(self.directory)}
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        if work_tree is not None:
            environment["GIT_WORK_TREE"] = str(work_tree)
        return run_git(*arguments, environment=environment, directory=work_tree, feed=feed, succeeds=succeeds)

    def text(self, *arguments: str, work_tree: Path | None = None, index: Path | None = None) -> str:
        """One line of output."""
        return self.git(*arguments, work_tree=work_tree, index=index).decode("utf-8").strip()

    def capture(self, work_tree: Path, index: Path) -> str:
        """The tree of all files in `work_tree` that are not ignored, as they are now.

        `index` remembers what was looked at, so that the next time only changed files are read.
        """
        self.git("add", "--all", "--", ".", work_tree=work_tree, index=index)
        return self.text("write-tree", index=index)

    def commit(self, tree: str, *parents: str) -> str:
        """A commit of that tree, for the plumbing that takes commits only; no ref names it."""
        options = [option for parent in parents for option in ("-p", parent)]
        return self.text("commit-tree", "-m", "cleveragents", *options, tree)
