"""A strategy that is made when it is run, on the thread that runs it, and holds the code while it looks.

Making one is foreign code too; and one that was left behind at its deadline may still be reading when the
answer is long gone, so the code stays open until it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from cleveragents.context.context_parts import CommitHistory, MakeStrategy, StrategyGround
from cleveragents.context.model.context import ContextFragment, ContextRequest
from cleveragents.context.pipeline.opening import HeldSnapshot
from cleveragents.context.strategy import CancelSignal
from cleveragents.core.decision import Decision

__all__ = ["OfferedStrategy"]


class OfferedStrategy:
    """`ContextStrategy` by the name under which it is offered. Any thread may run it: it keeps nothing."""

    def __init__(
        self,
        name: str,
        make: MakeStrategy,
        held: HeldSnapshot,
        history: CommitHistory,
        decisions: Sequence[Decision],
    ) -> None:
        self.name = name
        self._make = make
        self._held = held
        self._history = history
        self._decisions = decisions

    def retrieve(self, request: ContextRequest, cancelled: CancelSignal) -> Sequence[ContextFragment]:
        # The executor takes as much as it wants of any iterable, and drops it afterwards.
        return cast("Sequence[ContextFragment]", self._found(request, cancelled))

    def _found(self, request: ContextRequest, cancelled: CancelSignal) -> Iterator[ContextFragment]:
        with self._held.held() as code:  # guard: a straggler's code is not closed under it
            ground = StrategyGround(code, self._history, self._decisions)
            yield from self._make(ground).retrieve(request, cancelled)
