"""Imports in the question, and imports of the most relevant files.

If a question contains `from package import Thing`, the re-exports of `Thing` are followed to the file that
defines it. Imports of a relevant file are relevant as well, but less so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.model.question import ParsedQuestion
from cleveragents.context.search.import_graph import ImportGraph, imported_by
from cleveragents.context.search.question_search import FoundPlaces, in_order, shared_search
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["ImportsStrategy", "make"]

_MOST_SEEDS = 10
_MOST_NAMES = 200

_FROM = re.compile(r"^\s{0,40}from\s{1,10}([\w.]{1,200})\s{1,10}import\s{1,10}([^\n#]{1,500})", re.MULTILINE)
_IMPORT = re.compile(r"^\s{0,40}import\s{1,10}([\w.]{1,200})(?:\s{1,10}as\s{1,10}(\w{1,100}))?", re.MULTILINE)


class ImportsStrategy:
    """Finds files by imports. Any thread may use it: it has only the snapshot, which any thread may read."""

    name = "imports"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        look = shared_search(self._code, request.question)
        graph = ImportGraph(look)
        places = FoundPlaces(look, self.name)
        taken, called = _bound(look.question)
        fragments = places.files("taken", _resolved(graph, taken, cancelled))
        fragments += places.files("named", _resolved(graph, _dotted(look.question, called), cancelled))
        if not cancelled.is_cancelled:
            likely = [(look.paths[one][0], float(look.likely[one])) for one in look.contenders[:_MOST_SEEDS]]
            fragments += places.files("neighbour", imported_by(graph, look, likely, cancelled))
        return in_order(fragments)


def _resolved(graph: ImportGraph, names: Sequence[str], cancelled: CancelSignal) -> dict[str, float]:
    """Score the files that define these names."""
    scores: dict[str, float] = {}
    for name in names[:_MOST_NAMES]:
        if cancelled.is_cancelled:
            break
        found = graph.dotted(name)
        for path in found:
            worth = 0.5 if path.endswith("__init__.py") else 1.0
            scores[path] = min(scores.get(path, 0.0) + worth / len(found), 3.0)
    return scores


def _bound(question: ParsedQuestion) -> tuple[list[str], dict[str, str]]:
    """Return the full names that the question's code imports, and the full names by local names."""
    code = f"{question.code}\n{question.prose}"
    taken: dict[str, None] = {}
    called: dict[str, str] = {}
    for module, items in _FROM.findall(code):
        for item in items.strip("() ").split(","):
            words = item.split()
            if words and words[0] != "*":
                taken[f"{module}.{words[0]}"] = None
                called[words[-1]] = f"{module}.{words[0]}"
    for module, alias in _IMPORT.findall(code):
        first = module.partition(".")[0]
        called[alias or first] = module if alias else first
    return list(taken), called


def _dotted(question: ParsedQuestion, called: dict[str, str]) -> list[str]:
    """Return the full dotted names of the question."""
    names: dict[str, None] = {}
    for name in question.dotted:
        first, dot, rest = name.partition(".")
        names[f"{called.get(first, first)}{dot}{rest}"] = None
    return list(names)


def make(ground: StrategyGround) -> ContextStrategy:
    return ImportsStrategy(ground)
