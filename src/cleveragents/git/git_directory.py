"""Our own git directories, objects and file system checks, without running git.

Git directories are written file by file, because `git init` costs a process and copies the user's templates.
Objects are written and read directly, because a process for every recorded file would be slow. With `flush`,
written files survive a power cut.

The file system's handling of names, links and permissions is probed, as `git init` does. The configuration of
a repository describes the file system where it was cloned. After a copy or a mount elsewhere it may be wrong,
and git would miss files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

__all__ = [
    "FSYNC_SETTINGS",
    "GitDirectory",
    "LooseObjects",
    "copy_index",
    "copy_shared_indexes",
    "flush",
    "flush_all",
    "ignores_case",
    "traits_of",
]


# Settings for the conversion of a file's bytes and mode into an object; none of them names a program.
_FAITHFUL = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.precomposeunicode",
)
_PLAIN = re.compile(r"[A-Za-z0-9]+")
_CHUNK_BYTES = 1 << 20
# Content lives as long as a sandbox; speed matters more than size. Large files are often compressed already.
_LEVEL = 1
_LEVEL_OF_LARGE = 0
# For git's own objects and indexes; ignored by versions before 2.36.
FSYNC_SETTINGS = {"core.fsync": "all"}

_COMPOSED = "\u00e4"
_DECOMPOSED = "a\u0308"


class GitDirectory(Struct, frozen=True):
    """The content of a git directory.

    Its configuration has the settings of `faithful` (the user's) that affect file contents, then `settings`.
    """

    object_format: str = "sha1"
    faithful: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    head: str = "ref: refs/heads/none"
    refs: Mapping[str, str] = field(default_factory=dict)
    borrowed: Sequence[Path] = ()
    exclude: bytes = b""
    attributes: bytes = b""
    shallow: bytes = b""

    def write(self, directory: Path) -> None:
        """Create the directory, which must not exist."""
        for part in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (directory / part).mkdir(parents=True)
        (directory / "HEAD").write_text(f"{self.head}\n", encoding="utf-8", errors="surrogateescape")
        (directory / "config").write_bytes(self._config())
        for name, commit in self.refs.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{commit}\n", encoding="utf-8")
        stores = b"".join(os.fsencode(store) + b"\n" for store in self.borrowed)
        for part, content in (
            ("objects/info/alternates", stores),
            ("info/exclude", self.exclude),
            ("info/attributes", self.attributes),
            ("shallow", self.shallow),
        ):
            if content:
                (directory / part).write_bytes(content)

    def _config(self) -> bytes:
        values = {"core.repositoryformatversion": "0" if self.object_format == "sha1" else "1"}
        if self.object_format != "sha1":
            values["extensions.objectformat"] = self.object_format
        for name in _FAITHFUL:
            value = self.faithful.get(name, "")
            if _PLAIN.fullmatch(value):
                values[name] = value
        values.update(self.settings)
        lines = []
        for name, value in values.items():
            section, _, key = name.partition(".")
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'[{section}]\n\t{key} = "{quoted}"\n')
        return os.fsencode("".join(lines))


def copy_index(source: Path, target: Path) -> bool:
    """Copy an index with its modification time; return False if there is no index.

    git trusts an entry only if it is older than the index. A copy with a newer time would hide a file that
    changed while the index was written.
    """
    try:
        with source.open("rb") as file:
            status = os.fstat(file.fileno())
            target.write_bytes(file.read())
    except FileNotFoundError:
        return False
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))  # guard: see above
    return True


def copy_shared_indexes(source: Path, target: Path) -> list[Path]:
    """Copy the shared parts of a split index from the git directory `source`, and return them.

    git expects them in the git directory that it uses.
    """
    found = list(source.glob("sharedindex.*"))
    for shared in found:
        copy_index(shared, target / shared.name)
    return found


class LooseObjects(Struct, frozen=True):
    """The loose objects in an `objects` directory. Stateless: any thread and process may share it.

    An object appears atomically, under the name that git would give it. With `durable`, it is on disk before
    it gets its name.
    """

    directory: Path
    algorithm: str
    durable: bool = False

    def keep(self, data: bytes) -> str:
        """Store a blob with the content `data`; return its name."""
        head = b"blob %d\0" % len(data)
        name = hashlib.new(self.algorithm, head + data, usedforsecurity=False).hexdigest()
        if not self._path(name).exists():
            self._put(self._draft((head, data))[0], name)
        return name

    def keep_file(self, descriptor: int, size: int) -> str | None:
        """Store a blob from an open file of `size` bytes; return None if the size has changed."""
        if size <= _CHUNK_BYTES:
            data = os.read(descriptor, size + 1)
            return self.keep(data) if len(data) == size else None
        # Hashed and written in one pass: the stored content is what was hashed, even while the file is being
        # changed.
        draft, name, length = self._draft(_with_head(descriptor, size), _LEVEL_OF_LARGE)
        if length != size:
            draft.unlink()
            return None
        self._put(draft, name)
        return name

    def has(self, name: str) -> bool:
        """Return whether the object is in this store."""
        return self._path(name).exists()

    def read(self, name: str) -> bytes | None:
        """Return the content of a blob; None if it is not in this store."""
        try:
            packed = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        return zlib.decompress(packed).partition(b"\0")[2]

    def _draft(self, parts: Iterable[bytes], level: int = _LEVEL) -> tuple[Path, str, int]:
        """Write the parts to a temporary file.

        Return the file, the name of the object, and the length of all parts but the first.
        """
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        packer = zlib.compressobj(level)
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
                os.fsync(file.fileno())  # guard: recorded content must not be lost before its record
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
    left = size + 1  # guard: one more than it should have reveals growth; the file may grow forever
    while chunk := os.read(descriptor, min(_CHUNK_BYTES, left)):
        left -= len(chunk)
        yield chunk


def flush(path: Path) -> None:
    """Return once the file, or the names in the directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(directory: Path) -> None:
    """Flush everything below the directory, and the directory itself."""
    for place, _, names in os.walk(directory):
        for name in names:
            if not Path(place, name).is_symlink():
                flush(Path(place, name))
        flush(Path(place))


def ignores_case(directory: Path) -> bool:
    """Return whether the file system ignores case: the directory also exists under its name in swapped case.

    Writes nothing. Tests with a directory, because a file could have a second name on purpose.
    """
    other = directory.with_name(directory.name.swapcase())
    if other == directory:
        return False
    with contextlib.suppress(OSError):
        return os.path.samestat(directory.lstat(), other.lstat())
    return False


def traits_of(directory: Path) -> dict[str, str]:
    """Return git's settings for files in this directory, determined by creating probe files in it."""
    with tempfile.TemporaryDirectory(prefix="probe-", dir=directory) as place:
        probe = Path(place)
        file = probe / _COMPOSED
        file.touch(mode=0o600)
        file.chmod(0o700)
        keeps_modes = bool(file.stat().st_mode & stat.S_IXUSR)
        file.chmod(0o600)
        keeps_modes = keeps_modes and not file.stat().st_mode & stat.S_IXUSR
        found = {
            "core.filemode": keeps_modes,
            "core.symlinks": _makes_links(probe),
            "core.ignorecase": ignores_case(probe),
            "core.precomposeunicode": os.path.lexists(probe / _DECOMPOSED),
        }
    return {name: str(value).lower() for name, value in found.items()}


def _makes_links(probe: Path) -> bool:
    link = probe / "link"
    with contextlib.suppress(OSError):
        link.symlink_to("target")
        return link.is_symlink()
    return False
