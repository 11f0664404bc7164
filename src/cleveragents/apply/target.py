"""The current state of the resource: its files as a tree, and obstacles to a change.

The tree is captured through our own copy of the user's index, so that only files changed since the user's
last git command are read. Ignored files are included if the plan touches them: files that were copied into
the sandbox, and files at the path of a new file.

Merges follow renames only to tracked files, and list each followed rename. git detects a rename by
similarity: a file is gone, and a new file is similar. If git tracks the new file, the old file counts as
renamed. An untracked file may merely resemble the deleted one, so it never receives the changes to that file.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.apply.merge import (
    MergeResult,
    merge_trees,
    states_in,
    submodule_conflict,
    submodule_conflicts,
    submodules_in,
)
from cleveragents.apply.moves import parents_of
from cleveragents.apply.ports import FileConflict, Rename
from cleveragents.core.change import GITLINK, Difference, FileState
from cleveragents.core.errors import ApplyRefused, Remedy
from cleveragents.git.git_directory import copy_index, copy_shared_indexes
from cleveragents.git.index_file import hidden_files, holds_attributes, reveal
from cleveragents.git.plumbing import PrivateRepository, changed_between, index_line
from cleveragents.git.stored_forms import StoredForms

__all__ = [
    "ApplyTarget",
    "git_directory_of",
    "merge_following_renames",
    "names_of_content",
    "set_aside_directories",
]


_OUTSIDE = "apply follows renames only in git repositories; if you renamed it, rename it back and apply again"
_UNTRACKED = "apply follows only renames of tracked files; if you renamed it, `git add` it and apply again"
_DEINIT = "the submodule is checked out; run `git submodule deinit {}`, then apply again"
_CHECK_OUT = "check it out (`git sparse-checkout add {}`), then apply again"
_IGNORED = "the content is not shown, because git ignores the file"
_STAGING = re.compile(r"(?:\.cleveragents-)?[0-9A-HJKMNP-TV-Z]{26}")

# Below the limit of every kernel for one argument list.
_ARGUMENT_BYTES = 100_000
_GONE = ("modify/delete", "rename/delete")

Untracked = Callable[[Collection[str]], Collection[str]]
"""A function that returns those of the given paths that git does not track."""


class ApplyTarget(Struct, frozen=True):
    """A resource and the repository that stores its trees. `git_directory` is None outside of git.

    `forms` is set if the trees hold the exact bytes of files, which may differ from the bytes that git would
    commit. `converts` is True if git's settings make them differ even without a .gitattributes file.
    """

    resource: Path
    repository: PrivateRepository
    git_directory: Path | None
    index: Path
    forms: StoredForms | None = None
    converts: bool = False

    @property
    def required_git_directory(self) -> Path:
        """The git directory, for callers that have checked its existence."""
        return self.git_directory or self.resource / ".git"

    def ensure_no_other_journal(self, plan_id: str) -> None:
        """Raise `ApplyRefused` if an interrupted apply that is not in our journal left files
        in the resource.
        """
        found = set_aside_directories(self.resource, self.git_directory)
        if found:  # guard: files in two states are no base for a merge
            raise ApplyRefused(
                plan_id,
                f"{found[0]} holds the only copies of files from an interrupted apply; "
                "check them, then remove the directory",
                remedies=(Remedy("doctor", text="Finish the apply on the machine that started it"),),
            )

    def begin(self) -> None:
        """Copy the index of known files: the user's index, or outside of git our index of the last apply.

        The copy belongs to this preparation alone, so the lock of a killed git does not block it.
        """
        if copy_index(self._known, self.index) and self.git_directory is not None:
            copy_shared_indexes(self.git_directory, self.repository.directory)
            reveal(self.repository, self.resource, self.index)  # guard: include edits that the index hides

    def know(self, states: Mapping[str, FileState]) -> None:
        """Record the executable bit and link type of these files in the index. The file system or a setting
        (`core.fileMode`, `core.symlinks`) may not represent them. The content of the files is read again.
        """
        lines = b"".join(index_line(state.mode, state.content, path) for path, state in states.items())
        self.repository.git("update-index", "--replace", "-z", "--index-info", index=self.index, feed=lines)

    def writes_links_as_files(self) -> bool:
        """Return whether git stores symbolic links of this resource as files that contain the target."""
        said = self.repository.git("config", "--type=bool", "--get", "core.symlinks", succeeds=(0, 1))
        return said.strip() == b"false"

    def end(self) -> None:
        """End the preparation. Outside of git, where the user has no index, the updated index is kept for the
        next apply.
        """
        if self.git_directory is None and self.index.exists():
            self.index.replace(self._known)
        self.index.unlink(missing_ok=True)

    @property
    def _known(self) -> Path:
        if self.git_directory is not None:
            return self.git_directory / "index"
        return self.repository.directory / "apply.index"

    def capture(self) -> str:
        """Return the tree of the current files."""
        self.repository.stage(self.resource, self.index)
        if self.forms is not None and self.has_other_forms:
            self.forms.read_exactly(self.resource, self.index)
        return self.repository.text("write-tree", index=self.index)

    def filtered(self, paths: Collection[str]) -> list[str]:
        """Return the paths whose files use one of the user's filter programs."""
        if self.forms is None or not paths:
            return []
        return sorted(self.forms.filtered(self.resource, self.index, paths))

    @property
    def has_other_forms(self) -> bool:
        """Whether git may commit other bytes for a file than those on disk."""
        return self.converts or holds_attributes(self.index)

    def merge(self, base: str, ours: str, theirs: str) -> MergeResult:
        """Merge the change base → theirs into `ours`, the tree just captured."""
        merge = self._merged(base, ours, theirs)
        overlooked = self._overlooked(merge)
        if overlooked:
            feed = b"".join(os.fsencode(path) + b"\0" for path in overlooked)
            arguments = ("update-index", "--add", "-z", "--stdin")
            self.repository.git(*arguments, work_tree=self.resource, index=self.index, feed=feed)
            ours = self.repository.text("write-tree", index=self.index)
            merge = self._concealed(self._merged(base, ours, theirs), overlooked)
        blocked = () if merge.conflicts else self._refused(merge)
        return replace(merge, conflicts=blocked) if blocked else merge

    def _concealed(self, merge: MergeResult, overlooked: Sequence[str]) -> MergeResult:
        """Record the ignored files among `overlooked` in the merge result, and remove their content from the
        conflicts, because other users of a server can read conflicts.
        """
        drift, planned = merge.drift, states_in(self.repository, merge.theirs, overlooked)
        ignored = [path for path in overlooked if path in drift and drift[path].after != planned.get(path)]
        # A rename by the plan moves content of the base to another path.
        anywhere = any(drift[path].before is not None for path in ignored)
        conflicts = tuple(
            replace(one, hunks=(_IGNORED,)) if one.hunks and (anywhere or one.path in ignored) else one
            for one in merge.conflicts
        )
        return replace(merge, conflicts=conflicts, ignored=tuple(ignored))

    def keep(self, merge: MergeResult) -> None:
        """Copy everything that an undo needs into our own object store, because git may prune uncommitted
        content from the user's store.
        """
        if merge.ours == merge.base:
            return  # the base lives as long as the sandbox
        self.repository.pack((merge.ours, merge.merged, f"^{merge.base}"))

    def _merged(self, base: str, ours: str, theirs: str) -> MergeResult:
        hint = _OUTSIDE if self.git_directory is None else _UNTRACKED
        return merge_following_renames(
            self.repository, base, ours, theirs, untracked=self._untracked, hint=hint
        )

    def _untracked(self, paths: Collection[str]) -> Collection[str]:
        """Return the paths that are not in the user's index; outside of git, all of them."""
        if self.git_directory is None:
            return paths
        listed = os.fsdecode(self.repository.git("ls-files", "-z", index=self._known)).split("\0")
        return frozenset(paths).difference(listed)

    def _overlooked(self, merge: MergeResult) -> list[str]:
        """Return ignored files of the user that are missing in the tree `ours` but occur on another side of
        the merge.
        """
        lacking = {path for path, change in merge.changes.items() if change.before is None}
        lacking -= merge.drift.keys()  # an untracked file that the merge kept apart
        lacking |= {path for path, change in merge.drift.items() if change.after is None}
        return sorted(path for path in lacking if _is_file(self.resource, path))

    def ensure_known_submodules(self, plan_id: str, changes: Mapping[str, Difference]) -> None:
        """Raise `ApplyRefused` for a new submodule that is not in the user's index: a directory alone is not
        a submodule.
        """
        coming = [path for path, there in submodules_in(changes).items() if there]
        if not coming:
            return
        listed = os.fsdecode(self.repository.git("ls-files", "-s", "-z", index=self._known)).split("\0")
        known = {line.partition("\t")[2] for line in listed if line.startswith(f"{GITLINK:o} ")}
        unknown = [path for path in coming if path not in known]
        if unknown:  # guard: it would be lost silently
            reason = f"{unknown[0]} is a submodule that is not in your index"
            raise ApplyRefused(
                plan_id, f"{reason}; apply the plan with a commit, or add the submodule yourself"
            )

    def _refused(self, merge: MergeResult) -> tuple[FileConflict, ...]:
        """Return the obstacles to a merge without conflicts."""
        return (
            submodule_conflicts(self.repository, merge)
            or self._checked_out(merge.changes)
            or self._not_checked_out(merge)
            or self._blocked(merge.changes)
        )

    def _checked_out(self, changes: Mapping[str, Difference]) -> tuple[FileConflict, ...]:
        """Return conflicts for submodules to be removed whose directory is not empty."""
        found = []
        for path, there in submodules_in(changes).items():
            if not there and _is_used(self.resource / path):  # guard: its content may exist nowhere else
                found.append(submodule_conflict(path, _DEINIT.format(shlex.quote(path))))
        return tuple(found)

    def _not_checked_out(self, merge: MergeResult) -> tuple[FileConflict, ...]:
        """Return conflicts for changed files outside the sparse checkout: there is no file to change."""
        gone = [
            path
            for path, change in merge.changes.items()
            if change.before is not None and not os.path.lexists(self.resource / path)
        ]
        if not gone:
            return ()
        absent = frozenset(hidden_files(self.repository, self.resource, self.index).absent)
        return tuple(
            FileConflict(path, "not checked out", (_CHECK_OUT.format(shlex.quote(_directory_of(path))),))
            for path in gone
            if path in absent
        )

    def _blocked(self, changes: Mapping[str, Difference]) -> tuple[FileConflict, ...]:
        """Return conflicts for untracked files or links in the place of a new file. They are never
        overwritten, and links are never followed.
        """
        leaving = {path for path, change in changes.items() if change.after is None}
        sound: set[str] = set()
        found = []
        for path, change in changes.items():
            if change.before is not None:
                continue
            obstacle = self._obstacle(path, leaving, sound)
            if obstacle:
                found.append(FileConflict(path, "in the way", (obstacle,), "you"))
        return tuple(found)

    def _obstacle(self, path: str, leaving: set[str], sound: set[str]) -> str:
        """Return the reason why no new file can be created at `path`; empty if there is none."""
        parent = path.rpartition("/")[0]
        if parent and parent not in sound:
            above = self._parent_obstacle(parent, leaving)
            if above:
                return above
            sound.add(parent)
        here = self.resource / path
        if here.is_dir() and not here.is_symlink():
            kept = [file for file in _files_below(self.resource, path) if file not in leaving]
            if kept:
                return f"{path} is a directory that contains {kept[0]}"
        return ""

    def _parent_obstacle(self, parent: str, leaving: set[str]) -> str:
        where = ""
        for name in parent.split("/"):
            where = f"{where}/{name}" if where else name
            here = self.resource / where
            if here.is_symlink():  # guard: a link may lead out of the resource
                return "" if where in leaving else f"{where} is a symbolic link"
            if here.exists() and not here.is_dir():
                return "" if where in leaving else f"{where} is a file"
        return ""


