"""Chunks that a question names count more: those of a function that it speaks of, and of a class's methods.

How sure it is that a word is meant as a name goes by its form (`camelCase`, called, dotted) and by where it
stands: what a title names is what the question is about, what code uses may be by the way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from cleveragents.context.model.code import FileAnalysis
from cleveragents.context.model.question import Question
from cleveragents.context.search.looking import Looking

if TYPE_CHECKING:
    from cleveragents.context.search.bm25 import Scores

__all__ = ["is_compound", "named_chunk_scores", "strengths"]

_COMPOUND = re.compile(r"(?<=[^\W_])_|[a-z0-9][A-Z]|[A-Z]{2}[a-z]|^_\w{3}")
_CALLED = re.compile(r"(?<!\w)([^\W\d]\w{0,100}+)\(")
_CAPITAL = re.compile(r"[a-z,;'\"(]\s{1,3}([A-Z]\w{0,100}+)")
_MOST = 1.5
_BOOST = 1.5
_OF_CLASS = 0.5
_VARIABLE = 0.5


def is_compound(name: str) -> bool:
    """Whether it is made of several words, which hardly any word of prose is."""
    return bool(_COMPOUND.search(name if name.startswith("_") else name.strip("_")))


def strengths(question: Question, names: Mapping[str, Collection[str]]) -> dict[str, float]:
    """How sure it is of each name that it is meant, from 0 to 1; `names` are those of each part."""
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
    look: Looking, strength: Mapping[str, float], analyses: Mapping[int, FileAnalysis]
) -> Scores:
    """The scores of all chunks, those that are named being raised."""
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
