"""Logging with structlog to stderr, as text on a terminal and as JSON for programs, without secrets.

Each event is one line, except for a traceback. No value can forge another line or control a terminal: JSON
escapes control characters, and console values are escaped before they are rendered.

Importing this module configures nothing; the process that owns stderr calls `configure_logging` once.
Redaction is the last step before rendering, so it also covers text that other processors add, such as
tracebacks.

Loading structlog takes a third of the time of a quick command, and most commands never log. Unless structlog
is already loaded, an import hook therefore configures it when it is first imported.

This module also guards terminals. Goals, file names, file contents, model answers and error messages come
from repositories, models and other users. On a terminal their control characters could hide lines, move the
cursor, set the window title or fill the clipboard. `guard_terminals` therefore replaces `sys.stdout` and
`sys.stderr`, if they are terminals, by streams that escape every control character except line feeds and
tabs. This covers all writers: click, print, warnings, tracebacks. Code that writes colours and cursor
movements uses `unguarded(stream)` and escapes the text between them.

Pipes and files are not replaced: they receive the bytes unchanged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from cleveragents.core.text.control_characters import escape_controls
from cleveragents.core.text.redaction import redact, url_password

if TYPE_CHECKING:
    from typing import Any, TextIO

    from structlog.typing import EventDict, Processor, ProcessorReturnValue, WrappedLogger

    from cleveragents.config.settings import Settings

__all__ = [
    "GuardedStream",
    "configure_logging",
    "guard_terminals",
    "is_logged",
    "logged_with",
    "unguarded",
]


_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_OF_SEVERAL_LINES = ("exception", "stack")

_NAMES: ContextVar[Mapping[str, str]] = ContextVar("cleveragents_logged_with", default=MappingProxyType({}))

_BYPASSES = frozenset({"buffer", "detach", "reconfigure"})
"""Attributes of a text stream that bypass `write`."""


def configure_logging(settings: Settings, *, is_news: Callable[[str], bool] | None = None) -> None:
    """Configure logging to stderr for this process.

    An event may have a sentence for people in `told`. Commands for people pass `is_news`: with the log format
    `auto`, only this sentence is then printed, and on a terminal only if `is_news` returns True for it. All
    other events are logged in full: as text, or as JSON in a service without a terminal.
    """
    for finder in [found for found in sys.meta_path if isinstance(found, _ConfiguresOnImport)]:
        sys.meta_path.remove(finder)
    if "structlog" in sys.modules:
        _configure(settings, is_news)
    else:
        configure = _ConfiguresOnImport(lambda: _configure(settings, is_news), _LEVELS[settings.log.level])
        sys.meta_path.insert(0, configure)


def is_logged(level: Literal["debug", "info", "warning", "error"]) -> bool:
    """Return whether this process logs events of this level. Does not load structlog."""
    for finder in sys.meta_path:
        if isinstance(finder, _ConfiguresOnImport):
            return _LEVELS[level] >= finder.level
    if "structlog" not in sys.modules:
        return False
    import structlog

    return structlog.is_configured()


@contextmanager
def logged_with(**names: str) -> Iterator[None]:
    """Add these names to everything that this thread, and tasks started with its context, logs in the block.

    Unlike structlog's context variables, this does not load structlog.
    """
    token = _NAMES.set({**_NAMES.get(), **names})
    try:
        yield
    finally:
        _NAMES.reset(token)


class _ConfiguresOnImport(MetaPathFinder):
    """An import hook that configures structlog as soon as it is loaded.

    Thread safety: Python imports a module in one thread; other threads wait until the import is complete.
    """

    def __init__(self, configure: Callable[[], None], level: int) -> None:
        self.level = level
        self._configure = configure

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "structlog":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Configuring(spec.loader, self._configure)
        return spec


class _Configuring(Loader):
    """A loader that runs a callback after it has loaded the module."""

    def __init__(self, loader: Loader, configure: Callable[[], None]) -> None:
        self._loader = loader
        self._configure = configure

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._configure()  # guard: the first log entry already goes through the redactor


def _configure(settings: Settings, is_news: Callable[[str], bool] | None) -> None:
    import structlog

    password = url_password(settings.database.url)
    for_people = settings.log.format == "auto" and is_news is not None
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _named,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            redactor((password,) if password else ()),
            _in_words(_renderer(settings.log.format, for_people), is_news if for_people else None),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[settings.log.level]),
        logger_factory=structlog.PrintLoggerFactory(unguarded(sys.stderr)),
        cache_logger_on_first_use=False,
    )


def _named(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return {**_NAMES.get(), **event}


def redactor(secrets: Collection[str]) -> Processor:
    """Return a processor that masks secrets in all values of an event."""

    def mask(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        masked = redact(dict(event), secrets)
        return masked if isinstance(masked, dict) else event

    return mask


def _in_words(renderer: Processor, is_news: Callable[[str], bool] | None) -> Processor:
    import structlog

    def render(logger: WrappedLogger, method: str, event: EventDict) -> ProcessorReturnValue:
        told = event.pop("told", None)
        if told is None or is_news is None:
            return renderer(logger, method, event)
        # guard: a line that no person reads, as in the log of a background plan, does not count as shown
        if sys.stderr.isatty() and not is_news(str(told)):
            raise structlog.DropEvent
        return f"note: {escape_controls(str(told))}"

    return render


def _renderer(format_name: str, for_people: bool) -> Processor:
    import structlog

    if format_name == "console" or (format_name == "auto" and (for_people or sys.stderr.isatty())):
        return _on_one_line(
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )
    return structlog.processors.JSONRenderer(default=str)


def _on_one_line(renderer: Processor) -> Processor:
    """Return a renderer of events whose texts have their control characters escaped."""

    def render(logger: WrappedLogger, method: str, event: EventDict) -> ProcessorReturnValue:
        return renderer(logger, method, {_escaped(name, ""): _escaped(event[name], name) for name in event})

    return render


def _escaped(value: Any, name: str) -> Any:
    if not isinstance(value, str):
        return value  # `repr` renders and escapes it
    if name not in _OF_SEVERAL_LINES:
        return escape_controls(value)
    # Indented, so that no line of a message looks like an event.
    return escape_controls(value, keep_lines=True).replace("\n", "\n    ")


class GuardedStream:
    """A terminal's text stream whose `write` escapes control characters.

    It has all attributes of the stream except those that bypass `write`, and is as thread-safe as the stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters escaped."""
        self._stream.write(escape_controls(text, keep_lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in _BYPASSES:  # guard: click writes to the buffer of a stream that is ASCII
            raise AttributeError(name)
        return getattr(self._stream, name)


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream below the guard, if there is one. The caller escapes the text it writes."""
    return stream._stream if isinstance(stream, GuardedStream) else stream


@contextmanager
def guard_terminals() -> Iterator[None]:
    """Guard `sys.stdout` and `sys.stderr`, if they are terminals, until the block ends."""
    former = sys.stdout, sys.stderr
    for name, stream in zip(("stdout", "stderr"), former, strict=True):
        if stream.isatty() and not isinstance(stream, GuardedStream):
            setattr(sys, name, GuardedStream(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = former
