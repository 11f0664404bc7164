"""Merges three versions of one file's content with git's own merge."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cleveragents.core.errors import GitFailed
from cleveragents.git.plumbing import PrivateRepository

__all__ = ["merged_content"]


def merged_content(
    repository: PrivateRepository, ancestor: str | None, ours: str, theirs: str, *, favour: str | None = None
) -> str | None:
    """The name of the merged content, kept in the repository; None if the two sides conflict. Without an
    ancestor, an empty one; where they conflict, the side to `favour` has its way."""
    options = ("-p", "--quiet", *([f"--{favour}"] if favour else []))
    with tempfile.TemporaryDirectory(prefix="cleveragents-merge-") as place:
        files = []
        for side, name in (("ours", ours), ("ancestor", ancestor), ("theirs", theirs)):
            file = Path(place) / side
            file.write_bytes(b"" if name is None else repository.git("cat-file", "blob", name))
            files.append(str(file))
        try:
            # Its exit code is the number of conflicts; binary files it refuses.
            merged = repository.git("merge-file", *options, *files)
        except GitFailed:
            return None
    return repository.git("hash-object", "-w", "--stdin", feed=merged).decode("ascii").strip()
