"""Going through the files of a sandbox: those that fit a pattern, as text where they are text."""

from __future__ import annotations

from collections.abc import Iterator

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.tools.files.path_pattern import PathPattern
from cleveragents.tools.files.text_files import looks_binary
from cleveragents.tools.ports import FoundFile, SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Result

__all__ = ["SEARCHED_FILE_LIMIT_BYTES", "Skipped", "batches_of", "files_matching"]

SEARCHED_FILE_LIMIT_BYTES = 8 << 20
"""What people write is smaller; larger files are data, and there may be many of them."""

# Handing texts over one by one costs more than searching them.
_BATCH_CHARACTERS = 1 << 20
_BATCH_FILES = 200


class Skipped(Result):
    """A file that was left out, and why."""

    path: str
    reason: str


def _is_text(path: str) -> bool:
    """Whether a name can be said at all; some filesystems hold bytes that are no Unicode."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def files_matching(workplace: Workplace, pattern: str) -> Iterator[FoundFile]:
    """Files and links whose path fits, in order; `Cancelled` as soon as the call is to stop."""
    wanted = PathPattern(pattern)
    for found in workplace.files.walk():
        workplace.stop.raise_if_cancelled()
        if found.kind in ("file", "symlink") and _is_text(found.path) and wanted.matches(found.path):
            yield found


def batches_of(workplace: Workplace, pattern: str, skipped: list[Skipped]) -> Iterator[list[tuple[str, str]]]:
    """Path and text of the files that fit and can be searched, some at a time; the others go to `skipped`."""
    batch: list[tuple[str, str]] = []
    size = 0
    for found in files_matching(workplace, pattern):
        text = _searchable(workplace.files, found)
        if isinstance(text, Skipped):
            skipped.append(text)
        elif text is not None:
            batch.append((found.path, text))
            size += len(text)
        if size > _BATCH_CHARACTERS or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _searchable(files: SandboxFiles, found: FoundFile) -> str | Skipped | None:
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
