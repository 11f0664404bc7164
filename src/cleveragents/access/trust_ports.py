"""What a repository brings along, and whether the user said that it may count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

__all__ = ["BroughtFile", "GivenTrust", "Survey", "TrustStore"]


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


class TrustStore(Protocol):
    """Trust by place and content: a file that changed, or moved, asks again. Any thread may call it."""

    def look(self, root: Path, relative: str) -> BroughtFile | None:
        """The file as it is now, and whether that is trusted; None if there is none.

        `ConfigurationError` for one that leads out of the root, is no regular file or is too large.
        """
        ...

    def survey(self, root: Path) -> Survey:
        """Everything below the root that would need trust."""
        ...

    def give(self, root: Path, files: Sequence[BroughtFile]) -> Sequence[str]:
        """Trusts these contents, as they were read: a file that changed since is not trusted thereby.

        Returns the paths that were not trusted before. Kept together with its event.
        """
        ...

    def list(self) -> Sequence[GivenTrust]:
        """All that is trusted, by path."""
        ...

    def revoke(self, path: Path) -> Sequence[str]:
        """Trusts nothing at or below that path any more; returns the files that were trusted."""
        ...
