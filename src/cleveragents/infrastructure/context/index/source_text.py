"""A content by its name: from the file that had it, if it still has, and from the repository otherwise."""

from __future__ import annotations

import os

from cleveragents.errors import GitFailed, ToolRefused
from cleveragents.infrastructure.context.index.digests import blob_digest, read_regular
from cleveragents.infrastructure.context.index.place import Ground
from cleveragents.infrastructure.git.plumbing import run_git, user_environment

__all__ = ["source_text"]

_MOST_BYTES = 64 << 20


def source_text(ground: Ground, path: str, digest: bytes) -> bytes | None:
    """None if that content is to be had no more."""
    data = read_regular(os.fsencode(f"{ground.root}/{path}"), at_most=_MOST_BYTES)
    if data is not None and blob_digest(data, name_bytes=len(digest)) == digest:  # guard: not as it is now
        return data
    if ground.repository is None:
        return None
    try:
        return run_git(
            "cat-file", "blob", digest.hex(), environment=user_environment(), directory=ground.root
        )
    except (GitFailed, ToolRefused):
        return None
