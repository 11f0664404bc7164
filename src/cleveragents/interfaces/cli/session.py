"""What the commands of one run share: the settings, and the parts built from them, each on first use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.infrastructure.configuration.loading import Configuration

__all__ = ["Session", "pass_session"]


class Session:
    """One run of the command line. Not thread-safe: use it on the thread that runs the command."""

    def __init__(self, overrides: Sequence[str] = ()) -> None:
        self._overrides = overrides
        self._configuration: Configuration | None = None

    def configuration(self) -> Configuration:
        """What holds here and now; `ConfigurationError` if any layer is wrong."""
        if self._configuration is None:
            from cleveragents.infrastructure.configuration.loading import load_configuration

            self._configuration = load_configuration(os.environ, _current_directory(), self._overrides)
        return self._configuration

    def container(self) -> Container:
        """The parts, built on first use and closed when the command ends, however it ends."""
        from cleveragents.application.container import Container
        from cleveragents.infrastructure.logging import configure_logging

        settings = self.configuration().settings
        configure_logging(settings)
        return click.get_current_context().with_resource(Container(settings))


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        from cleveragents.errors import ConfigurationError

        raise ConfigurationError("current directory", "does not exist any more; cd to another") from None


pass_session = click.make_pass_decorator(Session)
