"""Objects of ours, written and read without a git process: one for every recorded file would be too dear."""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cleveragents.git.durability import flush

__all__ = ["LooseObjects"]

_CHUNK_BYTES = 1 << 20
# Content is kept for the life of a sandbox; speed matters more than size.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class LooseObjects:
    """The loose objects in an `objects` directory. Stateless: any thread and process may share it.

    An object appears whole or not at all, under the name that git would give it. `durable`: it is on the disk
    when it has its name.
    """

    directory: Path
    algorithm: str
    durable: bool = False

    def keep(self, data: bytes) -> str:
        """The name of a blob of that content, which is here when this returns."""
        head = b"blob %d\0" % len(data)
        name = hashlib.new(self.algorithm, head + data, usedforsecurity=False).hexdigest()
        if not self._path(name).exists():
            self._put(self._draft((head, data))[0], name)
        return name

    def keep_file(self, descriptor: int, size: int) -> str | None:
        """The same for an open file of `size` bytes; None if it has another size by now."""
        if size <= _CHUNK_BYTES:
            data = os.read(descriptor, size + 1)
            return self.keep(data) if len(data) == size else None
        # Hashed and written in one pass: what is kept under a name is what was hashed, even while the file
        # is being changed.
        draft, name, length = self._draft(_with_head(descriptor, size))
        if length != size:
            draft.unlink()
            return None
        self._put(draft, name)
        return name

    def has(self, name: str) -> bool:
        """Whether it is among these."""
        return self._path(name).exists()

    def read(self, name: str) -> bytes | None:
        """The content of that blob; None if it is not among these."""
        try:
            packed = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        return zlib.decompress(packed).partition(b"\0")[2]

    def _draft(self, parts: Iterable[bytes]) -> tuple[Path, str, int]:
        """A file with the parts, the name they have, and the length of all but the first."""
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        packer = zlib.compressobj(_LEVEL)
        length = 0
        path = self.directory / f"tmp_obj_{secrets.token_hex(8)}"
        with path.open("xb") as file:
            for number, part in enumerate(parts):
                digest.update(part)
                file.write(packer.compress(part))
                length += len(part) if number else 0
            file.write(packer.flush())
            os.fchmod(file.fileno(), 0o444)
            if self.durable:
                file.flush()
                os.fsync(file.fileno())  # guard: what is recorded of a file is not lost before the record
        return path, digest.hexdigest(), length

    def _put(self, draft: Path, name: str) -> None:
        target = self._path(name)
        target.parent.mkdir(exist_ok=True)
        draft.replace(target)
        if self.durable:
            flush(target.parent)
            flush(self.directory)

    def _path(self, name: str) -> Path:
        return self.directory / name[:2] / name[2:]


def _with_head(descriptor: int, size: int) -> Iterator[bytes]:
    yield b"blob %d\0" % size
    left = size + 1  # guard: one more than it should have tells that it grew; it may grow without end
    while chunk := os.read(descriptor, min(_CHUNK_BYTES, left)):
        left -= len(chunk)
        yield chunk
