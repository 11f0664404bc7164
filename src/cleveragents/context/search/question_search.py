"""Data that several strategies need about one question and one snapshot, computed once.

Strategies run in parallel and each receives only the snapshot. Without this cache, each would search the
index for the same words again. This module also maps the numbers of a snapshot to places: documents to paths,
chunks to lines.

Chunks that a question names get a higher score: those of a named function, and of the methods of a named
class. The confidence that a word is a name depends on its form (`camelCase`, called, dotted) and on its
position: a name in the title is the subject, while a name in code may be incidental.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.model.code import Field, FileAnalysis, kind_of
from cleveragents.context.model.code_terms import STOP_WORDS, words_of
from cleveragents.context.model.context import ContextFragment
from cleveragents.context.model.question import COMMON_WORDS, ParsedQuestion, queries_of, read_question
from cleveragents.context.search.bm25 import Bm25Table, Corpus, Occurrences, best, pooled
from cleveragents.context.search.path_words import PathEnds
from cleveragents.core.errors import Closed, SourceChanged

if TYPE_CHECKING:
    from cleveragents.context.search.bm25 import Scores

__all__ = [
    "MOST_CHUNKS",
    "MOST_FILES",
    "MOST_NAMES",
    "FileKind",
    "FoundPlaces",
    "QuestionNames",
    "QuestionSearch",
    "in_order",
    "is_compound",
    "named_chunk_scores",
    "names_of",
    "normal",
    "shared_search",
    "strengths",
]


T = TypeVar("T")
_MOST_CONTENDERS = 80
_MOST_TWINS = 5
_MOST_QUESTIONS = 2
_NAME_WEIGHT = 3.0

MOST_FILES = 100
"""Maximum number of files per signal; lower ranks have never been relevant."""
MOST_CHUNKS = 60
MOST_NAMES = 400

QuestionNames = dict[str, Counter[str]]
"""The possible names in each part of a question, with their counts."""

_COMMON = (
    "args bar baz bool cls data dict false float foo int key keys kwargs len list main name names none "
    "numpy object pandas print range self spam str test tests true type types value values"
)
_TOO_COMMON = frozenset(_COMMON.split())

_COMPOUND = re.compile(r"(?<=[^\W_])_|[a-z0-9][A-Z]|[A-Z]{2}[a-z]|^_\w{3}")
_CALLED = re.compile(r"(?<!\w)([^\W\d]\w{0,100}+)\(")
_CAPITAL = re.compile(r"[a-z,;'\"(]\s{1,3}([A-Z]\w{0,100}+)")
_MOST = 1.5
_BOOST = 1.5
_OF_CLASS = 0.5
_VARIABLE = 0.5


class FileKind:
    """The kinds of files, as `kind_of` returns them."""

    SOURCE = "source"
    TEST = "test"
    TEXT = "text"


class QuestionSearch:
    """The shared data of one question about one snapshot.

    Thread safety:
        Owner: `shared_search` makes it and drops it with the snapshot; the strategies of one answer share it.
        Lock: `_lock` (reentrant, because computing one part may need another) guards `_known`. It is held
            while a part is computed, so that no part is computed twice.
        Guarantee: each part is computed at most once, unless computing it raised an error.
    Cancel safety: a computed part is kept for the next caller.
    """

    def __init__(self, code: CodeSnapshot, question: ParsedQuestion) -> None:
        self._code = ref(
            code
        )  # a weak reference: this object lives as long as the snapshot and must not keep it alive
        self.question = question
        self._lock = threading.RLock()
        self._known: dict[object, object] = {}

    @property
    def code(self) -> CodeSnapshot:
        """The snapshot. It is still open, because all callers hold it open."""
        code = self._code()
        if code is None:
            raise Closed("the snapshot of the code index")
        return code

    @property
    def queries(self) -> dict[str, dict[str, float]]:
        return self.once("queries", lambda: queries_of(self.question))

    def once(self, key: object, work: Callable[[], T]) -> T:
        """Return the result of `work`, computed only the first time."""
        with self._lock:
            if key not in self._known:
                self._known[key] = work()
            return cast("T", self._known[key])

    # Locations

    @property
    def paths(self) -> dict[int, list[str]]:
        """The paths of each content; only the first few if there are many."""
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
        """Return the documents whose files are of this kind."""
        return {self.documents[path] for path in self.paths_of(kind)}

    def paths_of(self, kind: str) -> Sequence[str]:
        return self.once("kinds", self._sort_kinds)[kind]

    def _sort_kinds(self) -> dict[str, list[str]]:
        by_kind: dict[str, list[str]] = {FileKind.SOURCE: [], FileKind.TEST: [], FileKind.TEXT: []}
        for file in self.code.files:
            by_kind[kind_of(file.path)].append(file.path)
        return by_kind

    @property
    def ends(self) -> PathEnds:
        """The paths of source files, indexed by their last parts."""
        return self.once("ends", lambda: PathEnds(self.source_paths))

    @property
    def source_paths(self) -> Sequence[str]:
        return self.paths_of(FileKind.SOURCE)

    def text(self, path: str) -> str:
        """Return the text of a file; empty if it is no longer available.

        Read without the lock, because reading may hang.
        """
        try:
            return self.code.text(path)
        except (SourceChanged, KeyError):
            return ""

    # Matches of the question's words

    def corpus(self, kind: str) -> Corpus:
        return self.once(("corpus", kind), lambda: Corpus(self.code, self.documents_of(kind)))

    def found(self, kind: str, field: Field = Field.BODY) -> Occurrences:
        """Return the occurrences of all words of the question in files of this kind."""
        terms = self.once("terms", lambda: sorted({term for one in self.queries.values() for term in one}))
        # read once for all kinds, because reading takes most of the time
        postings = self.once(("postings", field), lambda: self.code.postings(field, terms))
        return self.once(("found", kind, field), lambda: self.corpus(kind).among(postings, terms))

    def table(self, kind: str, *, documents: bool) -> Bm25Table:
        """Return the BM25 table for words anywhere in files of this kind; words in names of definitions count
        more.
        """

        def weigh() -> Bm25Table:
            found = self.once(("joined", kind), lambda: self._joined(kind))
            return Bm25Table(self.corpus(kind), found, documents=documents, b=0.5 if documents else 0.6)

        return self.once(("table", kind, documents), weigh)

    def _joined(self, kind: str) -> Occurrences:
        return self.found(kind).joined(self.found(kind, Field.NAME), _NAME_WEIGHT)

    def chunk_scores(self, query: str, kind: str = FileKind.SOURCE) -> Scores:
        return self.once(
            ("chunks", kind, query), lambda: self.table(kind, documents=False).scores(self.queries[query])
        )

    def file_scores(self, query: str, kind: str = FileKind.SOURCE) -> Scores:
        return self.once(
            ("files", kind, query), lambda: self.table(kind, documents=True).scores(self.queries[query])
        )

    @property
    def likely(self) -> Scores:
        """The relevance of each source file by words alone, normalised so that the highest is 1."""

        def add() -> Scores:
            corpus = self.corpus(FileKind.SOURCE)
            total = normal(pooled(corpus, self.chunk_scores("weighed")))
            total = total + normal(self.file_scores("weighed")) + normal(self.file_scores("title"))
            return normal(total)

        return self.once("likely", add)

    @property
    def contenders(self) -> list[int]:
        """The most relevant source files, best first. Expensive checks are limited to these files."""
        return self.once("contenders", lambda: best(self.likely, _MOST_CONTENDERS))


def normal(scores: Scores) -> Scores:
    """Scale the scores so that the highest is 1."""
    highest = float(scores.max(initial=0.0))
    return scores / highest if highest > 0 else scores


_lock = threading.Lock()
_lookings: WeakKeyDictionary[CodeSnapshot, dict[str, QuestionSearch]] = WeakKeyDictionary()


def shared_search(code: CodeSnapshot, text: str) -> QuestionSearch:
    """Return the data that all strategies share for this question and snapshot."""
    question = read_question(text)
    with _lock:
        of_code = _lookings.setdefault(code, {})
        found = of_code.get(text)
        if found is None:
            if len(of_code) >= _MOST_QUESTIONS:  # guard: a snapshot with many questions keeps its size
                of_code.pop(next(iter(of_code)))
            found = of_code[text] = QuestionSearch(code, question)
        return found


class FoundPlaces:
    """Converts the findings of one strategy to fragments."""

    def __init__(self, look: QuestionSearch, strategy: str) -> None:
        self._look = look
        self._strategy = strategy

    def documents(self, signal: str, scores: Scores, most: int = MOST_FILES) -> list[ContextFragment]:
        """Return the documents with the highest scores, as whole files."""
        paths = self._look.paths
        return [
            ContextFragment(path, "", float(scores[document]), self._strategy, signal=signal)
            for document in best(scores, most)
            for path in paths[document]
        ]

    def chunks(self, signal: str, scores: Scores, most: int = MOST_CHUNKS) -> list[ContextFragment]:
        """Return the chunks with the highest scores, as lines of files."""
        code = self._look.code
        sought = code.chunks
        chosen = best(scores, most)
        analyses = code.analyses(sorted({int(sought.document_of[chunk]) for chunk in chosen}))
        fragments: list[ContextFragment] = []
        for chunk in chosen:
            document = int(sought.document_of[chunk])
            analysis = analyses.get(document)
            if analysis is None:
                continue
            span = analysis.chunks[chunk - int(sought.first_chunk[document])].span
            score = float(scores[chunk])
            fragments.extend(
                ContextFragment(path, "", score, self._strategy, span, signal)
                for path in self._look.paths[document]
            )
        return fragments

    def files(
        self, signal: str, scores: Mapping[str, float], most: int = MOST_FILES
    ) -> list[ContextFragment]:
        """Return files by path, best first."""
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:most]
        return [
            ContextFragment(path, "", float(score), self._strategy, signal=signal)
            for path, score in ranked
            if score > 0
        ]


def in_order(fragments: Iterable[ContextFragment]) -> list[ContextFragment]:
    """Interleave the fragments of all signals, the best of each signal first, so that a truncated list keeps
    some of each.
    """
    by_signal: dict[str, list[ContextFragment]] = {}
    for fragment in fragments:
        by_signal.setdefault(fragment.signal, []).append(fragment)
    columns = list(by_signal.values())
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def is_compound(name: str) -> bool:
    """Return whether a name consists of several words, which words of prose rarely do."""
    return bool(_COMPOUND.search(name if name.startswith("_") else name.strip("_")))


def names_of(question: ParsedQuestion) -> QuestionNames:
    """Return the possible names in each part of the question."""
    parts = {
        "title": question.title,
        "ticked": "\n".join(question.ticked),
        "prose": question.prose,
        "code": question.code,
        "trace": question.trace,
    }
    return {
        part: Counter(dict(Counter(filter(_is_name, words_of(text))).most_common(MOST_NAMES)))
        for part, text in parts.items()
    }


def _is_name(word: str) -> bool:
    lower = word.lower()
    return (
        len(word) > 2 and lower not in COMMON_WORDS and lower not in STOP_WORDS and lower not in _TOO_COMMON
    )


def strengths(question: ParsedQuestion, names: Mapping[str, Collection[str]]) -> dict[str, float]:
    """Return the confidence, from 0 to 1, that the question refers to each name; `names` are the names in
    each part of the question.
    """
    prose = f"{question.title}\n{question.prose}"
    said = f"{prose}\n{question.code}"
    called = frozenset(_CALLED.findall(said))
    dotted = frozenset(part for name in question.dotted for part in name.split("."))
    within = called | dotted | frozenset(_CAPITAL.findall(prose))
    found: dict[str, float] = {}
    for part in ("title", "ticked", "prose", "code", "trace"):
        for name in names[part]:
            if name not in found:
                found[name] = _form(name, names, within) * _PLACES[part]
    return {name: strength for name, strength in found.items() if strength > 0}


_PLACES = {"title": 1.0, "ticked": 0.7, "prose": 0.7, "code": 0.4, "trace": 0.2}


def _form(name: str, names: Mapping[str, Collection[str]], within: frozenset[str]) -> float:
    if name in names["ticked"] or is_compound(name):
        return 1.0
    if name in within:
        return 0.7
    if name in names["title"]:
        return 0.5 if name[0].isupper() else 0.3
    return 0.0


def named_chunk_scores(
    look: QuestionSearch, strength: Mapping[str, float], analyses: Mapping[int, FileAnalysis]
) -> Scores:
    """Return the scores of all chunks, raised for chunks that the question names."""
    scores = look.chunk_scores("weighed").copy()
    first_chunk = look.code.chunks.first_chunk
    for document, analysis in analyses.items():
        first = int(first_chunk[document])
        for position, chunk in enumerate(analysis.chunks):
            if chunk.definition is not None:
                named = _named(analysis, chunk.definition, strength)
                if named > 0:
                    scores[first + position] *= 1 + _BOOST * min(named, _MOST)
    return scores


def _named(analysis: FileAnalysis, position: int, strength: Mapping[str, float]) -> float:
    definition = analysis.definitions[position]
    named = strength.get(definition.name, 0.0) * (_VARIABLE if definition.kind == "variable" else 1.0)
    if definition.parent is not None:
        parent = analysis.definitions[definition.parent]
        if parent.kind == "class":
            named += _OF_CLASS * strength.get(parent.name, 0.0)
    return named
