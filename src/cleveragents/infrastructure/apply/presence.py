"""The resource as it is now: its files as a tree, and what stands in the way of a change.

The tree is captured through an index of ours that starts as a copy of the user's, so that only what changed
since the user's last git command is read. What git would not look at counts where the plan touches it: an
ignored file that the sandbox had brought along, or that is in the way of a new one, is captured, too.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from cleveragents.application.ports.applies import FileConflict
from cleveragents.domain.file_state import Difference
from cleveragents.errors import ApplyRefused
from cleveragents.infrastructure.apply.merge import Merge, changed_between, merge_trees
from cleveragents.infrastructure.git.git_directory import copy_index
from cleveragents.infrastructure.git.plumbing import PrivateRepository

__all__ = ["Presence", "git_directory_of", "names_of_content", "put_aside_in"]

_STAGING = re.compile(r"(?:\.cleveragents-)?[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class Presence:
    """A resource and the repository in which its trees are kept. `git_directory` is None outside of git."""

    resource: Path
    repository: PrivateRepository
    git_directory: Path | None
    index: Path

    @property
    def required_git_directory(self) -> Path:
        """For those who have made sure that there is one."""
        return self.git_directory or self.resource / ".git"

    def ensure_no_other_journal(self, plan_id: str) -> None:
        """`ApplyRefused` when an apply was interrupted here of which our journal knows nothing."""
        found = put_aside_in(self.resource, self.git_directory)
        if found:  # guard: files in two states are no base for a merge
            raise ApplyRefused(
                plan_id,
                f"{found[0]} holds files that an interrupted apply had put aside and that are nowhere "
                "else; let whoever began it run `agents doctor`, or look at them and remove the directory",
            )

    def begin(self) -> None:
        """Starts from what is known of unchanged files: the user's index, or ours of the last time.

        The copy is this preparation's alone, so that a lock that a killed git left is in nobody's way.
        """
        copy_index(self._known, self.index)

    def end(self) -> None:
        """Keeps what was learnt, where the user's index does not know it."""
        if self.git_directory is None and self.index.exists():
            self.index.replace(self._known)
        self.index.unlink(missing_ok=True)

    @property
    def _known(self) -> Path:
        if self.git_directory is not None:
            return self.git_directory / "index"
        return self.repository.directory / "apply.index"

    def capture(self) -> str:
        """The tree of the files as they are now."""
        return self.repository.capture(self.resource, self.index)

    def merge(self, base: str, ours: str, theirs: str) -> Merge:
        """Brings base → theirs into `ours`, the tree that was just captured."""
        merge = merge_trees(self.repository, base, ours, theirs)
        overlooked = self._overlooked(merge)
        if overlooked:
            feed = b"".join(os.fsencode(path) + b"\0" for path in overlooked)
            arguments = ("update-index", "--add", "-z", "--stdin")
            self.repository.git(*arguments, work_tree=self.resource, index=self.index, feed=feed)
            ours = self.repository.text("write-tree", index=self.index)
            merge = merge_trees(self.repository, base, ours, theirs)
        blocked = () if merge.conflicts else self._blocked(merge.changes)
        return replace(merge, conflicts=blocked) if blocked else merge

    def keep(self, merge: Merge) -> None:
        """All that an undo will need is in our own store: the user's may be pruned of what only their files
        or a dropped branch had."""
        if merge.ours == merge.base:
            return  # the base is kept for as long as the sandbox is
        feed = f"{merge.ours}\n{merge.merged}\n^{merge.base}\n".encode("ascii")
        pack = self.repository.directory / "objects" / "pack" / "pack"
        self.repository.git("pack-objects", "--revs", "-q", str(pack), feed=feed)

    def _overlooked(self, merge: Merge) -> list[str]:
        """Files that another side has and that exist, though git does not look at them here."""
        lacking = {path for path, change in merge.changes.items() if change.before is None}
        for path, change in changed_between(self.repository, merge.base, merge.ours).items():
            if change.after is None:
                lacking.add(path)
        return sorted(path for path in lacking if _is_file(self.resource, path))

    def _blocked(self, changes: Mapping[str, Difference]) -> tuple[FileConflict, ...]:
        """What is where a new file must go, and is not known to git: never overwritten, never followed."""
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
        """What keeps a file from being made at `path`; empty if nothing does."""
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
                return f"{path} is a directory that holds {kept[0]}"
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
    """Where the repository keeps its HEAD and its index; None if the resource is none any more."""
    found = resource / ".git"
    if found.is_dir():
        return found.resolve()
    try:
        named = found.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    # A linked worktree, or a submodule, has a file that says where.
    return (resource / named.removeprefix("gitdir:").strip()).resolve()


def put_aside_in(resource: Path, git_directory: Path | None) -> list[Path]:
    """Where applies have put files aside: directories of ours by name and shape; what else is called so is
    its user's."""
    found = sorted(resource.glob(".cleveragents-*"))
    if git_directory is not None:
        found += sorted(git_directory.glob("cleveragents/*"))
    return [
        place
        for place in found
        if _STAGING.fullmatch(place.name) and all((place / name).is_dir() for name in ("old", "new"))
    ]


def names_of_content(repository: PrivateRepository, resource: Path, paths: Iterable[str]) -> dict[str, str]:
    """What git would call the present content of these files, conversions of line ends included."""
    named = sorted(paths)
    if not named:
        return {}
    feed = b"".join(_quoted(path) + b"\n" for path in named)
    said = repository.git("hash-object", "--stdin-paths", work_tree=resource, feed=feed)
    return dict(zip(named, said.decode("ascii").split(), strict=True))


def _is_file(resource: Path, path: str) -> bool:
    try:
        mode = (resource / path).lstat().st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return False
    # What is reached through a link is another's.
    return not any((resource / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1])


def _files_below(resource: Path, path: str) -> Iterable[str]:
    for folder, names, files in os.walk(resource / path):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            yield str((Path(folder) / name).relative_to(resource))


def _quoted(path: str) -> bytes:
    """The path as git reads it from a line, whatever bytes it holds."""
    raw = os.fsencode(path)
    return (
        b'"'
        + b"".join(b"\\%03o" % byte if byte < 0x20 or byte in b'"\\' else bytes([byte]) for byte in raw)
        + b'"'
    )