def git_directory_of(resource: Path) -> Path | None:
    """Return the directory of the repository's HEAD and index; None if the resource is no longer a
    repository.
    """
    found = resource / ".git"
    if found.is_dir():
        return found.resolve()
    try:
        named = found.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    # A linked worktree or a submodule has a file with the path.
    return (resource / named.removeprefix("gitdir:").strip()).resolve()


def set_aside_directories(resource: Path, git_directory: Path | None) -> list[Path]:
    """Return the staging directories of applies, recognized by name and content; others belong
    to the user.
    """
    found = sorted(resource.glob(".cleveragents-*"))
    if git_directory is not None:
        found += sorted(git_directory.glob("cleveragents/*"))
    return [
        place
        for place in found
        if _STAGING.fullmatch(place.name) and all((place / name).is_dir() for name in ("old", "new"))
    ]


def names_of_content(repository: PrivateRepository, resource: Path, paths: Iterable[str]) -> dict[str, str]:
    """Return git's object names of the current content of these files, after conversions such as line
    endings.
    """
    named = sorted(paths)
    if not named:
        return {}
    feed = b"".join(_quoted(path) + b"\n" for path in named)
    said = repository.git("hash-object", "--stdin-paths", work_tree=resource, feed=feed)
    return dict(zip(named, said.decode("ascii").split(), strict=True))


