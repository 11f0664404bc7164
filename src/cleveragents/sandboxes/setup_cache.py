"""A cache of the environments that setup commands create: virtual environments, node_modules.

A setup command can read every file of its sandbox, so every file is part of the key, with everything else
that affects the command. A branch with any difference has another key, so the result of its setup never
reaches plans on other branches.

Environments are copied into the cache and out of it, so a plan cannot change an entry. The content of an
entry is verified before a sandbox gets it. An entry appears as a whole, by a rename, and is not removed while
it is copied. Programs in a virtual environment contain their installation path, so that path is replaced in
the copy for another sandbox.

The digest of a directory covers names, kinds, permissions, link targets and bytes, including ignored files
and nested repositories. Times and owners are excluded: they differ between two copies of the same files.

The digest covers the visible `.git` of a sandbox, too. Two things in it differ between sandboxes of the same
base: the path of the sandbox, which is left out, and the stat data in the index. So an index that still has
its original bytes, with or without its extensions, counts as the same in every sandbox; any other index
counts by its bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from cleveragents.core.errors import SandboxMissing
from cleveragents.git.git_directory import flush
from cleveragents.git.index_file import plain_index
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.ports import SetupInputs
from cleveragents.sandboxes.tree.walk import read_bytes
from cleveragents.storage.files.file_copy import copy_entry
from cleveragents.storage.files.paths import (
    DirectoryCursor,
    directory_of,
    disk_use,
    is_repository_path,
    remove_all,
)

__all__ = ["SetupCache", "TooMuchToDigest", "content_digest", "sandbox_digest"]


_LARGEST_NAMING_BYTES = 1 << 20
_NAMING_SUFFIXES = (".pth", ".egg-link", ".cfg")
_GIBIBYTE = 1 << 30
_SECRET_BYTES = 32
_OS_RELEASE = Path("/etc/os-release")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_BYTES = 32 << 30
_LARGEST_INDEX = 1 << 30
_LARGEST_ALTERNATES = 1 << 20
_INDEX = ".git/index"
_ALTERNATES = ".git/objects/info/alternates"


class SetupCache(Struct, frozen=True):
    """Environments by key in a directory, limited to `limit_bytes`; the least recently used are removed
    first.

    Holds no other state: any thread and process may share it.
    """

    directory: Path
    limit_bytes: int = 10 * _GIBIBYTE

    def key(self, inputs: SetupInputs, tree: Path) -> str | None:
        """Return the cache key for a setup of the files in `tree`; every input and every file counts.

        Call it before the setup runs. Returns None, which means that the setup is not cached, if a file
        cannot be read.
        """
        try:
            files = sandbox_digest(tree)
        except OSError:
            return None
        facts = {**asdict(inputs), "files": files, "resource": _resource(tree), "machine": _machine()}
        return self._sign(facts)

    def take(self, key: str, tree: Path, paths: Sequence[str]) -> bool:
        """Copy the environment with this key into `tree`; return False if it is missing or was altered."""
        entry = self.directory / key
        draft = tree.parent / f"setup-{secrets.token_hex(8)}"
        try:
            with self._locked(fcntl.LOCK_SH):  # guard: not removed while it is copied
                if not entry.exists():
                    return False
                facts = self._facts(key)
                if facts is not None:
                    if facts["paths"] != list(paths):
                        return False
                    os.utime(entry)
                    draft.mkdir()
                    for path in paths:
                        _copy(entry / "files", draft, path)
            # guard: an altered or damaged entry must not run anywhere
            if facts is None or facts["digest"] != content_digest(draft, facts["paths"]):
                self._discard(key)
                return False
            for path in facts["naming"]:
                _rename_inside(draft, path, facts["root"], str(tree))
            if not all(_is_free(draft, tree, path) for path in paths):  # guard: never a partial environment
                return False
            return all(_move(draft, tree, path) for path in paths)
        finally:
            remove_all(draft)

    def keep(self, key: str, tree: Path, paths: Sequence[str]) -> None:
        """Store a copy of these directories of `tree`."""
        if (self.directory / key).exists():
            return
        self._make_directory()
        draft = self.directory / f"draft-{secrets.token_hex(8)}"
        try:
            # guard: never a partial environment
            if not all(_copy(tree, draft / "files", path) for path in paths):
                return
            files = draft / "files"
            files.mkdir(parents=True, exist_ok=True)
            naming = list(_naming(files, os.fsencode(tree)))
            facts = {
                "key": key,
                "paths": list(paths),
                "root": str(tree),
                "naming": naming,
                "digest": content_digest(files, paths),
            }
            sealed = {**facts, "seal": self._sign(facts)}
            (draft / "entry.json").write_text(json.dumps(sealed), encoding="utf-8")
            with suppress(OSError):
                # A peer may have stored the same meanwhile; one is enough.
                draft.rename(self.directory / key)
        except TooMuchToDigest:
            return
        finally:
            remove_all(draft)
        self._trim(spared=key)

    def _facts(self, key: str) -> dict[str, Any] | None:
        """Return the facts of an entry; None if they were altered."""
        try:
            facts = json.loads((self.directory / key / "entry.json").read_text(encoding="utf-8"))
            seal = str(facts.pop("seal"))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None  # also after a power cut truncated it
        genuine = hmac.compare_digest(seal, self._sign(facts))
        return facts if genuine and facts["key"] == key else None

    def _discard(self, key: str) -> None:
        """Remove an altered entry, so that the next setup replaces it."""
        thrown = self.directory / f"thrown-{secrets.token_hex(8)}"
        with self._locked(fcntl.LOCK_EX), suppress(FileNotFoundError):
            (self.directory / key).rename(thrown)
        import structlog

        structlog.get_logger(__name__).warning("setup_cache.entry_altered", key=key)
        remove_all(thrown)

    def _sign(self, facts: Mapping[str, object]) -> str:
        """Return a keyed hash of the facts. The hash needs a secret key, because the facts include secret
        variables, and people can see the hash.
        """
        text = json.dumps(facts, sort_keys=True).encode("utf-8", "surrogateescape")
        return hmac.new(self._secret(), text, hashlib.sha256).hexdigest()

    def _secret(self) -> bytes:
        """Return the random secret of this cache; the first caller creates it."""
        place = self.directory / "secret"
        with suppress(FileNotFoundError):
            return place.read_bytes()
        self._make_directory()
        draft = self.directory / f"draft-{secrets.token_hex(8)}"
        try:
            draft.mkdir(mode=0o700)
            (draft / "secret").touch(mode=0o600)
            (draft / "secret").write_text(secrets.token_hex(_SECRET_BYTES), encoding="ascii")
            flush(draft / "secret")
            with suppress(FileExistsError):  # a peer was first; all use the same
                place.hardlink_to(draft / "secret")
        finally:
            remove_all(draft)
        return place.read_bytes()

    def _trim(self, *, spared: str) -> None:
        """Remove entries above the limit. If another process is copying, nothing is removed until the next
        call.
        """
        thrown: list[Path] = []
        with suppress(BlockingIOError), self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
            entries = sorted(self._entries(), key=lambda entry: entry.stat().st_mtime_ns)
            sizes = {entry: disk_use(entry) for entry in entries}
            over = sum(sizes.values()) - self.limit_bytes
            for entry in entries:
                if over <= 0:
                    break
                if entry.name != spared:
                    over -= sizes[entry]
                    thrown.append(entry.rename(self.directory / f"thrown-{secrets.token_hex(8)}"))
        for entry in thrown:
            remove_all(entry)

    def _entries(self) -> list[Path]:
        return [path.parent for path in self.directory.glob("*/entry.json") if "-" not in path.parent.name]

    def _make_directory(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # private, like sandboxes

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        self._make_directory()
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _resource(tree: Path) -> str:
    """Return the resource of the sandbox with these files; for other trees, their path."""
    try:
        return SandboxLayout(tree.parent).read_facts("").resource
    except SandboxMissing:
        return str(tree)


def _machine() -> list[str]:
    """Return the system and the user that programs are built for."""
    release = _OS_RELEASE.read_text("utf-8", "replace") if _OS_RELEASE.is_file() else ""
    system = os.uname()
    return [system.sysname, system.machine, release, str(os.geteuid())]


def _copy(source: Path, target: Path, path: str) -> bool:
    """Copy `path` from `source` to `target`, if it exists; return False if a part could not be copied."""
    if not is_repository_path(path):
        return True
    target.mkdir(parents=True, exist_ok=True)
    with directory_of(source, path) as there, directory_of(target, path, make=True) as here:
        if there is None or here is None:
            return True
        return not copy_entry(there[0], here[0], there[1])


def _is_free(draft: Path, tree: Path, path: str) -> bool:
    """Return whether nothing in the tree prevents moving `path` from the draft to it."""
    if not os.path.lexists(draft / path):
        return True
    with directory_of(tree, path, make=True) as here:
        if here is None:
            return False
        with suppress(FileNotFoundError):
            os.lstat(here[1], dir_fd=here[0])
            return False
    return True


def _move(draft: Path, tree: Path, path: str) -> bool:
    """Move `path` from the draft into the tree; return whether that was possible."""
    if not os.path.lexists(draft / path):
        return True
    with directory_of(draft, path) as there, directory_of(tree, path, make=True) as here:
        if there is None or here is None:
            return False
        os.rename(there[1], here[1], src_dir_fd=there[0], dst_dir_fd=here[0])
    return True


def _naming(files: Path, root: bytes) -> Iterator[str]:
    """Yield the files that contain their sandbox's path: programs, and files that Python reads at startup."""
    for place, _, names in os.walk(files):
        for name in names:
            path = Path(place, name)
            if path.parent.name != "bin" and path.suffix not in _NAMING_SUFFIXES:
                continue
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_NAMING_BYTES:
                content = path.read_bytes()
                if root in content and b"\0" not in content:
                    yield str(path.relative_to(files))


