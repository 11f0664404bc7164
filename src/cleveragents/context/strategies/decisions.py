"""Active decisions of the plan that asks the question, as far as they match the question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from cleveragents.context.context_parts import StrategyGround
from cleveragents.context.model.code_terms import terms_of
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.model.question import read_question
from cleveragents.context.strategy import CancelSignal, ContextStrategy
from cleveragents.core.decision import Decision, DecisionState

__all__ = ["DecisionsStrategy", "make"]

_MOST_DECISIONS = 500
_MOST_CHARACTERS = 4_000
_MOST_FOUND = 20


class DecisionsStrategy:
    """Finds decisions of the plan. Immutable: it holds the decisions as they were when it was created."""

    name = "decisions"

    def __init__(self, ground: StrategyGround) -> None:
        self._decisions = tuple(
            decision for decision in ground.decisions if decision.state is DecisionState.ACTIVE
        )[-_MOST_DECISIONS:]

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        asked = Counter(terms_of(read_question(request.question).text))
        texts = [_text(decision) for decision in self._decisions]
        words = [frozenset(terms_of(text)) for text in texts]
        holders = Counter(term for terms in words for term in terms)
        found: list[ContextFragment] = []
        for decision, text, terms in zip(self._decisions, texts, words, strict=True):
            if cancelled.is_cancelled:
                break
            common = [term for term in terms if term in asked]
            score = sum(math.log(1 + len(texts) / holders[term]) for term in common)
            if score > 0:
                score /= 1 + math.log(1 + len(terms))
                found.append(ContextFragment(f"decision:{decision.number}", text, score, self.name))
        return sorted(found, key=lambda fragment: -fragment.score)[:_MOST_FOUND]


def _text(decision: Decision) -> str:
    made = decision.made
    lines = [f"Decided: {made.question}", f"Choice: {made.choice}"]
    if made.rationale:
        lines.append(f"Why: {made.rationale}")
    lines += [f"Not: {other.choice} ({other.reason})" for other in made.alternatives if other.reason]
    return "\n".join(lines)[:_MOST_CHARACTERS]


def make(ground: StrategyGround) -> ContextStrategy:
    return DecisionsStrategy(ground)
