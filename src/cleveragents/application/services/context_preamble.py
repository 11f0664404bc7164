"""What precedes the fragments: what they are, and which files matter most."""

from __future__ import annotations

from typing import Final

from cleveragents.application.ports.context_parts import CountTokens
from cleveragents.domain.context_answer import Ranking

__all__ = ["ShortPreamble"]

_WHAT: Final = (
    "Context found for the question, the best file first. A heading names a file and its lines; what is "
    "shown in part says so (names, signatures, outline)."
)
_FILES: Final = 5


class ShortPreamble:
    """`Preamble`: as much of it as fits, whole sentences only. Immutable."""

    def write(self, question: str, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        paths = [place.path for place in ranking.files[:_FILES]]
        if not paths and not ranking.places:
            return _fitting(["Nothing was found for the question."], tokens, count)
        best = f"Most likely: {', '.join(paths)}." if paths else ""
        return _fitting([f"{_WHAT} {best}".strip(), best, _WHAT], tokens, count)


def _fitting(texts: list[str], tokens: int, count: CountTokens) -> str:
    return next((text for text in texts if text and count(text) <= tokens), "")
