"""What setting up a sandbox made (a virtual environment, node_modules), kept for the next one.

An entry appears whole, by a rename, and a sandbox gets it whole, by a rename; whoever copies one holds a
shared lock, and none is thrown away while anybody does. Programs in a virtual environment name the place they
were installed in, so those names are changed on the way into another sandbox.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cleveragents.errors import SandboxMissing
from cleveragents.infrastructure.sandbox.copying import copy_entry
from cleveragents.infrastructure.sandbox.facts import SandboxPlace
from cleveragents.infrastructure.sandbox.paths import (
    directory_of,
    disk_use,
    is_repository_path,
    read_file,
    remove_all,
)

__all__ = ["SetupCache"]

_LARGEST_NAMING_BYTES = 1 << 20
_NAMING_SUFFIXES = (".pth", ".egg-link", ".cfg")
_GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class SetupCache:
    """`SetupStore` in a directory, holding at most `limit_bytes`; what was not used for longest goes first.

    Stateless but for the directory: any thread and process may share it.
    """

    directory: Path
    limit_bytes: int = 10 * _GIBIBYTE

    def key(self, command: str, tree: Path, files: Sequence[str]) -> str:
        """Of one resource alone: what another's setup made, its programs included, is not for this one."""
        resource, base = _origin(tree)
        digest = hashlib.sha256(command.encode("utf-8", "surrogateescape"))
        digest.update(b"\0" + os.fsencode(resource))  # guard: see above
        contents = [_content(tree, path) for path in files]
        for path, content in zip(files, contents, strict=True):
            kept = b"-" if content is None else hashlib.sha256(content).digest()
            digest.update(b"\0" + os.fsencode(path) + b"\0" + kept)
        if not contents or not all(contents):
            # Not all is said of what the result depends on, so it may be anything.
            digest.update(b"\0" + base.encode())
        return digest.hexdigest()

    def take(self, key: str, tree: Path, paths: Sequence[str]) -> bool:
        entry = self.directory / key
        with self._locked(fcntl.LOCK_SH):  # guard: not thrown away while it is copied
            try:
                facts = json.loads((entry / "entry.json").read_text(encoding="utf-8"))
            except FileNotFoundError:
                return False
            if facts["paths"] != list(paths):
                return False
            os.utime(entry)
            draft = tree.parent / f"setup-{secrets.token_hex(8)}"
            try:
                for path in paths:
                    _copy(entry / "files", draft, path)
                for path in facts["naming"]:
                    _rename_inside(draft, path, facts["root"], str(tree))
                return all(_move(draft, tree, path) for path in paths)
            finally:
                remove_all(draft)

    def keep(self, key: str, tree: Path, paths: Sequence[str]) -> None:
        if (self.directory / key).exists():
            return
        self._make_directory()
        draft = self.directory / f"draft-{secrets.token_hex(8)}"
        try:
            for path in paths:
                _copy(tree, draft / "files", path)
            naming = list(_naming(draft / "files", os.fsencode(tree)))
            facts = {"paths": list(paths), "root": str(tree), "naming": naming}
            (draft / "files").mkdir(parents=True, exist_ok=True)
            (draft / "entry.json").write_text(json.dumps(facts), encoding="utf-8")
            with suppress(OSError):
                # A peer may have kept the same meanwhile; one is enough.
                draft.rename(self.directory / key)
        finally:
            remove_all(draft)
        self._trim(spared=key)

    def _trim(self, *, spared: str) -> None:
        """Throws away what is over the limit, unless somebody copies just now: then the next one does it."""
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
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # as of the sandboxes it is copied from

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        self._make_directory()
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _origin(tree: Path) -> tuple[str, str]:
    """What the sandbox with these files was made of, and its base; a tree that is no sandbox's is its own."""
    try:
        facts = SandboxPlace(tree.parent).read_facts("")
    except SandboxMissing:
        return str(tree), ""
    return facts.resource, facts.base


def _copy(source: Path, target: Path, path: str) -> None:
    """What is at `path` below one, to the same path below the other; nothing if it is not there."""
    if not is_repository_path(path):
        return
    target.mkdir(parents=True, exist_ok=True)
    with directory_of(source, path) as there, directory_of(target, path, make=True) as here:
        if there is not None and here is not None:
            copy_entry(there[0], here[0], there[1])


def _move(draft: Path, tree: Path, path: str) -> bool:
    """Whether it could be put in place: what is there already is not replaced."""
    if not os.path.lexists(draft / path):
        return True
    with directory_of(draft, path) as there, directory_of(tree, path, make=True) as here:
        if there is None or here is None:
            return False
        with suppress(FileNotFoundError):
            os.lstat(here[1], dir_fd=here[0])
            return False
        os.rename(there[1], here[1], src_dir_fd=there[0], dst_dir_fd=here[0])
    return True


def _naming(files: Path, root: bytes) -> Iterator[str]:
    """The files that name the sandbox they were made in: programs, and what Python reads at its start."""
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


def _content(tree: Path, path: str) -> bytes | None:
    """The file's bytes, or a link's target; None if there is no such file inside the tree."""
    if not is_repository_path(path):
        return None
    with directory_of(tree, path) as found, suppress(OSError):
        if found is not None:
            return os.readlink(os.fsencode(found[1]), dir_fd=found[0])
    return read_file(tree, path)
