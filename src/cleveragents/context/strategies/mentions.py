"""Explicit mentions in the question: paths, stack frames, modules and error messages.

A path in a question is seldom the path in the repository: it is the path of an installed package, or only its
end. So paths are compared from their ends, and the longest agreement wins. An error message is usually a
string literal with placeholders in the code, so the strategy looks for the chunk whose literals cover most of
the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code import Field, LineSpan
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.model.question import ParsedQuestion, TraceFrame
from cleveragents.context.search.bm25 import Bm25Table, pooled
from cleveragents.context.search.path_words import PathEnds, installed
from cleveragents.context.search.question_search import (
    FileKind,
    FoundPlaces,
    QuestionSearch,
    in_order,
    shared_search,
)
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["MentionsStrategy", "make"]

_MOST_FRAMES = 100
_MOST_MENTIONS = 200
_MOST_LITERALS = 100
_AROUND = 15
"""Lines on either side of the line that a frame names."""

_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]{2,40}")
_CODED = re.compile(r"\b(?:\w{1,40}\.)?[A-Z]{1,3}\d{3,4}\b")


class MentionsStrategy:
    """Finds code that the question mentions. Any thread may use it: it holds only the snapshot, which any
    thread may read.
    """

    name = "mentions"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = shared_search(self._code, request.question)
        places = FoundPlaces(look, self.name)
        fragments = self._named(look, places)
        if not cancelled.is_cancelled:
            fragments += _literals(look, places)
        if not cancelled.is_cancelled:
            fragments += _messages(look, places)
        return in_order(fragments)

    def _named(self, look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
        question = look.question
        everywhere = PathEnds(file.path for file in self._code.files) if question.paths else look.ends
        meant = [
            path
            for frame in question.frames[-_MOST_FRAMES:]
            if (path := look.ends.one(installed(frame.path))) is not None
        ]
        innermost = dict.fromkeys(reversed(meant))
        return [
            *places.files("path", _paths(everywhere, question.paths[:_MOST_MENTIONS])),
            *places.files("path_title", _paths(everywhere, _in_title(question))),
            *places.files("module", _modules(look.ends, question)),
            *places.files("frame", {path: 0.8**depth for depth, path in enumerate(innermost)}),
            *places.files("frame_last", dict.fromkeys(meant[-1:], 1.0)),
            *self._lines(look, question.frames[-_MOST_FRAMES:]),
        ]

    def _lines(self, look: QuestionSearch, frames: Sequence[TraceFrame]) -> list[ContextFragment]:
        """Return the lines of the last frames; the innermost scores highest."""
        found: list[ContextFragment] = []
        for distance, frame in enumerate(reversed(frames)):
            path = look.ends.one(installed(frame.path)) if frame.line else None
            if path is None:
                continue
            document = look.documents[path]
            analysis = self._code.analyses([document]).get(document)
            if analysis is not None and frame.line <= analysis.lines:
                span = LineSpan(max(1, frame.line - _AROUND), min(analysis.lines, frame.line + _AROUND))
                found.append(ContextFragment(path, "", 1 / (1 + distance), self.name, span, "line"))
        return found


def _paths(ends: PathEnds, mentions: Iterable[str]) -> dict[str, float]:
    """Score the files that mentions may refer to. An ambiguous mention adds less to each score."""
    scores: dict[str, float] = {}
    for mention in mentions:
        meant = ends.meant(installed(mention))
        for path in meant:
            scores[path] = max(scores.get(path, 0.0), (1.0 if "/" in mention else 0.6) / len(meant))
    return scores


def _in_title(question: ParsedQuestion) -> list[str]:
    """Return the paths in the title, which the question is probably about."""
    return [path for path in question.paths[:_MOST_MENTIONS] if path in question.title]


def _modules(ends: PathEnds, question: ParsedQuestion) -> dict[str, float]:
    """Score the files that dotted names refer to; a package counts less than a module."""
    scores: dict[str, float] = {}
    for name in question.dotted[:_MOST_MENTIONS]:
        for path, share in ends.module(name).items():
            worth = share * (0.5 if path.endswith("__init__.py") else 1.0)
            scores[path] = max(scores.get(path, 0.0), worth)
    return scores


def _literals(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    """Score files with string literals that the question quotes: options, keys, codes."""
    question = look.question
    quotes = (*question.quoted, *_OPTION.findall(question.text), *_CODED.findall(question.text))
    wholes = {
        list(terms_of(quote))[-1]
        for quote in quotes[:_MOST_LITERALS]
        if " " not in quote and len(quote) > 2 and terms_of(quote)
    }
    corpus = look.corpus(FileKind.SOURCE)
    found = corpus.find(look.code, Field.STRING, sorted(wholes))
    documents = corpus.document_of[found.chunk].tolist()
    holders: dict[int, set[int]] = {}
    for term, document in zip(found.term.tolist(), documents, strict=True):
        holders.setdefault(term, set()).add(document)
    scores: dict[str, float] = {}
    for held in holders.values():
        for path in (path for document in held for path in look.paths[document]):
            scores[path] = scores.get(path, 0.0) + 1 / len(held)
    return places.files("literal", scores)


def _messages(look: QuestionSearch, places: FoundPlaces) -> list[ContextFragment]:
    if not look.queries["errors"]:
        return []
    corpus = look.corpus(FileKind.SOURCE)
    table = Bm25Table(corpus, look.found(FileKind.SOURCE, Field.STRING), documents=False, b=0.3)
    scores = table.coverage(look.queries["errors"])
    return [
        *places.documents("message", pooled(corpus, scores, (1.0,))),
        *places.chunks("message_place", scores, most=15),
    ]


def make(ground: StrategyGround) -> ContextStrategy:
    return MentionsStrategy(ground)