def _is_used(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0] or path


def _is_file(resource: Path, path: str) -> bool:
    try:
        mode = (resource / path).lstat().st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return False
    # A file reached through a link is not part of the resource.
    return not any((resource / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1])


def _files_below(resource: Path, path: str) -> Iterable[str]:
    for folder, names, files in os.walk(resource / path):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(folder) / name).relative_to(resource))


def _quoted(path: str) -> bytes:
    """Quote the path for git's line-based input, whatever bytes it contains."""
    raw = os.fsencode(path)
    return (
        b'"'
        + b"".join(b"\\%03o" % byte if byte < 0x20 or byte in b'"\\' else bytes([byte]) for byte in raw)
        + b'"'
    )


def merge_following_renames(
    repository: PrivateRepository,
    base: str,
    ours: str,
    theirs: str,
    *,
    untracked: Untracked = lambda paths: (),
    hint: str = "",
) -> MergeResult:
    """Merge the change base → theirs into `ours`, and list the followed renames.

    `untracked` gets the files that `ours` added, and returns those that must not be treated as renamed files.
    `hint` is added to conflicts that may result from this rule.
    """
    drift = changed_between(repository, base, ours)
    if not drift or theirs in (base, ours):
        return replace(merge_trees(repository, base, ours, theirs), drift=drift)
    added = [path for path, change in drift.items() if change.before is None]
    gone = any(change.after is None for change in drift.values())
    apart = sorted(untracked(added)) if added and gone else []
    if apart:  # guard: a file that merely resembles a deleted one is not changed for it
        merge = _merged_apart(repository, (base, ours, theirs), drift, apart)
        merge = replace(merge, conflicts=tuple(_hinted(one, hint) for one in merge.conflicts))
    else:
        merge = _named(repository, replace(merge_trees(repository, base, ours, theirs), drift=drift))
    if merge.conflicts and _is_made(drift, changed_between(repository, base, theirs)):
        # git may read the same changes on both sides as two renames.
        return MergeResult(base, ours, theirs, ours, {}, drift=drift)
    return merge


