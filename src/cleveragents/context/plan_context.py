"""The context of one plan: code that is given to each actor at its start, and code that actors request later.

A plan has a total limit of context tokens, not counting the context at the start. The tokens used are read
from the plan's records, so a resumed plan continues with the tokens that it had left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cleveragents.context.code_index import CodePlace
from cleveragents.context.context_parts import CommitHistory, PastCommit
from cleveragents.context.model.context import ContextAnswer
from cleveragents.context.pipeline.assembly import UNRELATED
from cleveragents.context.pipeline.pipeline import ContextPipeline
from cleveragents.context.query import LEAST_TOKENS, ContextQuery
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.decision import Decision
from cleveragents.core.errors import QuestionRefused, SourceMissing
from cleveragents.core.tool import ToolCall

__all__ = ["REQUEST_CONTEXT", "ContextLimits", "PlanContext", "tokens_given"]

REQUEST_CONTEXT: Final = "request_context"
"""The tool whose answers count against the limit."""

_MUCH: Final = 500


@dataclass(frozen=True, slots=True)
class ContextLimits:
    """The limits of a plan's context: the tokens at the start of an actor, the total tokens on request, and
    the seconds of a search. `index_seconds` applies to a repository that is not indexed yet.
    """

    starting_tokens: int
    plan_tokens: int
    deadline_seconds: float
    index_seconds: float


@dataclass(frozen=True, slots=True)
class PlanContext:
    """Answers the questions of one plan about its sandbox.

    Any thread may ask. The remaining tokens are shared, so the calls of actors run one after the other, as
    all calls of a plan do.
    """

    pipeline: ContextPipeline
    history: CommitHistory
    place: CodePlace
    terms: ContextLimits
    decisions: Callable[[], Sequence[Decision]]
    calls: Callable[[], Iterable[ToolCall]]
    stop: CancelSignal
    say: Callable[[str], None]

    def ask(self, question: str, tokens: int) -> ContextAnswer:
        """Answer a question. Raises `QuestionRefused`, and `SourceMissing` if the sandbox is gone."""
        return self.pipeline.ask(
            ContextQuery(
                question=question,
                place=self.place,
                budget_tokens=tokens,
                deadline_seconds=self.terms.deadline_seconds,
                index_seconds=self.terms.index_seconds,
                decisions=self.decisions(),
                cancelled=self.stop,
                progress=_Once(self.say).hear,
            )
        )

    def at_the_start(self, question: str, tokens: int) -> str:
        """Return the context for an actor's start. A failure is reported and does not prevent the start."""
        most = min(tokens, self.terms.starting_tokens)
        if most < LEAST_TOKENS:
            return ""
        try:
            answer = self.ask(question, most)
        except (QuestionRefused, SourceMissing) as refused:
            self.say(f"no context was gathered: {refused}")
            return ""
        for note in answer.notes:
            if note != UNRELATED:  # a goal may ask for something new
                self.say(f"context: {note}")
        return answer.text if answer.fragments else ""

    def commits(self, limit: int) -> Sequence[PastCommit]:
        """Return the latest commits, newest first."""
        return self.history.commits(self.place, limit=limit)

    @property
    def given(self) -> int:
        """The number of tokens that the plan has requested and received."""
        return tokens_given(self.calls())

    @property
    def left(self) -> int:
        return max(0, self.terms.plan_tokens - self.given)


class _Once:
    """A progress listener that reports once, if many files need indexing, to explain the wait. Used by one
    search.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = False

    def hear(self, done: int, total: int) -> None:
        if not self._said and total >= _MUCH:
            self._said = True
            self._say(f"indexing {total:,} files of the repository; this happens once")


def tokens_given(calls: Iterable[ToolCall]) -> int:
    """Return the number of context tokens in the results of these calls."""
    results = (call.result for call in calls if call.tool == REQUEST_CONTEXT)
    counts = (result.get("tokens") for result in results if isinstance(result, Mapping))
    return sum(count for count in counts if isinstance(count, int))
