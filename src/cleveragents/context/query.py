"""A query to the context pipeline and its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cleveragents.context.code_index import CodePlace, IndexProgress
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.decision import Decision
from cleveragents.core.errors import QuestionRefused

__all__ = ["DEADLINE_SECONDS", "LEAST_TOKENS", "MOST_CHARACTERS", "ContextQuery"]

LEAST_TOKENS: Final = 64
"""The smallest useful budget; below it, hardly a path fits."""

MOST_CHARACTERS: Final = 100_000
"""The longest question that is read in full. Pasted text shows its subject long before that."""

_TAIL: Final = 20_000

DEADLINE_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextQuery:
    """A question about a place, with the limits of its answer.

    The answer arrives within `deadline_seconds`. Indexing may take `index_seconds` in addition, or half of
    the deadline if `index_seconds` is None. `decisions` are the decisions of the plan that asks the question;
    `progress` reports the indexing, on another thread. Without `fragments`, only files are ranked, which is
    faster. Raises `QuestionRefused` if the question is empty or a limit is too small.
    """

    question: str
    place: CodePlace
    budget_tokens: int = 8000
    deadline_seconds: float = DEADLINE_SECONDS
    index_seconds: float | None = None
    decisions: Sequence[Decision] = ()
    fragments: bool = True
    progress: IndexProgress | None = None
    cancelled: CancelSignal | None = None

    def __post_init__(self) -> None:
        if not self.asked.strip():  # only the part that is read counts
            raise QuestionRefused("the question is empty")
        if self.budget_tokens < LEAST_TOKENS:
            raise QuestionRefused(
                f"the budget must be at least {LEAST_TOKENS} tokens, not {self.budget_tokens}"
            )
        _check_seconds("the deadline", self.deadline_seconds)
        if self.index_seconds is not None:
            _check_seconds("the indexing time", self.index_seconds)

    @property
    def asked(self) -> str:
        """The part of the question that is read: its start, and its end, where a traceback states the error.

        Lone surrogates, which cannot be encoded, are replaced.
        """
        text = self.question
        if self.is_shortened:
            text = f"{text[: MOST_CHARACTERS - _TAIL - 1]}\n{text[-_TAIL:]}"
        return text.encode("utf-8", "replace").decode("utf-8")

    @property
    def is_shortened(self) -> bool:
        return len(self.question) > MOST_CHARACTERS


def _check_seconds(what: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 < seconds <= _LONGEST_SECONDS):
        raise QuestionRefused(f"{what} must be greater than 0 and at most a day, not {seconds} seconds")
