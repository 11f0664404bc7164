"""Repositories and directories for sandboxes in tests, without user configuration."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from tests.ready_repository import made_once

__all__ = ["commit_all", "fingerprint", "git", "make_repository", "write"]

_AUTHOR = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def git(directory: Path, *arguments: str, home: Path | None = None, feed: bytes = b"") -> bytes:
    """Run git there as a user with that home; fail the test with git's message."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home or directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file",
        "LC_ALL": "C",
        **_AUTHOR,
    }
    done = subprocess.run(
        ["git", *arguments], cwd=directory, env=environment, input=feed, capture_output=True, check=False
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}"
    return done.stdout


def make_repository(directory: Path, files: dict[str, str | bytes], *options: str) -> Path:
    """Return a repository on branch `main` with one commit of these files; without files, no commit."""

    def make(root: Path) -> None:
        git(root, "init", "-q", "-b", "main", *options)
        write(root, files)
        if files:
            commit_all(root)

    key = ("make_repository", *options, *files.items())
    made_once(directory, key, make, lambda: git(directory, "update-index", "-q", "--refresh"))
    return directory


def commit_all(directory: Path, message: str = "a commit") -> str:
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", message)
    return git(directory, "rev-parse", "HEAD").decode().strip()


def write(directory: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def fingerprint(directory: Path, *, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Return every file and link below, with its mode and content; `but` are prefixes to leave out."""
    found: dict[str, str] = {}
    for place, names, files in os.walk(directory):
        for name in [*names, *files]:
            path = Path(place, name)
            shown = str(path.relative_to(directory))
            if shown.startswith(but) if but else False:
                continue
            if path.is_symlink():
                found[shown] = f"link {path.readlink()}"
            elif path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                found[shown] = f"{path.stat().st_mode:o} {digest}"
            else:
                found[shown] = "directory"
    return found
