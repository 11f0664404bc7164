"""Telling a change from a conversion.

Where attributes or settings convert line endings, git compares what it would store, not what is there: a file
that was committed with other endings than its attributes want counts as changed though nobody touched it. For
us a file is unchanged when its bytes are those that a checkout of the base gives.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleveragents.domain.file_state import FileState
from cleveragents.infrastructure.git.plumbing import PrivateRepository, index_line
from cleveragents.infrastructure.sandbox.facts import SandboxPlace
from cleveragents.infrastructure.sandbox.paths import read_file, remove_all

__all__ = ["untouched"]


def untouched(
    place: SandboxPlace, engine: PrivateRepository, states: Mapping[str, FileState]
) -> frozenset[str]:
    """The paths whose files are, byte for byte, what a checkout of these states gives."""
    index, export = place.scratch("index"), place.scratch("export")
    feed = b"".join(index_line(state.mode, state.content, path) for path, state in states.items())
    try:
        engine.git("update-index", "-z", "--index-info", index=index, feed=feed)
        engine.git("checkout-index", "--all", f"--prefix={export}/", work_tree=place.tree, index=index)
        return frozenset(path for path in states if read_file(place.tree, path) == read_file(export, path))
    finally:
        index.unlink(missing_ok=True)
        remove_all(export)
