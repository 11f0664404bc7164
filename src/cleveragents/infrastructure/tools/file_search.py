"""Going through the files of a sandbox: those that fit a pattern, as text where they are text."""

from __future__ import annotations

from collections.abc import Iterator

from cleveragents.application.ports.tools import FoundFile, SandboxFiles, Workplace
from cleveragents.errors import OutsideSandbox, ToolRefused
from cleveragents.infrastructure.tools.path_pattern import PathPattern
from cleveragents.infrastructure.tools.text_files import looks_binary
from cleveragents.infrastructure.tools.typed_tool import Result

__all__ = ["SEARCHED_FILE_LIMIT_BYTES", "Skipped", "files_matching", "is_text", "searchable"]

SEARCHED_FILE_LIMIT_BYTES = 8 << 20
"""What people write is smaller; larger files are data, and there may be many of them."""


class Skipped(Result):
    """A file that was left out, and why."""

    path: str
    reason: str


def is_text(path: str) -> bool:
    """Whether a name can be said at all; some filesystems hold bytes that are no Unicode."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def files_matching(workplace: Workplace, pattern: str) -> Iterator[FoundFile]:
    """Files and links whose path fits, in order; `Cancelled` as soon as the call is to stop."""
    wanted = PathPattern(pattern)
    for found in workplace.files.walk():
        workplace.stop.raise_if_cancelled()
        if found.kind in ("file", "symlink") and is_text(found.path) and wanted.matches(found.path):
            yield found


def searchable(files: SandboxFiles, found: FoundFile) -> str | Skipped | None:
    """The file's text; why it is not searched; None for what nobody expects to be: links and binary files."""
    if found.kind != "file":
        return None
    try:
        data = files.read(found.path, limit_bytes=SEARCHED_FILE_LIMIT_BYTES)
    except (ToolRefused, OutsideSandbox) as refused:
        return Skipped(path=found.path, reason=refused.reason)
    if looks_binary(data):
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(path=found.path, reason=f"it is not UTF-8 text (byte {error.start})")