def _is_made(drift: Mapping[str, Difference], wanted: Mapping[str, Difference]) -> bool:
    """Return whether `ours`, given its changes since the base, already has every wanted change exactly."""
    return all(path in drift and drift[path].after == change.after for path, change in wanted.items())


def _merged_apart(
    repository: PrivateRepository,
    trees: tuple[str, str, str],
    drift: Mapping[str, Difference],
    apart: Sequence[str],
) -> MergeResult:
    """Merge the trees without the files in `apart`, then add these files to the result."""
    base, ours, theirs = trees
    scratch = repository.directory / f"merge-{secrets.token_hex(8)}.index"
    tracked = repository.tree_with(ours, (index_line(0, "0" * len(ours), path) for path in apart), scratch)
    visible = {path: change for path, change in drift.items() if path not in apart}
    merge = _named(repository, replace(merge_trees(repository, base, tracked, theirs), drift=visible))
    if merge.conflicts:
        return replace(merge, ours=ours, drift=drift)
    states = {path: state for path in apart if (state := drift[path].after) is not None}
    conflicts = _collisions(repository, merge.changes, states, scratch)
    if conflicts:
        return replace(merge, ours=ours, drift=drift, conflicts=conflicts)
    merged = repository.tree_with(merge.merged, _lines(states), scratch)
    changes = {path: change for path, change in merge.changes.items() if path not in states}
    return replace(merge, ours=ours, merged=merged, changes=changes, drift=drift)


