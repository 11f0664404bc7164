"""What several strategies need to know of one question and one snapshot, worked out once.

Strategies run at the same time and each is given the snapshot alone. Without this each would search the index
for the same words again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.model.code import Field
from cleveragents.context.model.code_paths import kind_of
from cleveragents.context.model.question import Question, read_question
from cleveragents.context.model.question_queries import queries_of
from cleveragents.context.search.bm25 import Bm25Table, Corpus, Occurrences, best, pooled
from cleveragents.context.search.path_ends import PathEnds
from cleveragents.core.errors import Closed, SourceChanged

if TYPE_CHECKING:
    from cleveragents.context.search.bm25 import Scores

__all__ = ["Kind", "Looking", "looking"]

T = TypeVar("T")

_MOST_CONTENDERS = 80
_MOST_TWINS = 5
_MOST_QUESTIONS = 2
_NAME_WEIGHT = 3.0


class Kind:
    """What a file is for, as `kind_of` says it."""

    SOURCE = "source"
    TEST = "test"
    TEXT = "text"


class Looking:
    """One question put to one snapshot.

    Thread safety:
        Owner: `looking` makes it, and forgets it with the snapshot; the strategies of one answer share it.
        Lock: `_lock` (reentrant, because one part needs another) guards `_known`, and is held while a part is
            worked out, so that nobody works it out twice.
        Guarantee: each part is worked out at most once, unless that raised.
    Cancel safety: what is worked out is kept for whoever asks next.
    """

    def __init__(self, code: CodeSnapshot, question: Question) -> None:
        self._code = ref(code)  # kept as long as the snapshot, it must not keep that
        self.question = question
        self._lock = threading.RLock()
        self._known: dict[object, object] = {}

    @property
    def code(self) -> CodeSnapshot:
        """Whoever asks has the snapshot, so it is there."""
        code = self._code()
        if code is None:
            raise Closed("the snapshot of the code index")
        return code

    @property
    def queries(self) -> dict[str, dict[str, float]]:
        return self.once("queries", lambda: queries_of(self.question))

    def once(self, key: object, work: Callable[[], T]) -> T:
        """What `work` gives, the first time."""
        with self._lock:
            if key not in self._known:
                self._known[key] = work()
            return cast("T", self._known[key])

    # Where things are

    @property
    def paths(self) -> dict[int, list[str]]:
        """Where each content is; the first few places if it is in many."""
        return self.once("paths", self._find_paths)

    def _find_paths(self) -> dict[int, list[str]]:
        paths: dict[int, list[str]] = {}
        for file in self.code.files:
            twins = paths.setdefault(file.document, [])
            if len(twins) < _MOST_TWINS:
                twins.append(file.path)
        return paths

    @property
    def documents(self) -> dict[str, int]:
        return self.once("documents", lambda: {file.path: file.document for file in self.code.files})

    def documents_of(self, kind: str) -> Collection[int]:
        """The contents that are of this kind, wherever they are."""
        return {self.documents[path] for path in self.paths_of(kind)}

    def paths_of(self, kind: str) -> Sequence[str]:
        return self.once("kinds", self._sort_kinds)[kind]

    def _sort_kinds(self) -> dict[str, list[str]]:
        by_kind: dict[str, list[str]] = {Kind.SOURCE: [], Kind.TEST: [], Kind.TEXT: []}
        for file in self.code.files:
            by_kind[kind_of(file.path)].append(file.path)
        return by_kind

    @property
    def ends(self) -> PathEnds:
        """The paths of source files, by their ends."""
        return self.once("ends", lambda: PathEnds(self.source_paths))

    @property
    def source_paths(self) -> Sequence[str]:
        return self.paths_of(Kind.SOURCE)

    def text(self, path: str) -> str:
        """Empty if it is to be had no more. Read without the lock: a file may hang, and others need none."""
        try:
            return self.code.text(path)
        except (SourceChanged, KeyError):
            return ""

    # What the words of the question find

    def corpus(self, kind: str) -> Corpus:
        return self.once(("corpus", kind), lambda: Corpus(self.code, self.documents_of(kind)))

    def found(self, kind: str, field: Field = Field.BODY) -> Occurrences:
        """Where any word of the question stands."""
        terms = self.once("terms", lambda: sorted({term for one in self.queries.values() for term in one}))
        # read once for all kinds: reading is what takes the time
        postings = self.once(("postings", field), lambda: self.code.postings(field, terms))
        return self.once(("found", kind, field), lambda: self.corpus(kind).among(postings, terms))

    def table(self, kind: str, *, documents: bool) -> Bm25Table:
        """Words anywhere, those in names of definitions counting more."""

        def weigh() -> Bm25Table:
            found = self.once(("joined", kind), lambda: self._joined(kind))
            return Bm25Table(self.corpus(kind), found, documents=documents, b=0.5 if documents else 0.6)

        return self.once(("table", kind, documents), weigh)

    def _joined(self, kind: str) -> Occurrences:
        return self.found(kind).joined(self.found(kind, Field.NAME), _NAME_WEIGHT)

    def chunk_scores(self, query: str, kind: str = Kind.SOURCE) -> Scores:
        return self.once(
            ("chunks", kind, query), lambda: self.table(kind, documents=False).scores(self.queries[query])
        )

    def file_scores(self, query: str, kind: str = Kind.SOURCE) -> Scores:
        return self.once(
            ("files", kind, query), lambda: self.table(kind, documents=True).scores(self.queries[query])
        )

    @property
    def likely(self) -> Scores:
        """How likely each source is meant, by words alone; the likeliest has 1."""

        def add() -> Scores:
            corpus = self.corpus(Kind.SOURCE)
            total = normal(pooled(corpus, self.chunk_scores("weighed")))
            total = total + normal(self.file_scores("weighed")) + normal(self.file_scores("title"))
            return normal(total)

        return self.once("likely", add)

    @property
    def contenders(self) -> list[int]:
        """The likeliest sources, best first: what is dear to look at is looked at in these only."""
        return self.once("contenders", lambda: best(self.likely, _MOST_CONTENDERS))


def normal(scores: Scores) -> Scores:
    """The same scores, the highest being 1."""
    highest = float(scores.max(initial=0.0))
    return scores / highest if highest > 0 else scores


_lock = threading.Lock()
_lookings: WeakKeyDictionary[CodeSnapshot, dict[str, Looking]] = WeakKeyDictionary()


def looking(code: CodeSnapshot, text: str) -> Looking:
    """The one that all strategies share who are asked this of this snapshot."""
    question = read_question(text)
    with _lock:
        of_code = _lookings.setdefault(code, {})
        found = of_code.get(text)
        if found is None:
            if len(of_code) >= _MOST_QUESTIONS:  # guard: a snapshot that is asked much keeps its size
                of_code.pop(next(iter(of_code)))
            found = of_code[text] = Looking(code, question)
        return found
