"""Disarm the git directories that commands see in a sandbox, so that a person can use git there safely.

Commands use `tree/.git` freely, and may plant code that runs on the next `git status` there: a file monitor,
an alias, a filter, a hook, a submodule with such configuration. After each call
- `tree/.git` is a valid git directory again, so that git searches for no other, with our configuration and
  without hooks or links; branches, commits, the index and the stash stay;
- the index has no extensions and refers to no other repository, and its bytes were written by us; any other
  index is replaced by our own;
- repositories that commands created inside the tree keep only their configuration of remotes, branches and
  the author; files and links that point to a git directory elsewhere are removed. The same applies to
  ignored directories, where a commit may name a repository that is in no index.

Every step starts from an open directory, and no link is followed: commands may still be running.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from cleveragents.core.change import GITLINK
from cleveragents.core.errors import GitFailed
from cleveragents.git.git_directory import GitDirectory
from cleveragents.git.index_file import PlainIndex, plain_index
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.facts import SandboxFacts, SandboxLayout
from cleveragents.sandboxes.tree.walk import (
    git_holders,
    is_git_directory,
    names_in,
    read_bytes,
)
from cleveragents.storage.files.file_copy import copy_entry
from cleveragents.storage.files.paths import (
    DirectoryCursor,
    directory_of,
    is_repository_path,
    open_directory,
    open_root,
    remove_entry,
)

__all__ = ["VisibleGit"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
# Replaced by the sandbox's originals; files without an original are removed.
_OURS = ("config", "info/exclude", "info/attributes", "objects/info/alternates")
# None of these exists in an untouched sandbox.
_FOREIGN = (
    *("config.worktree", "commondir", "gitdir", "hooks", "worktrees", "modules"),
    "objects/info/http-alternates",
)
_HEAD = re.compile(rb"(?:ref: refs/[^\0\n]{1,1000}|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_LARGEST_HEAD = 2_000
_HARMLESS_CORE = (
    *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "precomposeunicode"),
    *("symlinks", "autocrlf", "eol"),
)
_HARMLESS = {
    "core": _HARMLESS_CORE,
    "extensions": ("objectformat",),
    "user": ("name", "email"),
    "remote": ("url", "fetch"),
    "branch": ("remote", "merge", "rebase"),
    "submodule": ("url", "active"),
}
_OTHER_FORMAT = b"objectformat"
_SHA1_BYTES = 20
_LARGEST_CONFIG = 1 << 18
_LARGEST_INDEX = 64 << 20
_MOST_FILTERED = 200
_MOST_DEPTH = 32


class VisibleGit(Struct, frozen=True):
    """The visible git directories of one sandbox. Stateless: any thread may share it; `reset` needs the
    sandbox's lock.
    """

    place: SandboxLayout
    facts: SandboxFacts
    engine: PrivateRepository

    def reset(self) -> None:
        """Replace everything that git trusts. Raises `OSError` if commands prevent that."""
        if not self.place.tree.is_dir():
            return
        root = open_root(self.place.tree)
        try:
            _let_us_write(root)
            own = self.facts.common_dir is not None
            if not own:
                self._disarm(root)  # first: a file called `.git` would hide that the tree is a git directory
                own = _is_git_directory(root)
            if own:
                self._reset_own(root, self._template)
            else:
                git = _open_at(root, ".git")
                if git is not None:
                    try:
                        _complete(git, self._template)
                    finally:
                        os.close(git)
        finally:
            os.close(root)

    def disarm(self, repositories: Iterable[str]) -> list[str]:
        """Remove settings that run programs from the repositories in these directories.

        Return the directories whose `.git` was removed, because it is a file or a link to another place.
        """
        removed = []
        problem: OSError | None = None
        for number, path in enumerate(repositories):
            if path:
                with directory_of(self.place.tree, f"{path}/.git") as found:
                    try:
                        if found is not None and not self._disarm(found[0], filtered=number < _MOST_FILTERED):
                            removed.append(path)
                    except OSError as error:  # still disarm the others
                        problem = error
        if problem is not None:
            raise problem
        return removed

    def has_other_commits(self, repositories: Collection[str]) -> bool:
        """Return whether one of the repositories may refer to commits other than the sandbox's first commit:
        commits made by commands, or older commits of the user.
        """
        if set(repositories) != {""}:
            return bool(repositories)
        try:
            if self._refers_to_others():
                return True
        except OSError:  # an unreadable file may name anything
            return True
        with directory_of(self.place.tree, ".git/objects/pack/*") as packs:
            if packs is None or names_in(packs[0]):
                return True
        with directory_of(self.place.tree, ".git/objects/*") as loose:
            return loose is None or not {*names_in(loose[0])} <= {"info", "pack"}

    def _refers_to_others(self) -> bool:
        """Return whether `HEAD` or a ref changed, or a file was added that may name a commit: packed refs, a
        reflog, `ORIG_HEAD`.
        """
        template = self._template
        with DirectoryCursor(self.place.tree) as cursor:
            git = cursor.open(".git")
            if git is None or not {*names_in(git)} <= {"index", *(path.name for path in template.iterdir())}:
                return True
            if read_bytes(git, "HEAD", at_most=_LARGEST_HEAD) != (template / "HEAD").read_bytes():
                return True
            waiting = ["refs"]
            while waiting:
                path = waiting.pop()
                directory = cursor.open(f".git/{path}")
                if directory is None:
                    return True
                for name in names_in(directory):
                    known = template / path / name
                    if known.is_dir():
                        waiting.append(f"{path}/{name}")
                    elif not _is_same(directory, name, known):
                        return True
        return False

    def disarm_below(self, directories: Iterable[str]) -> None:
        """Make every git directory below these directories harmless, at any depth and whatever its name.

        Only git directories are examined. They are not reported, because these directories are ignored or not
        part of a result.
        """
        problem: OSError | None = None
        left = _MOST_FILTERED
        with DirectoryCursor(self.place.tree) as cursor:
            for path in sorted(directories):
                try:
                    top = cursor.open(path)
                    itself = path not in self.facts.gitlinks  # the reset handles a submodule's own `.git`
                    for directory, names in () if top is None else git_holders(top, itself=itself):
                        self._disarm_in(directory, names, filtered=left > 0)
                        left -= 1
                except OSError as error:  # still disarm the others
                    problem = error
        if problem is not None:
            raise problem

    def _disarm_in(self, directory: int, names: Collection[str], *, filtered: bool) -> None:
        """Disarm an open directory that is a git directory or has a `.git`. `names` are its entries."""
        if ".git" in names:
            self._disarm(directory, filtered=filtered)
        if is_git_directory(names):
            self._strip(directory, filtered=filtered)

    @property
    def _template(self) -> Path:
        """The original content of `tree/.git`; for a plain directory, equivalent content."""
        template = self.place.engine / "visible"
        if not template.is_dir():  # created by an earlier version, or for a plain directory
            draft = self.place.scratch("visible")
            settings = {"core.bare": "false", "core.logallrefupdates": "true", **self.facts.traits}
            stores = tuple(map(Path, self.facts.readable))
            GitDirectory(self.facts.object_format, settings=settings, borrowed=stores).write(draft)
            with suppress(OSError):
                draft.rename(template)
        return template

    def _reset_own(self, root: int, template: Path) -> None:
        git = _made_directory(root, ".git")
        try:
            for path in _OURS:  # first remove what runs a program, in case a later step fails
                _remove_unlike(git, path, template / path)
            self._clean(git)
            name_bytes = 20 if self.facts.object_format == "sha1" else 32
            index = self._kept_index(git, name_bytes, self.facts.gitlinks)
            for path in self.facts.gitlinks:
                with directory_of(self.place.tree, f"{path}/.git") as found:
                    if found is not None:
                        _drop(*found)
            # Write only after everything planted is removed.
            _complete(git, template)
            for path in _OURS:
                _put(git, path, template / path)
            if index is not None:
                _write(git, "index", *index)
            elif not _has(git, "index") and self.facts.common_dir is not None and self.place.index.is_file():
                _write(git, "index", self.place.index.read_bytes())
        finally:
            os.close(git)

    def _clean(self, git: int) -> None:
        _remove_special(git, _MOST_DEPTH)
        for path in _FOREIGN:
            _remove(git, path)

    def _kept_index(
        self, git: int, name_bytes: int, submodules: Collection[str] = ()
    ) -> tuple[bytes, int] | None:
        """Remove the index unless it is safe and plain. If a safe index was removed, return its plain data
        and its time, to be written again; otherwise None.

        git enters every submodule that an index names, with the configuration found there, and writes files
        to the paths in the index.
        """
        data = read_bytes(git, "index", at_most=_LARGEST_INDEX)
        plain = None if data is None else plain_index(data, name_bytes=name_bytes)
        safe = plain if plain is not None and _is_safe(plain, submodules) else None
        if safe is not None and safe.data == data:
            return None
        # git detects a change right after `git add` by comparing the file's time with that of the index.
        modified_ns = os.lstat("index", dir_fd=git).st_mtime_ns if safe is not None else 0
        _drop(git, "index")
        return None if safe is None else (safe.data, modified_ns)

    def _disarm(self, directory: int, *, filtered: bool = True) -> bool:
        """Disarm the `.git` in an open directory, or remove it; return False if it was removed."""
        try:
            status = os.lstat(".git", dir_fd=directory)
        except FileNotFoundError:
            return True
        if not stat.S_ISDIR(status.st_mode):  # guard: it points to a git directory with another name
            _drop(directory, ".git")
            return False
        try:
            git = open_directory(directory, ".git")
        except PermissionError:  # guard: access is denied, so its content cannot be checked
            _drop(directory, ".git")
            return False
        try:
            self._strip(git, filtered=filtered)
        finally:
            os.close(git)
        return True

    def _strip(self, git: int, *, filtered: bool) -> None:
        """Disarm an open git directory."""
        _let_us_write(git)
        config = read_bytes(git, "config", at_most=_LARGEST_CONFIG)
        kept = self._filtered(config) if config is not None and filtered else b""
        if kept != config:
            _drop(git, "config")
        self._clean(git)
        if _OTHER_FORMAT in kept.lower():  # guard: git may read such an index differently
            _drop(git, "index")
        index = self._kept_index(git, _SHA1_BYTES)
        if kept and kept != config:
            _write(git, "config", kept)
        if index is not None:
            _write(git, "index", *index)

    def _filtered(self, config: bytes) -> bytes:
        """Return the configuration without settings that can run programs; unchanged if it has none."""
        try:
            listed = self.engine.git("config", "--no-includes", "--file", "-", "--list", "-z", feed=config)
        except (GitFailed, OSError):
            return b""
        rows = [row.partition(b"\n") for row in listed.split(b"\0")[:-1]]
        if all(_is_harmless(key) for key, _, _ in rows):
            return config
        return b"".join(_setting(key, value) for key, _, value in rows if _is_harmless(key))


def _is_same(directory: int, name: str, known: Path) -> bool:
    """Return whether an entry of an open directory is a file equal to the known file."""
    if not known.is_file():
        return False
    return read_bytes(directory, name, at_most=_LARGEST_HEAD) == known.read_bytes()


def _is_safe(index: PlainIndex, submodules: Collection[str]) -> bool:
    return all(
        is_repository_path(path) and (mode != GITLINK or path in submodules) for path, mode in index.entries
    )


def _is_harmless(key: bytes) -> bool:
    section, _, rest = key.partition(b".")
    return rest.rpartition(b".")[2].decode("utf-8", "replace").lower() in _HARMLESS.get(
        section.decode("utf-8", "replace").lower(), ()
    )


def _setting(key: bytes, value: bytes) -> bytes:
    section, _, rest = key.partition(b".")
    part, _, name = rest.rpartition(b".")
    head = section + (b' "' + _quoted(part) + b'"' if part else b"")
    return b"[" + head + b"]\n\t" + name + b' = "' + _quoted(value).replace(b"\n", b"\\n") + b'"\n'


def _quoted(text: bytes) -> bytes:
    return text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _open_at(directory: int, name: str) -> int | None:
    """Open a directory; return None if there is none. Raises `PermissionError` if access is denied."""
    try:
        return open_directory(directory, name)
    except PermissionError:
        raise
    except OSError:
        return None


def _made_directory(parent: int, name: str) -> int:
    """Open a directory with that name, replacing anything else."""
    found = _open_at(parent, name)
    if found is None:
        _drop(parent, name)
        os.mkdir(name, dir_fd=parent)
        found = open_directory(parent, name)
    _let_us_write(found)
    return found


def _drop(directory: int, name: str) -> None:
    """Remove an entry of an open directory, even if a command took away our permission."""
    _let_us_write(directory)
    remove_entry(directory, name)


def _let_us_write(descriptor: int) -> None:
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(PermissionError):  # another user's; the next step reports it
            os.fchmod(descriptor, mode | stat.S_IRWXU)


def _is_git_directory(root: int) -> bool:
    """Return whether git would treat the tree itself as a git directory: it has no `.git`, but the content of
    one.
    """
    return not _has(root, ".git") and is_git_directory(names_in(root))


def _has(directory: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=directory)
    except OSError:
        return False
    return True


def _open_below(directory: int, path: str) -> int | None:
    descriptor = os.dup(directory)
    for part in path.split("/"):
        below = _open_at(descriptor, part)
        os.close(descriptor)
        if below is None:
            return None
        descriptor = below
    return descriptor


def _complete(git: int, template: Path) -> None:
    """Make `git` a valid git directory; otherwise git would search for another git directory."""
    head = read_bytes(git, "HEAD", at_most=_LARGEST_HEAD)
    if head is None or not _HEAD.fullmatch(head):  # guard: see above
        _drop(git, "HEAD")
        _write(git, "HEAD", (template / "HEAD").read_bytes())
    source = os.open(template, _DIRECTORY)
    try:
        for name in ("objects", "refs", "info"):
            found = _open_at(git, name)
            if found is None:
                _drop(git, name)
                if copy_entry(source, git, name):  # a process of the plan locked the directory meanwhile
                    raise PermissionError(errno.EACCES, "cannot restore a part of .git", name)
                continue
            _let_us_write(found)
            os.close(found)
    finally:
        os.close(source)
    for path in ("objects/info", "objects/pack"):
        parent, name = _open_below(git, "objects"), path.rpartition("/")[2]
        if parent is not None:
            try:
                os.close(_made_directory(parent, name))
            finally:
                os.close(parent)


def _remove(git: int, path: str) -> None:
    directory, _, name = path.rpartition("/")
    parent = _open_below(git, directory) if directory else os.dup(git)
    if parent is not None:
        try:
            _drop(parent, name)
        finally:
            os.close(parent)


def _remove_unlike(git: int, path: str, template: Path) -> None:
    """Remove a file that differs from the template."""
    directory, _, name = path.rpartition("/")
    parent = _open_below(git, directory) if directory else os.dup(git)
    if parent is None:
        return
    try:
        wanted = template.read_bytes() if template.is_file() else None
        if wanted is None or read_bytes(parent, name, at_most=len(wanted)) != wanted:
            _drop(parent, name)
    finally:
        os.close(parent)


def _put(git: int, path: str, template: Path) -> None:
    """Write a missing file of the template."""
    directory, _, name = path.rpartition("/")
    parent = _open_below(git, directory) if directory else os.dup(git)
    if parent is None:
        return
    try:
        if template.is_file() and not _has(parent, name):
            _write(parent, name, template.read_bytes())
    finally:
        os.close(parent)


def _write(directory: int, name: str, data: bytes, modified_ns: int | None = None) -> None:
    """Write a missing file atomically."""
    draft = f"{name}.{secrets.token_hex(4)}"
    _let_us_write(directory)
    descriptor = os.open(draft, _WRITE, mode=0o644, dir_fd=directory)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        if modified_ns is not None:
            os.utime(descriptor, ns=(modified_ns, modified_ns))
        os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        _drop(directory, draft)
        raise
    finally:
        os.close(descriptor)


def _remove_special(directory: int, depth: int) -> None:
    """Remove everything below the directory that is neither a file nor a directory. A git directory needs
    nothing else: a link leads elsewhere, and git blocks on a pipe or a device.
    """
    _let_us_write(directory)
    with os.scandir(directory) as entries:
        found = [
            (entry.name, entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False))
            for entry in entries
        ]
    for name, is_file, is_directory in found:
        if not is_file and not is_directory:
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
        elif is_directory:
            below = _open_at(directory, name)
            if below is None:
                continue
            try:
                if depth:
                    _remove_special(below, depth - 1)
                else:
                    _drop(directory, name)
            finally:
                os.close(below)
