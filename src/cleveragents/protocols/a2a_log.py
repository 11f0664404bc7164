"""What the SDK of the Agent2Agent protocol logs goes through our log: masked, with the request's number."""

from __future__ import annotations

import logging

import structlog

__all__ = ["keep_in_our_log"]

_LOGGERS = ("a2a", "jsonrpc")


class _ToOurLog(logging.Handler):
    """Hands records on. It quotes requests, which may hold anything; so nothing of it is printed as it is."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, "a2a.said", logger=record.name, said=record.getMessage(), exc_info=record.exc_info
        )


def keep_in_our_log() -> None:
    """From now on. Twice is harmless."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [_ToOurLog()]
        logger.propagate = False  # guard: what somebody sent is in no log as it was
