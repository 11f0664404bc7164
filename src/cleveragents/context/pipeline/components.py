"""The parts of the pipeline that somebody replaced, and what is checked of their answers.

A replaced part is foreign code: it is loaded and called on another thread by a deadline, behind the
breaker, and what it gives is copied and checked there. `ReplacedParts.ask` is None whenever the pipeline
has to go on with its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cleveragents.context.context_parts import StrategyExecutor
from cleveragents.context.pipeline.steps import Deadline, run_step
from cleveragents.context.strategy import CancelSignal

__all__ = ["PARTS", "LoadPart", "ReplacedParts"]

T = TypeVar("T")

PARTS: Final = (
    "selector",
    "allocator",
    "executor",
    "deduplicator",
    "scorer",
    "depths",
    "packer",
    "orderer",
    "preamble",
    "skeleton",
)
"""The ten, by the names that settings and notes use."""

LoadPart = Callable[[], Any]
"""Gives the part; called on a thread that can be left behind, because importing is foreign code as well."""


@dataclass(frozen=True, slots=True)
class ReplacedParts:
    """Those of the ten that are not our own, and the executor on whose threads they run.

    A part gets at most half of the time that is left, so that our own can still take its place.
    """

    executor: StrategyExecutor
    loads: Mapping[str, LoadPart] = field(default_factory=dict)

    def ask(
        self,
        part: str,
        use: Callable[[Any], T],
        *,
        deadline: Deadline,
        note: Callable[[str], None],
        cancelled: CancelSignal | None = None,
    ) -> T | None:
        """What the part gives, as `use` calls and checks it; None where there is none, or where it failed,
        which is noted."""
        load = self.loads.get(part)
        if load is None:
            return None
        outcome = run_step(
            self.executor,
            f"context.{part}",
            lambda _: use(load()),
            seconds=deadline.left / 2,
            cancelled=cancelled,
        )
        if not outcome.given:  # guard: whatever it did, the pipeline goes on without it
            note(f"the configured {part} {outcome.problem}; our own was used")
            return None
        return outcome.given[0]
