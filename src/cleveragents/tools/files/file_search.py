"""Going through the files of a sandbox: those that fit a pattern, as text where they are text.

Patterns of paths: `*`, `?`, `[…]` within a name, `**` over any number of directories, `{a,b}` for either.

As in .gitignore, a pattern without a `/` is about the name, wherever the file is; one that begins with `/`
starts at the root; one that ends with `/` means all that is below. Names that begin with a dot are names like
any other. Whatever the pattern, matching takes no longer than names times pattern.
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
"""What people write is smaller; larger files are data, and there may be many of them."""
# Handing texts over one by one costs more than searching them.
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


class PathPattern:
    """Says whether a path fits. Immutable. `ValueError` if it is no pattern."""

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > _LENGTH_LIMIT or "\0" in pattern:
            raise ValueError(f"a pattern of paths has 1 to {_LENGTH_LIMIT} characters, and none is NUL")
        self._alternatives = [_steps(one) for one in _expanded(pattern)]

    def matches(self, path: str) -> bool:
        names = path.split("/")
        return any(_fits(steps, names) for steps in self._alternatives)


def _checked(pattern: str) -> str:
    PathPattern(pattern)
    return pattern


Glob = Annotated[str, AfterValidator(_checked)]
"""The argument of a tool that is such a pattern."""


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
        raise ValueError("'..' leads nowhere: patterns are about paths inside the sandbox")
    anywhere = "/" not in pattern.rstrip("/")
    if pattern.endswith("/"):
        pattern += "**"
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if not names:
        raise ValueError("the pattern names nothing")
    return [
        None if name == "**" else re.compile(fnmatch.translate(name))
        for name in [*(["**"] if anywhere else []), *names]
    ]


def _fits(steps: list[_Step], names: list[str]) -> bool:
    # All places in the pattern that the names so far may have led to; so nothing is tried twice.
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
    """The place, and those after any `**` there, which may stand for no directory at all."""
    yield place
    while place < len(steps) and steps[place] is None and place + 1 < len(steps):
        place += 1
        yield place
