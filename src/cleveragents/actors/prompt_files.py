"""Prompts in files next to an actor's YAML: `prompt: {file: prompts/plan.md}`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from cleveragents.access.trust.repository_files import PROMPT_ENDINGS, read_inside
from cleveragents.core.errors import ConfigurationError

__all__ = ["PromptReader", "prompt_text", "prompts_beside"]

PromptReader: TypeAlias = Callable[[str], bytes | None]
"""Reads a file by its relative path; returns None if it is missing. Raises `ConfigurationError` if it is
unreadable.
"""

_SIZE_LIMIT_BYTES = 64 << 10


def prompts_beside(directory: Path) -> PromptReader:
    """Return a reader for files inside a directory; it cannot read anything outside."""
    return lambda relative: read_inside(directory, relative)


def prompt_text(relative: str, read: PromptReader | None) -> str:
    """Return the text of a prompt file. Raises `ValueError` with the problem."""
    if not _is_beside(relative):  # guard: a prompt may be sent anywhere, so it must not read arbitrary files
        raise ValueError(
            f"{relative[:60]!r} is not a prompt file; use a path like prompts/plan.md, "
            f"at most one folder deep, with the suffix {' or '.join(PROMPT_ENDINGS)}"
        )
    if read is None:
        raise ValueError("prompt files are not supported here; write the prompt inline")
    try:
        content = read(relative)
    except ConfigurationError as error:
        raise ValueError(f"{relative} {error.problem}") from None
    if content is None:
        raise ValueError(f"there is no prompt file {relative!r}")
    if len(content) > _SIZE_LIMIT_BYTES:
        raise ValueError(f"{relative} is larger than {_SIZE_LIMIT_BYTES >> 10} KiB; shorten the prompt")
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{relative} is not UTF-8 text; save it as UTF-8") from None


def _is_beside(relative: str) -> bool:
    path = PurePosixPath(relative)
    plain = path.as_posix() == relative and "\0" not in relative and not path.is_absolute()
    return plain and ".." not in path.parts and len(path.parts) in (1, 2) and path.suffix in PROMPT_ENDINGS
