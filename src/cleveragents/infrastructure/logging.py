"""Logging: structlog to stderr, for people on a terminal and as JSON for programs, without secrets.

Nothing is configured on import; the process that owns stderr calls `configure_logging` once. Redaction is the
last step before rendering, so that what other processors add (a trace-back, say) passes it, too.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

from cleveragents.domain.redaction import redact, url_password

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

    from cleveragents.infrastructure.configuration.settings import Settings

__all__ = ["configure_logging"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logging(settings: Settings) -> None:
    """From now on this process logs to stderr as the settings say."""
    import structlog

    password = url_password(settings.database.url)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            redactor((password,) if password else ()),
            _renderer(settings.log.format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.log.level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def redactor(secrets: Collection[str]) -> Processor:
    """A processor that masks secrets in everything an event carries."""

    def mask(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        masked = redact(dict(event), secrets)
        return masked if isinstance(masked, dict) else event

    return mask


def _renderer(format_name: str) -> Processor:
    import structlog

    if format_name == "console" or (format_name == "auto" and sys.stderr.isatty()):
        return structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    return structlog.processors.JSONRenderer(default=str)
