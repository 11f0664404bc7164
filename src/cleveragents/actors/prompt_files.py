"""Prompts that stand in files beside an actor's YAML: `prompt: {file: prompts/plan.md}`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from cleveragents.access.trust.repository_files import PROMPT_ENDINGS, read_inside
from cleveragents.core.errors import ConfigurationError

__all__ = ["PromptReader", "prompt_text", "prompts_beside"]

PromptReader: TypeAlias = Callable[[str], bytes | None]
"""Reads the file of that relative path; None if there is none, `ConfigurationError` if it cannot be read."""

_SIZE_LIMIT_BYTES = 64 << 10


def prompts_beside(directory: Path) -> PromptReader:
    """Reads files of that directory, and nothing outside of it."""
    return lambda relative: read_inside(directory, relative)


def prompt_text(relative: str, read: PromptReader | None) -> str:
    """The text of the file; `ValueError` says what is wrong with it."""
    if not _is_beside(relative):  # guard: a prompt may be sent anywhere, so it is no way to read any file
        raise ValueError(
            f"{relative[:60]!r} is no file beside this one; write a name like prompts/plan.md, "
            f"at most one folder down, ending with {' or '.join(PROMPT_ENDINGS)}"
        )
    if read is None:
        raise ValueError("files beside it are not read here; write the text itself")
    try:
        content = read(relative)
    except ConfigurationError as error:
        raise ValueError(f"{relative} {error.problem}") from None
    if content is None:
        raise ValueError(f"there is no file {relative!r} beside this one")
    if len(content) > _SIZE_LIMIT_BYTES:
        raise ValueError(f"{relative} is larger than {_SIZE_LIMIT_BYTES >> 10} KiB; a prompt is short")
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ValueError(f"{relative} is not UTF-8 text; save it as UTF-8") from None


def _is_beside(relative: str) -> bool:
    path = PurePosixPath(relative)
    plain = path.as_posix() == relative and "\0" not in relative and not path.is_absolute()
    return plain and ".." not in path.parts and len(path.parts) in (1, 2) and path.suffix in PROMPT_ENDINGS
