"""Convert between the bytes of files on disk and the form in which git commits them.

Attributes and settings (`text`, `eol`, `ident`, `working-tree-encoding`, `core.autocrlf`) make git store
other bytes than those on disk, and the way back is ambiguous: different contents can have the same stored
form. So our own trees hold the bytes on disk, and only a commit holds git's form. `EXACT_ATTRIBUTES` turns
conversions off in one of our git directories; `StoredForms` converts with a second git directory, which has
the user's rules.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.core.change import EXECUTABLE, GITLINK, REGULAR, Difference, FileState
from cleveragents.git.git_directory import copy_index
from cleveragents.git.plumbing import PrivateRepository, index_line

__all__ = ["EXACT_ATTRIBUTES", "StoredForms"]

# In info/attributes, whose last line overrides every other rule. git refuses `-working-tree-encoding`.
EXACT_ATTRIBUTES = b"\n* -text -ident !working-tree-encoding\n"
_FILES = (REGULAR, EXECUTABLE)
# With one of these, the stored form can have the file's length and still differ.
_REWRITING = ("ident", "working-tree-encoding")
_OFF = (b"unspecified", b"unset")


class StoredForms(Struct, frozen=True):
    """Two git directories on one object store. Stateless: any thread may share it.

    `exact` takes files as they are; `converting` has the user's rules, but no filter programs. `traits` are
    git's settings for files in our own directories; `filters` names the user's filter programs.
    """

    exact: PrivateRepository
    converting: PrivateRepository
    traits: Mapping[str, str]
    filters: frozenset[str] = frozenset()

    def read_exactly(self, work_tree: Path, index: Path, paths: Collection[str] | None = None) -> None:
        """Replace the stored form of files by their bytes on disk, in `index`, our own up-to-date index.

        An entry holds a stored form if the size of its object differs from that of the file, or if an
        attribute rewrites the file. Files that use a filter program (git-lfs) keep their stored form.
        """
        entries = self._entries(index)
        if paths is not None:
            entries = {path: state for path, state in entries.items() if path in paths}
        suspects = self._suspects(work_tree, index, entries)
        if not suspects:
            return
        # git reads a file again only if its entry has no stat data, or other than the file's.
        self._put(_lines({path: entries[path] for path in suspects}), index)
        options = ("update-index", "--remove", "-z", "--stdin")
        self.exact.git(*options, work_tree=work_tree, index=index, feed=_listed(suspects))

    def filtered(self, work_tree: Path, index: Path, paths: Collection[str]) -> set[str]:
        """Return the paths whose files use one of the user's filter programs."""
        return self._attributes(work_tree, index, paths)[1]

    def check_out(self, work_tree: Path, index: Path) -> None:
        """Replace the stored form of all files in `index` by their bytes on disk.

        For a file that is missing or changed in `work_tree`, use the bytes that a checkout would write.
        """
        options = ("diff", "--name-only", "-z", "--no-ext-diff", "--no-renames", "--ignore-submodules=all")
        listed = self.converting.git(*options, work_tree=work_tree, index=index)
        changed = set(os.fsdecode(listed).split("\0")[:-1])
        self.read_exactly(work_tree, index, self._entries(index).keys() - changed)
        with TemporaryDirectory(prefix="export-", dir=self.exact.directory) as export:
            writing = ("checkout-index", "-z", "--stdin", f"--prefix={export}/")
            feed = _listed(self._entries(index).keys() & changed)
            self.converting.git(*writing, work_tree=work_tree, index=index, feed=feed)
            self.read_exactly(Path(export), index, changed)

    def to_commit(self, head: str, base: str, changes: Mapping[str, Difference]) -> tuple[str, str]:
        """Return two trees in stored form for a three-way merge into the tree `head`: `base`, and `base` with
        `changes`.

        Both contain unchanged files as in `head`. Raises `GitFailed` if a file has no stored form.
        """
        with TemporaryDirectory(prefix="commit-", dir=self.exact.directory) as place:
            index = Path(place, "index")
            committed = self._committed(head, base, index)
            before = {path: change.before for path, change in changes.items()}
            after = {path: change.after for path, change in changes.items()}
            alike = {path for path, state in before.items() if state == committed.get(path)}
            sides = []
            for side, states in enumerate((before, after)):
                draft, shadow = Path(place, f"{side}.index"), Path(place, str(side))
                copy_index(index, draft)
                shadow.mkdir()
                kept = alike if side == 0 else set[str]()
                self._convert(states, committed, kept, draft, shadow, no_object="0" * len(head))
                sides.append(self.exact.text("write-tree", index=draft))
            return sides[0], sides[1]

    def _committed(self, head: str, base: str, index: Path) -> dict[str, FileState]:
        """Fill the index with `base`, and with the entries of `head` at the same paths; return the files of
        `head`.
        """
        self.exact.git("read-tree", base, index=index)
        known = self._entries(index)
        listed = self.exact.git("ls-tree", "-r", "-z", "--full-tree", head)
        committed = {}
        for line in os.fsdecode(listed).split("\0")[:-1]:
            about, _, path = line.partition("\t")
            mode, _, name = about.split(" ")
            committed[path] = FileState(int(mode, 8), name)
        self._put(_lines({path: state for path, state in committed.items() if path in known}), index)
        return committed

    def _convert(
        self,
        states: Mapping[str, FileState | None],
        committed: Mapping[str, FileState],
        kept: Collection[str],
        index: Path,
        shadow: Path,
        *,
        no_object: str,
    ) -> None:
        """Put the stored form of these states into the index, except at the `kept` paths."""
        self._put(_lines(states, no_object), index)
        files = [path for path, state in states.items() if state is not None and state.mode != GITLINK]
        options = ("checkout-index", "-z", "--stdin", f"--prefix={shadow}/")
        exact, converting = (replace(one, settings=self.traits) for one in (self.exact, self.converting))
        exact.git(*options, work_tree=shadow, index=index, feed=_listed(files))
        # `text=auto` preserves CRLF in files that the index already has, so a new path is removed from it.
        self._put(_lines({path: committed.get(path) for path in files}, no_object), index)
        adding = ("update-index", "--add", "--replace", "-z", "--stdin")
        converted = [path for path in files if path not in kept]
        converting.git(*adding, work_tree=shadow, index=index, feed=_listed(converted))

    def _put(self, lines: Iterable[bytes], index: Path) -> None:
        self.exact.git("update-index", "--replace", "-z", "--index-info", index=index, feed=b"".join(lines))

    def _entries(self, index: Path) -> dict[str, FileState]:
        listed = os.fsdecode(self.exact.git("ls-files", "--stage", "-z", index=index)).split("\0")[:-1]
        entries = {}
        for line in listed:
            about, _, path = line.partition("\t")
            mode, name, _ = about.split(" ")
            entries[path] = FileState(int(mode, 8), name)
        return entries

    def _suspects(self, work_tree: Path, index: Path, entries: Mapping[str, FileState]) -> list[str]:
        files = {path: state for path, state in entries.items() if state.mode in _FILES}
        found = {path: size for path in files if (size := _size_of(work_tree / path)) is not None}
        if not found:
            return []
        feed = "".join(f"{files[path].content}\n" for path in found).encode("ascii")
        sizes = self.exact.git("cat-file", "--batch-check=%(objectsize)", feed=feed).split()
        differing = {
            path for (path, size), kept in zip(found.items(), sizes, strict=True) if size != int(kept)
        }
        rewritten, filtered = self._attributes(work_tree, index, found)
        return sorted((differing | rewritten) - filtered)

    def _attributes(self, work_tree: Path, index: Path, paths: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the paths that an attribute may rewrite without a change of size, and the paths that use a
        filter program.
        """
        options = ("check-attr", "-z", "--stdin", "filter", *_REWRITING)
        told = self.converting.git(*options, work_tree=work_tree, index=index, feed=_listed(paths))
        fields = told.split(b"\0")
        rewritten, filtered = set(), set()
        for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
            if name == b"filter":
                if os.fsdecode(value) in self.filters:
                    filtered.add(os.fsdecode(path))
            elif value not in _OFF:
                rewritten.add(os.fsdecode(path))
        return rewritten, filtered


def _lines(states: Mapping[str, FileState | None], no_object: str = "") -> list[bytes]:
    """Return the input for `update-index --index-info`. Removals come first: a file may
    replace a directory.
    """
    gone = [index_line(0, no_object, path) for path, state in states.items() if state is None]
    return gone + [index_line(state.mode, state.content, path) for path, state in states.items() if state]


def _size_of(path: Path) -> int | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _listed(paths: Collection[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)
