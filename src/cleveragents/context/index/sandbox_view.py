"""What the files of a sandbox are, while commands of an agent may be changing them.

No git process looks at them: they are walked, and compared with the index that the sandbox keeps outside.
"""

from __future__ import annotations

from contextlib import suppress

from cleveragents.context.index.directory_view import NEVER_SOUGHT
from cleveragents.context.index.git_view import view_of
from cleveragents.context.index.place import Ground
from cleveragents.context.index.view import Entry, FileStamps, View
from cleveragents.core.errors import SandboxRefused, SourceMissing
from cleveragents.core.file_state import SYMLINK
from cleveragents.sandboxes.tree.index import is_unchanged, open_tree

__all__ = ["sandbox_view"]


def sandbox_view(ground: Ground, stamps: FileStamps, most_files: int) -> View:
    """The files that are tracked or not ignored, as they are now. `SourceMissing`."""
    tree = open_tree(ground.root.parent)
    index = tree.place.index
    try:
        written_ns = index.stat().st_mtime_ns
        found, known = tree.survey(index, never_entered=NEVER_SOUGHT)
    except (SandboxRefused, OSError) as error:
        raise SourceMissing(str(ground.root), str(error)) from error
    entries: list[Entry] = []
    unreadable: list[str] = []
    for path, status in found.files.items():
        try:
            path.encode("utf-8")
        except UnicodeEncodeError:
            unreadable.append(path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))
            continue
        tracked = known.get(path)
        if tracked is not None and is_unchanged(tracked, status, written_ns):
            if tracked.mode != SYMLINK:
                entries.append(Entry(path, bytes.fromhex(tracked.name), status.st_size, False))
            continue
        with suppress(OSError):
            entry = stamps.entry(path, status)
            if entry is not None:
                entries.append(entry)
    return view_of(entries, unreadable, most_files, stamps)
