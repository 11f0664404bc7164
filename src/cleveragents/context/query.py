"""What is asked of the context pipeline, and how much of it is taken."""

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
"""With less than this, hardly a path can be named."""

MOST_CHARACTERS: Final = 100_000
"""Of a question. Nobody writes as much; what is pasted says what it is about long before."""

_TAIL: Final = 20_000

DEADLINE_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextQuery:
    """A question about a place, and what the answer may cost.

    The answer is there after `deadline_seconds`; where `index_seconds` is given, indexing may take as long
    besides, and otherwise it has half of the deadline. `decisions` are those of the plan that asks,
    `progress` hears of the indexing, on another thread. Without `fragments` only files are ranked, which is
    quicker. `QuestionRefused`: there is no question, or too little to answer it with.
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
        if not self.asked.strip():  # what is not read is no question
            raise QuestionRefused("there is no question")
        if self.budget_tokens < LEAST_TOKENS:
            raise QuestionRefused(f"a budget is at least {LEAST_TOKENS} tokens, not {self.budget_tokens}")
        _check_seconds("a deadline", self.deadline_seconds)
        if self.index_seconds is not None:
            _check_seconds("the time for indexing", self.index_seconds)

    @property
    def asked(self) -> str:
        """The question, as much of it as is read: its beginning, and its end, where a traceback says what
        went wrong. Lone surrogates, which no encoder takes, are replaced."""
        text = self.question
        if self.is_shortened:
            text = f"{text[: MOST_CHARACTERS - _TAIL - 1]}\n{text[-_TAIL:]}"
        return text.encode("utf-8", "replace").decode("utf-8")

    @property
    def is_shortened(self) -> bool:
        return len(self.question) > MOST_CHARACTERS


def _check_seconds(what: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 < seconds <= _LONGEST_SECONDS):
        raise QuestionRefused(f"{what} is a time above 0, at most a day, not {seconds} seconds")
