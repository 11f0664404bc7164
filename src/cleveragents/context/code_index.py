"""The code index: what repositories hold, ready to be searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cleveragents.context.model.code import CodeFile, Field, FileAnalysis
from cleveragents.context.strategy import CancelSignal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ChunkLayout",
    "CodeIndex",
    "CodePlace",
    "CodeSnapshot",
    "IndexProgress",
    "IndexStatus",
    "Postings",
]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """What is looked at: a directory as it is now, or a commit of the repository that it is in.

    `home` is the repository whose index is shared; without it, the one that `root` belongs to. A plan's
    sandbox names the user's repository here.

    `git_dir` is for the files of a sandbox: the git directory to ask. The `.git` among these files is
    written by the plan's commands, and is not looked at.
    """

    root: Path
    commit: str | None = None
    home: Path | None = None
    git_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """`files` are in the place, `indexed` of them can be searched; `notes` say what went differently."""

    files: int
    indexed: int
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.indexed == self.files


IndexProgress = Callable[[int, int], None]
"""Hears how many of how many contents are done; called on the thread that opens the snapshot."""


@dataclass(frozen=True, slots=True)
class Postings:
    """Where a term stands: chunk numbers of the snapshot, ascending, and how often in each."""

    chunks: NDArray[np.int32]
    counts: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The lay-out of a snapshot's chunks: `document_of[chunk]`; `first_chunk[document]`, with one more at the
    end; `lengths[chunk]`, which is how many terms its body has."""

    document_of: NDArray[np.int32]
    first_chunk: NDArray[np.int32]
    lengths: NDArray[np.float32]


class CodeSnapshot(Protocol):
    """What a place holds at one moment. It does not change while it is open; any thread may ask.

    A document is a distinct content, so a file that is there twice is searched once. Opaque and not yet
    indexed files have a document without chunks.
    """

    @property
    def place(self) -> CodePlace: ...

    @property
    def files(self) -> Sequence[CodeFile]:
        """In order of path."""
        ...

    @property
    def status(self) -> IndexStatus: ...

    @property
    def chunks(self) -> ChunkLayout: ...

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        """For each term that occurs; terms are in lower case."""
        ...

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        """Without the chunks' terms. Documents that are not indexed are missing."""
        ...

    def text(self, path: str) -> str:
        """The content as it was when the snapshot was made; `SourceChanged` if it is to be had no more,
        `KeyError` for a path that the snapshot lacks."""
        ...


class CodeIndex(Protocol):
    """Opens snapshots, indexing what is new. Several processes may do so at once, on one repository."""

    def open(
        self,
        place: CodePlace,
        *,
        seconds: float | None = None,
        progress: IndexProgress | None = None,
        cancelled: CancelSignal | None = None,
    ) -> AbstractContextManager[CodeSnapshot]:
        """A snapshot with everything indexed; after `seconds` with what is indexed by then, which its status
        says. An index that is broken or of another version is built anew, and a note says so; one that
        cannot be written is done without. `SourceMissing`: there is no such directory or commit.
        `Cancelled`."""
        ...
