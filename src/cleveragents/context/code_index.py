"""Ports for the code index: searchable snapshots of repositories."""

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
    """The code to search: a directory in its current state, or a commit of the repository that contains it.

    `home` is the repository whose index is used; by default, the repository that contains `root`. For a
    plan's sandbox, `home` is the user's repository, so that both share an index.

    `git_dir` is the git directory to use for the files of a sandbox. The `.git` among these files is ignored,
    because the plan's commands can write to it.
    """

    root: Path
    commit: str | None = None
    home: Path | None = None
    git_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The state of an index: the number of `files` in the place, and how many of them are `indexed`.

    `notes` report problems.
    """

    files: int
    indexed: int
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.indexed == self.files


IndexProgress = Callable[[int, int], None]
"""Receives the number of indexed contents and their total, on the thread that opens the snapshot."""


@dataclass(frozen=True, slots=True)
class Postings:
    """The occurrences of a term: chunk numbers of the snapshot, ascending, and the count in each."""

    chunks: NDArray[np.int32]
    counts: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The layout of a snapshot's chunks: `document_of[chunk]`; `first_chunk[document]`, with one more entry
    at the end; and `lengths[chunk]`, the number of terms in its body.
    """

    document_of: NDArray[np.int32]
    first_chunk: NDArray[np.int32]
    lengths: NDArray[np.float32]


class CodeSnapshot(Protocol):
    """The contents of a place at one moment. It does not change while it is open; any thread may read it.

    A document is a distinct content, so a file that occurs twice is searched once. Opaque files and files
    that are not indexed yet have a document without chunks.
    """

    @property
    def place(self) -> CodePlace: ...

    @property
    def files(self) -> Sequence[CodeFile]:
        """All files, sorted by path."""
        ...

    @property
    def status(self) -> IndexStatus: ...

    @property
    def chunks(self) -> ChunkLayout: ...

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        """Return the postings of each term that occurs; terms are in lower case."""
        ...

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        """Return the analyses without the terms of chunks. Documents that are not indexed are missing."""
        ...

    def text(self, path: str) -> str:
        """Return the content as it was when the snapshot was made.

        Raises `SourceChanged` if it is no longer available, and `KeyError` for an unknown path.
        """
        ...


class CodeIndex(Protocol):
    """Opens snapshots and indexes new contents. Several processes may use the index of one repository at
    once.
    """

    def open(
        self,
        place: CodePlace,
        *,
        seconds: float | None = None,
        progress: IndexProgress | None = None,
        cancelled: CancelSignal | None = None,
    ) -> AbstractContextManager[CodeSnapshot]:
        """Open a snapshot in which everything is indexed. After `seconds`, open a snapshot of the part that
        is indexed by then; its status has the numbers.

        A damaged or outdated index is rebuilt, with a note; an index that cannot be written is kept in
        memory. Raises `SourceMissing` if the directory or commit does not exist, and `Cancelled`.
        """
        ...
