"""A code index in memory: files from a mapping, analysed like those of the real index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.context.code_index import (
    ChunkLayout,
    CodePlace,
    IndexProgress,
    IndexStatus,
    Postings,
)
from cleveragents.context.context_parts import PastCommit
from cleveragents.context.model.code import CodeFile, Field, FileAnalysis
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.errors import SourceMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FakeCodeIndex", "FakeCommitHistory", "MemorySnapshot"]

Analyse = Callable[[str, bytes], FileAnalysis]


class MemorySnapshot:
    """`CodeSnapshot` of texts by path. Safe in any thread: repeated computations give equal results."""

    def __init__(self, texts: Mapping[str, str], place: CodePlace, analyse: Analyse | None = None) -> None:
        self.place = place
        self._texts = dict(texts)
        self._analyse = analyse or _real_analysis()
        digests = {path: _digest(text) for path, text in self._texts.items()}
        self._documents = {digest: number for number, digest in enumerate(dict.fromkeys(digests.values()))}
        self.files: Sequence[CodeFile] = [
            CodeFile(path, digests[path], len(self._texts[path].encode()), self._documents[digests[path]])
            for path in sorted(self._texts)
        ]

    @property
    def status(self) -> IndexStatus:
        return IndexStatus(len(self.files), len(self.files))

    @property
    def chunks(self) -> ChunkLayout:
        import numpy as np

        document_of: list[int] = []
        first: list[int] = [0]
        lengths: list[float] = []
        for document in sorted(self._analysed):
            for chunk in self._analysed[document].chunks:
                document_of.append(document)
                lengths.append(float(sum(chunk.terms.get(Field.BODY, {}).values())))
            first.append(len(document_of))
        return ChunkLayout(
            np.asarray(document_of, dtype=np.int32),
            np.asarray(first, dtype=np.int32),
            np.asarray(lengths, dtype=np.float32),
        )

    def postings(self, field: Field, terms: Sequence[str]) -> Mapping[str, Postings]:
        chunks = [chunk for document in sorted(self._analysed) for chunk in self._analysed[document].chunks]
        found: dict[str, Postings] = {}
        for term in terms:
            where = {
                number: count
                for number, chunk in enumerate(chunks)
                if (count := chunk.terms.get(field, {}).get(term, 0))
            }
            if where:
                found[term] = Postings(*_columns(where))
        return found

    def analyses(self, documents: Sequence[int]) -> Mapping[int, FileAnalysis]:
        return {document: self._analysed[document] for document in documents if document in self._analysed}

    def text(self, path: str) -> str:
        return self._texts[path]

    @cached_property
    def _analysed(self) -> Mapping[int, FileAnalysis]:
        known: dict[int, FileAnalysis] = {}
        for file in self.files:
            if file.document not in known:
                known[file.document] = self._analyse(file.path, self._texts[file.path].encode())
        return known


class FakeCodeIndex:
    """`CodeIndex` of the same texts by path for every root. Raises `SourceMissing` for a root in `missing`.

    It counts opened and closed snapshots, so that a test finds those left open.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        *,
        missing: Sequence[Path] = (),
        analyse: Analyse | None = None,
    ) -> None:
        self.texts = texts
        self.opened = 0
        self.closed = 0
        self._missing = missing
        self._analyse = analyse

    @contextmanager
    def open(
        self,
        place: CodePlace,
        *,
        seconds: float | None = None,
        progress: IndexProgress | None = None,
        cancelled: CancelSignal | None = None,
    ) -> Iterator[MemorySnapshot]:
        if place.root in self._missing:
            raise SourceMissing(str(place.root), "there is no such directory")
        if progress is not None:
            progress(len(self.texts), len(self.texts))
        self.opened += 1
        try:
            yield MemorySnapshot(self.texts, place, self._analyse)
        finally:
            self.closed += 1


class FakeCommitHistory:
    """`CommitHistory` of given commits, newest first."""

    def __init__(self, commits: Sequence[PastCommit] = ()) -> None:
        self._commits = commits

    def commits(self, place: CodePlace, *, limit: int) -> Sequence[PastCommit]:
        return self._commits[:limit]


def _real_analysis() -> Analyse:
    from cleveragents.context.analysis.content import analyse

    return analyse


def _digest(text: str) -> str:
    data = text.encode()
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _columns(where: Mapping[int, int]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    import numpy as np

    return np.asarray(list(where), dtype=np.int32), np.asarray(list(where.values()), dtype=np.float32)