def _rename_inside(draft: Path, path: str, old: str, new: str) -> None:
    file = draft / path
    file.chmod(file.stat().st_mode | stat.S_IWUSR)
    file.write_bytes(file.read_bytes().replace(os.fsencode(old), os.fsencode(new)))


class TooMuchToDigest(OSError):
    """The files are too large for a digest; a sparse file can claim any size."""


def content_digest(root: Path, paths: Sequence[str] = ("",)) -> str:
    """Return the digest of these paths below `root`, including whether each exists. Raises `OSError`."""
    return _digest(root, paths, None)


def sandbox_digest(tree: Path) -> str:
    """Return the digest of a sandbox's files; equal for two sandboxes that a command cannot distinguish.
    Raises `OSError`.
    """
    return _digest(tree, ("",), SandboxLayout(tree.parent))


def _digest(root: Path, paths: Sequence[str], place: SandboxLayout | None) -> str:
    total = hashlib.sha256()
    size = 0
    with DirectoryCursor(root) as cursor:
        for path in paths:
            total.update(_record(b"path", os.fsencode(path)))
            for found, directory, name, status in _entries(cursor, path):
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                if size > _MOST_BYTES:  # guard: a sparse file has a size at no cost
                    raise TooMuchToDigest(f"{root} holds more than {_MOST_BYTES >> 30} GiB")
                if place is not None and stat.S_ISDIR(status.st_mode) and found.startswith(".git/"):
                    continue  # git creates empty directories there at any time
                mode = b"%o" % (status.st_mode & ~0o7000)
                content = _content(directory, name, status, found, place)
                total.update(_record(os.fsencode(found), mode, content))
    return total.hexdigest()


