"""An answer from nothing but what is in memory: which files the strategies named, by path alone.

It is given when putting a better one together failed or took too long; so it reads nothing, waits for
nothing, and counts tokens by bytes, which no tokenizer exceeds.
"""

from __future__ import annotations

from typing import Final

from cleveragents.context.model.context import StrategyReport
from cleveragents.context.model.context_answer import ContextAnswer, Depth, PackedFragment, Ranking, Rendering
from cleveragents.context.pipeline.assembly import Task
from cleveragents.context.pipeline.deduplicator import MergedPlaces
from cleveragents.context.pipeline.fitting import byte_bound
from cleveragents.context.pipeline.ranking import plain_ranking
from cleveragents.context.pipeline.renderings import printable

__all__ = ["bare_answer"]

_MOST_FILES: Final = 50


def bare_answer(task: Task, strategies: tuple[StrategyReport, ...], ranking: Ranking | None) -> ContextAnswer:
    """Of the ranking as far as it got, or else of one by what the strategies said."""
    if ranking is None:
        named = [
            fragment for report in strategies for fragment in report.fragments if fragment.path in task.paths
        ]
        ranking = plain_ranking(MergedPlaces().merge(named))
    fragments: list[PackedFragment] = []
    spent = 0
    for place in ranking.files[:_MOST_FILES] if task.with_fragments else ():
        text = f"### {printable(place.path)}"
        tokens = byte_bound(text)
        if spent + tokens + 1 > task.budget:  # guard: within the budget whoever counts
            break
        spent += tokens + 1
        fragments.append(PackedFragment(place, Rendering(Depth.PATH, text, tokens, place.score)))
    return ContextAnswer(
        files=ranking.files,
        fragments=tuple(fragments),
        strategies=strategies,
        preamble="",
        skeleton="",
        tokens=spent,
        budget=task.budget,
        seconds=0.0,
    )
