"""Iterate over the files of a sandbox that match a pattern, as text where possible.

Path patterns: `*`, `?`, `[…]` within a name, `**` for any number of directories, `{a,b}` for alternatives. As
in .gitignore, a pattern without a `/` matches names in any directory, a leading `/` anchors it at the root,
and a trailing `/` means everything below. Names with a leading dot are not special. The time to match a path
is at most proportional to its number of names times the length of the pattern.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.tools.files.text_files import looks_binary
from cleveragents.tools.ports import FoundFile, SandboxFiles, Workplace
from cleveragents.tools.typed_tool import Result

__all__ = ["SEARCHED_FILE_LIMIT_BYTES", "Glob", "PathPattern", "Skipped", "batches_of", "files_matching"]


SEARCHED_FILE_LIMIT_BYTES = 8 << 20
"""The limit for searched files. Hand-written files are smaller; larger ones are data, possibly many."""
# Passing texts one by one costs more than searching them.
_BATCH_CHARACTERS = 1 << 20
_BATCH_FILES = 200

_LENGTH_LIMIT = 500
_ALTERNATIVES_LIMIT = 64
_BRACES = re.compile(r"\{([^{}]*)\}")
# One name, or None for `**`.
_Step = re.Pattern[str] | None


class Skipped(Result):
    """A file that was left out, and why."""

    path: str
    reason: str


def _is_text(path: str) -> bool:
    """Return whether a name is valid Unicode; some file systems allow other bytes."""
    return not any("\ud800" <= character <= "\udfff" for character in path)


def files_matching(workplace: Workplace, pattern: str) -> Iterator[FoundFile]:
    """Yield files and links whose path matches, sorted. Raises `Cancelled` as soon as the
    call is cancelled.
    """
    wanted = PathPattern(pattern)
    for found in workplace.files.walk():
        workplace.stop.raise_if_cancelled()
        if found.kind in ("file", "symlink") and _is_text(found.path) and wanted.matches(found.path):
            yield found


def batches_of(workplace: Workplace, pattern: str, skipped: list[Skipped]) -> Iterator[list[tuple[str, str]]]:
    """Yield batches of path and text of the matching files; files that cannot be searched go to `skipped`."""
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
    """Return the file's text, or why it is not searched; None for links and binary files."""
    if found.kind != "file":
        return None
    try:
        data = files.read(found.path, limit_bytes=SEARCHED_FILE_LIMIT_BYTES)
    except (ToolRefused, OutsideSandbox) as refused:
        reason = refused.reason.removeprefix(f"{found.path!r} is ")
        return Skipped(path=found.path, reason=reason)
    if looks_binary(data):
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Skipped(path=found.path, reason=f"not UTF-8 text (byte {error.start})")


class PathPattern:
    """A path pattern. Immutable. Raises `ValueError` if it is invalid."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > _LENGTH_LIMIT or "\0" in pattern:
            raise ValueError(f"a path pattern must have 1 to {_LENGTH_LIMIT} characters without NUL")
        self._alternatives = [_steps(one) for one in _expanded(pattern)]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_fits(steps, names) for steps in self._alternatives)


def _checked(pattern: str) -> str:
    PathPattern(pattern)
    return pattern


Glob = Annotated[str, AfterValidator(_checked)]
"""The type of a tool's pattern argument."""


def _expanded(pattern: str) -> list[str]:
    left = [pattern]
    done: list[str] = []
    while left:
        if len(left) + len(done) > _ALTERNATIVES_LIMIT:
            raise ValueError(f"more than {_ALTERNATIVES_LIMIT} alternatives in braces")
        one = left.pop()
        found = next((match for match in _BRACES.finditer(one) if "," in match[1]), None)
        if found is None:
            done.append(one)
        else:
            left += [one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(",")]
    return done


def _steps(pattern: str) -> list[_Step]:
    if ".." in pattern.split("/"):
        raise ValueError("'..' is not allowed: patterns match paths inside the sandbox")
    anywhere = "/" not in pattern.rstrip("/")
    if pattern.endswith("/"):
        pattern += "**"
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if not names:
        raise ValueError("the pattern is empty")
    return [
        None if name == "**" else re.compile(fnmatch.translate(name))
        for name in [*(["**"] if anywhere else []), *names]
    ]


def _fits(steps: list[_Step], names: list[str]) -> bool:
    # All positions in the pattern that the names so far can reach, so nothing is tried twice.
    reached = set(_skipping(steps, 0))
    for name in names:
        further: set[int] = set()
        for place in reached:
            if place == len(steps):
                continue
            step = steps[place]
            if step is None:
                further.update(_skipping(steps, place))
                further.add(place + 1)
            elif step.match(name):
                further.update(_skipping(steps, place + 1))
        reached = further
    return len(steps) in reached


def _skipping(steps: list[_Step], place: int) -> Iterator[int]:
    """Yield `place`, a position in the pattern; if a `**` is there, which may match no directory at all, also
    the position after it.
    """
    yield place
    while place < len(steps) and steps[place] is None and place + 1 < len(steps):
        place += 1
        yield place
