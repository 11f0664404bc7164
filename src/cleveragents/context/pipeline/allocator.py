"""How the tokens of an answer are divided."""

from __future__ import annotations

from typing import Final

from cleveragents.context.model.context_answer import Shares

__all__ = ["FixedShares"]

_PREAMBLE: Final = (20, 150)
_SKELETON: Final = (8, 800)
"""Each: one part in so many, and at most so many tokens. What they leave goes to the fragments."""


class FixedShares:
    """`BudgetAllocator`: the shape of a repository is worth an eighth of a small answer, and never more
    than a page; the rest is for code. Immutable."""

    def allocate(self, budget: int) -> Shares:
        preamble = _share(budget, *_PREAMBLE)
        skeleton = _share(budget, *_SKELETON)
        return Shares(preamble, skeleton, budget - preamble - skeleton)


def _share(budget: int, one_in: int, most: int) -> int:
    return max(0, min(budget // one_in, most))
