"""The worker's voice."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

__all__ = ["worker_log"]


def worker_log() -> FilteringBoundLogger:
    """A logger; structlog is imported at the first word, because a job's process mostly says none."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger("cleveragents.worker")
    return logger
