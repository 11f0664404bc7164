"""A content by its name: from the file that had it, if it still has, and from the repository otherwise."""

from __future__ import annotations

from cleveragents.context.index.digests import blob_digest, read_below
from cleveragents.context.index.place import Ground
from cleveragents.core.errors import ToolRefused
from cleveragents.git.blob_reader import BlobReader

__all__ = ["SourceText"]

_MOST_BYTES = 64 << 20


class SourceText:
    """The contents of a place. Any thread may ask; who made it closes it."""

    def __init__(self, ground: Ground) -> None:
        self._root = ground.root
        git = ground.git
        self._stored = None if ground.repository is None else BlobReader(git.directory, git.environment)

    def content(self, path: str, digest: bytes) -> bytes | None:
        """None if that content is to be had no more."""
        data = read_below(self._root, path, at_most=_MOST_BYTES)
        if data is not None and _is_named(data, digest):  # guard: not as it is now
            return data
        if self._stored is None:
            return None
        try:
            data = self._stored.read(digest.hex())
        except (ToolRefused, OSError):
            return None
        return data if data is not None and _is_named(data, digest) else None

    def close(self) -> None:
        if self._stored is not None:
            self._stored.close()


def _is_named(data: bytes, digest: bytes) -> bool:
    return blob_digest(data, name_bytes=len(digest)) == digest
