"""What a checkout gives, and telling a change from a conversion by it.

Where attributes or settings convert line endings, git compares what it would store, not what is there: a file
that was committed with other endings than its attributes want counts as changed though nobody touched it. For
us a file is unchanged when its bytes are those that a checkout of the base gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cleveragents.core.change import FileState
from cleveragents.git.plumbing import PrivateRepository, index_line
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.storage.files.paths import directory_of, read_file, remove_all

__all__ = ["exported", "untouched"]


def untouched(
    place: SandboxPlace, engine: PrivateRepository, states: Mapping[str, FileState], index: Path
) -> frozenset[str]:
    """The paths whose files are, byte for byte, what a checkout of these states gives under the attributes in
    the index, a copy of the caller's own that is used up."""
    with exported(place, engine, states, index) as export:
        return frozenset(path for path in states if _are_alike(place.tree, export, path))


@contextmanager
def exported(
    place: SandboxPlace, engine: PrivateRepository, states: Mapping[str, FileState | None], index: Path
) -> Iterator[Path]:
    """A directory with the files that a checkout of these states gives; no command can reach it.

    Attributes are those of the index, a copy of the caller's own, with these states in it.
    """
    export = place.scratch("export")
    export.mkdir()
    there = {path: state for path, state in states.items() if state is not None}
    no_object = "0" * max((len(state.content) for state in there.values()), default=40)
    lines = [index_line(0, no_object, path) for path, state in states.items() if state is None]
    lines += [index_line(state.mode, state.content, path) for path, state in there.items()]
    feed = b"".join(os.fsencode(path) + b"\0" for path in there)
    try:
        engine.git("update-index", "--replace", "-z", "--index-info", index=index, feed=b"".join(lines))
        options = ("checkout-index", "-z", "--stdin", f"--prefix={export}/")
        engine.git(*options, work_tree=place.nothing, index=index, feed=feed)
        yield export
    finally:
        remove_all(export)


def _are_alike(tree: Path, export: Path, path: str) -> bool:
    """By size first: what a command left there may be larger than memory."""
    if _size_of(tree, path) != _size_of(export, path):
        return False
    return read_file(tree, path) == read_file(export, path)


def _size_of(root: Path, path: str) -> int | None:
    with directory_of(root, path) as found:
        try:
            return None if found is None else os.lstat(found[1], dir_fd=found[0]).st_size
        except OSError:
            return None
