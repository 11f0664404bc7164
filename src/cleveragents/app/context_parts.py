"""The components of the context pipeline: index, history, strategies, tokenizer and executors.

The executors belong to the process, because all callers share breakers and threads. The other components are
stateless and built on request.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.context.executor import ParallelStrategyExecutor
    from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
    from cleveragents.context.pipeline.assembly import DefaultParts
    from cleveragents.context.pipeline.pipeline import ContextPipeline
    from cleveragents.context.search.git_history import GitCommitHistory
    from cleveragents.models.ports import Model

__all__ = ["ContextParts"]


class ContextParts:
    """The context pipeline of one process. Safe in any thread."""

    def __init__(self, container: Container) -> None:
        self._container = container

    @property
    def index(self) -> SqliteCodeIndex:
        """The code index of all repositories, below the state directory."""
        from cleveragents.context.index.sqlite_code_index import Bounds, SqliteCodeIndex

        most = self._container.settings.context.index_megabytes << 20
        return SqliteCodeIndex(self._index_directory, bounds=Bounds(bytes=most))

    @property
    def history(self) -> GitCommitHistory:
        from cleveragents.context.search.git_history import GitCommitHistory

        return GitCommitHistory(self._index_directory)

    @property
    def pipeline(self) -> ContextPipeline:
        """Return a pipeline for a process with many requests, such as plans.

        It calls no model, because no plan has reserved the cost of the call.
        """
        return self._pipeline(self._container.strategies, None)

    @property
    def lone_pipeline(self) -> ContextPipeline:
        """Return a pipeline for a single request: with the configured model, and without events.

        A breaker opens only after several failures of a strategy, and in a single request each strategy runs
        once. So there are no breaker events to store, and no database is opened.
        """
        name = self._container.settings.context.rerank_model
        rerank: Callable[[], Model] | None = None
        if name:
            models = self._container.models
            models.facts(name)  # reports an unknown model before any work
            rerank = partial(models.get, name)
        return self._pipeline(self._container.quiet_strategies, rerank)

    @property
    def _index_directory(self) -> Path:
        return self._container.state_directory / "index"

    def _pipeline(
        self, executor: ParallelStrategyExecutor, rerank: Callable[[], Model] | None
    ) -> ContextPipeline:
        from cleveragents.context.part_registry import replaced_parts
        from cleveragents.context.pipeline.checks import CustomParts
        from cleveragents.context.pipeline.pipeline import ContextPipeline, PipelineParts
        from cleveragents.context.search.tokenizers import tokenizer
        from cleveragents.context.strategy_registry import StrategyRegistry

        settings = self._container.settings.context
        registry = StrategyRegistry()
        offers = registry.offers()
        count, estimated = tokenizer(settings.tokenizer, os.environ)
        off = self._switched_off()
        unknown = [
            f"context.strategies_off names an unknown strategy: {name}"
            for name in off
            if name not in registry.names()
        ]
        parts = PipelineParts(
            index=self.index,
            history=self.history,
            strategies=offers,
            executor=executor,
            steps=self._container.context_steps,
            replaced=CustomParts(executor, replaced_parts(settings)),
            count=count,
            own=self._own_parts(off),
            rerank=rerank,
            notes=(*registry.notes(), *unknown, *([estimated] if estimated else [])),
        )
        return ContextPipeline(parts, self._container.clock.monotonic)

    def _own_parts(self, off: tuple[str, ...]) -> DefaultParts:
        from cleveragents.context.pipeline.assembly import AllStrategies, DefaultParts
        from cleveragents.context.pipeline.ranking import FusedScorer
        from cleveragents.context.search.fusion_weights import fusion_weights

        return DefaultParts(selector=AllStrategies(off), scorer=FusedScorer(fusion_weights()))

    def _switched_off(self) -> tuple[str, ...]:
        names = self._container.settings.context.strategies_off.split(",")
        return tuple(name.strip() for name in names if name.strip())
