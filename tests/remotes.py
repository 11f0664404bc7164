"""Bare repositories as git remotes, and queries on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cleveragents.access.model.project import RemoteAddress
from tests.apply_bench import git
from tests.plan_bench import FILES, new_repository

__all__ = ["Remote", "new_remote"]


class Remote:
    """A bare repository, and the clone of another user."""

    def __init__(self, directory: Path, branch: str = "main") -> None:
        self.directory = directory / "shop.git"
        self.clone = directory / "clone"
        self.address = RemoteAddress(f"file://{self.directory}", branch)

    @property
    def resource(self) -> str:
        return str(self.address)

    def said(self, *arguments: str) -> str:
        """Return the output of git in the bare repository."""
        return git(self.directory, *arguments).strip()

    def tip(self, branch: str = "main") -> str:
        return self.said("rev-parse", f"refs/heads/{branch}")

    def text(self, path: str, branch: str = "main") -> str:
        return git(self.directory, "show", f"refs/heads/{branch}:{path}")

    def commits_of(self, plan_id: str, branch: str = "main") -> list[str]:
        """Return the commits of the branch that belong to this plan."""
        mark = f"CleverAgents-Plan: {plan_id}"
        listed = self.said("log", "--format=%H", "--fixed-strings", f"--grep={mark}", f"refs/heads/{branch}")
        return listed.split()

    def commit(self, files: Mapping[str, str], *, branch: str = "main") -> str:
        """Push these files as another user."""
        git(self.clone, "fetch", "-q", "origin")
        git(self.clone, "checkout", "-q", "-B", branch, f"origin/{branch}")
        for path, content in files.items():
            (self.clone / path).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / path).write_text(content)
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-qm", "somebody else's")
        git(self.clone, "push", "-q", "origin", branch)
        return self.tip(branch)


def new_remote(directory: Path, files: Mapping[str, str] = FILES) -> Remote:
    """Return a remote whose branch `main` has one commit of these files."""
    remote = Remote(directory)
    new_repository(remote.clone, files)
    git(directory, "clone", "-q", "--bare", str(remote.clone), str(remote.directory))
    git(remote.clone, "remote", "add", "origin", str(remote.directory))
    return remote
