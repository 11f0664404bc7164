"""What precedes the fragments: what they are, and which files matter most."""

from __future__ import annotations

from typing import Final

from cleveragents.context.context_parts import CountTokens
from cleveragents.context.model.context_answer import Ranking
from cleveragents.context.pipeline.renderings import printable

__all__ = ["ShortPreamble"]

_WHAT: Final = (
    "Context for the question, the best file first; names, signatures or an outline stand for the rest."
)
_FILES: Final = (5, 3, 1)


class ShortPreamble:
    """`Preamble`: as much of it as fits, whole sentences only. Immutable."""

    def write(self, question: str, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        if not ranking.files and not ranking.places:
            return _fitting(["Nothing was found for the question."], tokens, count)
        paths = [printable(place.path) for place in ranking.files]
        texts = [f"{_WHAT} Most likely: {', '.join(paths[:many])}." for many in _FILES] if paths else []
        return _fitting([*texts, _WHAT], tokens, count)


def _fitting(texts: list[str], tokens: int, count: CountTokens) -> str:
    return next((text for text in texts if count(text) <= tokens), "")
