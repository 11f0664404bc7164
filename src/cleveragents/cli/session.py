"""The session of one command: its settings and components, each built on first use."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.core.text.redaction import KnownSecrets

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.app.container import Container
    from cleveragents.config.loader import Configuration
    from cleveragents.processes.bubblewrap import BubblewrapProbe

__all__ = ["Session", "collect_often", "pass_session"]

_TOLD = "told"
_YOUNG_OBJECTS = 10_000


class Session:
    """One run of the command line. Not thread-safe: use it on the thread that runs the command."""

    def __init__(self, overrides: Sequence[str] = ()) -> None:
        self._overrides = overrides
        self._configuration: Configuration | None = None
        # Not those of the container: an error is reported after the container was closed.
        self.secrets = KnownSecrets()

    def configuration(self) -> Configuration:
        """Return the configuration. Raises `ConfigurationError` if any layer is invalid."""
        if self._configuration is None:
            from cleveragents.config.loader import load_configuration

            self._configuration = load_configuration(os.environ, _current_directory(), self._overrides)
        return self._configuration

    def client(self) -> Client:
        """Return a client of this machine, or of the server that `--server` or the settings name.

        It is closed when the command ends.
        """
        from cleveragents.cli.servers import CommandTransport, selected_url, token_for

        context = click.get_current_context()
        url = selected_url(context, self)
        if url is None:
            from cleveragents.api.client import LocalClient

            return LocalClient(self.container(), in_front=True)
        from cleveragents.api.client import HttpClient
        from cleveragents.cli.output import progress

        return context.with_resource(HttpClient(CommandTransport(url, token_for(self, url), tell=progress)))

    def container(self, *, serves: bool = False) -> Container:
        """Return the container, built on first use and closed when the command ends. With `serves`, as for a
        server, log lines are written for an operator; otherwise for the user of the command.
        """
        from cleveragents.app.container import Container
        from cleveragents.config.logging import configure_logging

        if serves:
            collect_often()
        settings = self.configuration().settings
        told = Path(settings.state.directory, _TOLD)
        configure_logging(settings, is_news=None if serves else lambda told_now: _is_news(told, told_now))
        context = click.get_current_context()
        context.call_on_close(lambda: _forget(told))
        return context.with_resource(Container(settings, secrets=self.secrets))


def collect_often() -> None:
    """Collect garbage often, in a long-running process."""
    gc.set_threshold(_YOUNG_OBJECTS)


def _is_news(told: Path, sentence: str) -> bool:
    """Return whether the message was not yet shown to the user of this state directory, and record it as
    shown.
    """
    with suppress(OSError, UnicodeDecodeError):  # where it cannot be recorded, the message is repeated
        before = told.read_text(encoding="utf-8") if told.exists() else ""
        if f"{sentence}\n" in before:
            return False
        told.write_text(f"{before}{sentence}\n", encoding="utf-8")
    return True


def _forget(told: Path, probe: BubblewrapProbe | None = None) -> None:
    """Forget that the message was shown if commands are isolated now, so that it is shown again if isolation
    is lost.
    """
    if told.exists():
        from cleveragents.processes.bubblewrap import shared_probe

        if (probe or shared_probe).is_known_to_work():
            with suppress(OSError):
                told.unlink()


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        from cleveragents.core.errors import ConfigurationError

        raise ConfigurationError("current directory", "no longer exists; cd to another directory") from None


pass_session = click.make_pass_decorator(Session)