def _entries(cursor: DirectoryCursor, path: str) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Yield `path` and everything below it in a fixed order, each with the open directory that holds it."""
    waiting = [path]
    while waiting:
        here = waiting.pop()
        if here:
            parent, _, name = here.rpartition("/")
            directory = cursor.open(parent)
            if directory is None:
                continue
            try:
                status = os.lstat(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            yield here, directory, name, status
            if not stat.S_ISDIR(status.st_mode):
                continue
        opened = cursor.open(here)
        if opened is not None:
            with os.scandir(opened) as found:
                names = sorted((entry.name for entry in found), reverse=True)
            waiting += [f"{here}/{name}" if here else name for name in names]


def _content(
    directory: int, name: str, status: os.stat_result, path: str, place: SandboxLayout | None
) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(os.fsencode(name), dir_fd=directory)
    if not stat.S_ISREG(status.st_mode):
        return b""
    if place is not None and path in (_INDEX, _ALTERNATES):
        return _of_git(directory, name, path, place)
    descriptor = os.open(name, _READ, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _of_git(directory: int, name: str, path: str, place: SandboxLayout) -> bytes:
    """Return the digest of a file of the visible `.git`, without the parts that differ in each sandbox."""
    limit = _LARGEST_INDEX if path == _INDEX else _LARGEST_ALTERNATES
    content = read_bytes(directory, name, at_most=limit)
    if content is None:
        raise TooMuchToDigest(f"{place.tree / path} cannot be read, or is too large")
    if path == _INDEX:
        if place.base_index.is_file() and content in _originals(place):
            return b"original"
    else:
        for own in dict.fromkeys([place.directory, Path(os.path.realpath(place.directory))]):
            content = content.replace(os.fsencode(own) + b"/", b"\0/")
    return hashlib.sha256(content).digest()


def _originals(place: SandboxLayout) -> tuple[bytes, ...]:
    base = place.base_index.read_bytes()
    object_format = place.read_facts(place.directory.name).object_format
    plain = plain_index(base, name_bytes=20 if object_format == "sha1" else 32)
    return (base,) if plain is None else (base, plain.data)


def _record(*parts: bytes) -> bytes:
    """Encode the parts so that different lists of parts never look the same."""
    return b"".join(b"%d:%b" % (len(part), part) for part in (b"%d" % len(parts), *parts))