def _collisions(
    repository: PrivateRepository,
    changes: Mapping[str, Difference],
    states: Mapping[str, FileState],
    scratch: Path,
) -> tuple[FileConflict, ...]:
    """Return conflicts between the files that were kept apart and files or directories that the merge writes
    in their place.

    Only these files are merged with each other, on an empty base, so that git detects no renames among them.
    """
    arriving = {path: change.after for path, change in changes.items() if change.after is not None}
    arriving = {path: state for path, state in arriving.items() if states.get(path) != state}
    above = {parent for path in arriving for parent in parents_of(path)}
    met = {
        path: state
        for path, state in states.items()
        if path in arriving or path in above or not arriving.keys().isdisjoint(parents_of(path))
    }
    if not met:
        return ()
    below = {parent for path in met for parent in parents_of(path)}
    meeting = {
        path: state
        for path, state in arriving.items()
        if path in met or path in below or not met.keys().isdisjoint(parents_of(path))
    }
    empty = repository.text("mktree")
    sides = [repository.tree_with(empty, _lines(side), scratch) for side in (met, meeting)]
    found = merge_trees(repository, empty, *sides).conflicts
    return found or tuple(FileConflict(path, "add/add") for path in met)


def _lines(states: Mapping[str, FileState]) -> list[bytes]:
    return [index_line(state.mode, state.content, path) for path, state in states.items()]


def _hinted(conflict: FileConflict, hint: str) -> FileConflict:
    if conflict.kind not in _GONE:
        return conflict
    return replace(conflict, hunks=(*conflict.hunks, hint))


def _named(repository: PrivateRepository, merge: MergeResult) -> MergeResult:
    """Add the followed renames to the merge result. A change at another path that no rename explains becomes
    a conflict.
    """
    drift, changes = merge.drift, merge.changes
    gone = {path for path, change in drift.items() if change.after is None}
    added = {path for path, change in drift.items() if change.before is None}
    if merge.conflicts:
        old_names = {
            rename.new: rename.old
            for rename in _pairs(
                repository, merge.base, merge.ours, gone, added.intersection(c.path for c in merge.conflicts)
            )
        }
        return replace(merge, conflicts=tuple(_with_old_name(one, old_names) for one in merge.conflicts))
    landed = {path for path in added if path in changes and changes[path].before and changes[path].after}
    left = {
        path
        for path, change in changes.items()
        if change.after is None and path in drift and drift[path].before and drift[path].after
    }
    if not landed and not left:
        return merge
    wanted = changed_between(repository, merge.base, merge.theirs)
    arriving = {path for path, change in changes.items() if change.before is None}
    found = [
        *_pairs(repository, merge.base, merge.ours, gone.intersection(wanted), landed),
        *_pairs(repository, merge.base, merge.theirs, left, arriving),
    ]
    explained = {path for rename in found for path in (rename.old, rename.new)}
    unexplained = sorted((landed - wanted.keys() | left) - explained)
    conflicts = tuple(FileConflict(path, "a rename that cannot be named") for path in unexplained)
    return replace(merge, renames=tuple(found), conflicts=conflicts)


def _with_old_name(conflict: FileConflict, old_names: Mapping[str, str]) -> FileConflict:
    old = old_names.get(conflict.path)
    return conflict if old is None else replace(conflict, hunks=(f"renamed from {old}", *conflict.hunks))


def _pairs(
    repository: PrivateRepository, base: str, side: str, old: Collection[str], new: Collection[str]
) -> list[Rename]:
    """Return the renames between the trees from an `old` path to a `new` path."""
    if not old or not new:
        return []
    paths = sorted({*old, *new})
    size = sum(len(os.fsencode(path)) + 16 for path in paths)
    limits = ("--", *paths) if size < _ARGUMENT_BYTES else ()
    options = ("-r", "-z", "-M", "-l0", "--diff-filter=R", "--name-status")
    listed = repository.git("--literal-pathspecs", "diff-tree", *options, base, side, *limits)
    fields = os.fsdecode(listed).split("\0")[:-1]
    found = [Rename(*pair) for pair in zip(fields[1::3], fields[2::3], strict=True)]
    return [rename for rename in found if rename.old in old and rename.new in new]
