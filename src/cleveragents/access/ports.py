"""Where users of a server and their tokens are kept.

Where projects and resources are kept.

What a repository brings along, and whether the user said that it may count.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

__all__ = ["BroughtFile", "GivenTrust", "Survey"]


@dataclass(frozen=True, slots=True)
class BroughtFile:
    """A file as it was read, once: `trusted` speaks of this very content, so whoever uses the file uses
    `content` and does not read it again. `path` is relative to the root, with `/`."""

    path: str
    digest: str
    content: bytes
    trusted: bool


@dataclass(frozen=True, slots=True)
class Survey:
    """All that a repository brings along. `refused` are files that cannot be trusted, each with the reason;
    not all was looked at when one of them says so."""

    root: Path
    files: tuple[BroughtFile, ...]
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def pending(self) -> tuple[BroughtFile, ...]:
        """What is not trusted as it is now."""
        return tuple(file for file in self.files if not file.trusted)


@dataclass(frozen=True, slots=True)
class GivenTrust:
    """A file's content that the user trusts."""

    path: str
    digest: str
    trusted_at: datetime
