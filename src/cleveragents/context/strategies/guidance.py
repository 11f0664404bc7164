"""Documentation of the repository: AGENTS.md, README and other documents."""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code import CodeFile, is_code, is_documentation
from cleveragents.context.model.code_terms import words_of
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.search.question_search import FileKind, FoundPlaces, in_order, shared_search
from cleveragents.context.strategy import CancelSignal, ContextStrategy

__all__ = ["GuidanceStrategy", "make"]

_MOST_DOCUMENTS = 30
_STANDING = {"agents.md": 1.0, "claude.md": 0.8, "contributing.md": 0.5, "readme.md": 0.4, "readme.rst": 0.4}


class GuidanceStrategy:
    """Finds documentation. Any thread may use it: it holds only the snapshot, which any thread may read."""

    name = "guidance"

    def __init__(self, ground: StrategyGround) -> None:
        self._code = ground.code

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        written = [
            file for file in self._code.files if is_documentation(file.path) and not is_code(file.path)
        ]
        if not written or cancelled.is_cancelled:
            return ()
        look = shared_search(self._code, request.question)
        scores = look.file_scores("weighed", kind=FileKind.TEXT)
        places = FoundPlaces(look, self.name)
        about = {file.path: float(scores[file.document]) for file in written}
        return in_order(
            [
                *places.files("standing", _standing(written)),
                *places.files("named", _named(written, look.question.title)),
                *places.files("documents", about, _MOST_DOCUMENTS),
            ]
        )


def _standing(written: Sequence[CodeFile]) -> dict[str, float]:
    """Score files that are meant for all contributors; those closer to the root score higher."""
    scores: dict[str, float] = {}
    for file in written:
        directory, _, name = file.path.rpartition("/")
        worth = _STANDING.get(name.lower(), 0.0)
        if worth:
            scores[file.path] = worth / (1 + (directory.count("/") + 1 if directory else 0))
    return dict(sorted(scores.items(), key=lambda item: -item[1])[:10])


def _named(written: Sequence[CodeFile], title: str) -> dict[str, float]:
    """Score files with a name in capitals that the title mentions, such as README or CHANGELOG."""
    words = frozenset(words_of(title.upper()))
    scores: dict[str, float] = {}
    for file in written:
        stem = file.path.rpartition("/")[2].partition(".")[0]
        if stem.isupper() and stem in words:
            scores[file.path] = 1 / (1 + file.path.count("/"))
    return scores


def make(ground: StrategyGround) -> ContextStrategy:
    return GuidanceStrategy(ground)
