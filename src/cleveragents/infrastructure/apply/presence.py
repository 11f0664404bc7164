"""The resource as it is now: its files as a tree, and what stands in the way of a change.

The tree is captured through an index of ours that starts as a copy of the user's, so that only what changed
since the user's last git command is read. What git would not look at counts where the plan touches it: an
ignored file that the sandbox had brought along, or that is in the way of a new one, is captured, too.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from cleveragents.application.ports.applies import FileConflict
from cleveragents.domain.file_state import Difference
from cleveragents.errors import ApplyRefused
from cleveragents.infrastructure.apply.merge import Merge, changed_between, merge_trees
from cleveragents.infrastructure.git.plumbing import PrivateRepository

__all__ = ["Presence", "names_of_content"]


@dataclass(frozen=True, slots=True)
class Presence:
    """A resource and the repository in which its trees are kept. `git_directory` is None outside of git."""

    resource: Path
    repository: PrivateRepository
    git_directory: Path | None

    @property
    def index(self) -> Path:
        return self.repository.directory / "apply.index"

    def ensure_no_other_journal(self, plan_id: str) -> None:
        """`ApplyRefused` when an apply was interrupted here of which our journal knows nothing."""
        found = sorted(self.resource.glob(".cleveragents-*"))
        if self.git_directory is not None:
            found += sorted(self.git_directory.glob("cleveragents/*"))
        if found:  # guard: files in two states are no base for a merge
            raise ApplyRefused(
                plan_id,
                f"{found[0]} holds files that an interrupted apply had put aside and that are nowhere else; "
                "let whoever began it run `agents doctor`, or look at them and remove the directory",
            )

    def begin(self) -> None:
        """Takes the user's index for a start, for what it knows of unchanged files."""
        if self.git_directory is not None and (self.git_directory / "index").exists():
            shutil.copy2(self.git_directory / "index", self.index)

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
