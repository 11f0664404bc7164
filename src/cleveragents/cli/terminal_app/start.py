"""Opening the terminal app: the client, the session to continue, and the log."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.api.plans.request import Limits
from cleveragents.config.error_log import LogStream
from cleveragents.core.errors import CleverAgentsError

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.cli.session import Session
    from cleveragents.cli.terminal_app.plan_runner import PlanRunner
    from cleveragents.config.settings import ModelSettings

__all__ = ["foreign_encoding", "has_terminal", "is_dumb", "model_notice", "open_app", "repository_files"]

_LOG = "terminal-app.log"
_LIST_SECONDS = 10.0


def has_terminal() -> bool:
    """Return whether input and output are a terminal. The app draws on stderr."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def is_dumb() -> bool:
    """Return whether the terminal cannot move its cursor."""
    return os.environ.get("TERM", "dumb") in ("", "dumb")


def foreign_encoding() -> str | None:
    """Return the encoding of the terminal if the app cannot draw with it, because it is not UTF-8."""
    encoding = sys.stderr.encoding or "utf-8"
    return None if codecs.lookup(encoding).name == "utf-8" else encoding


def open_app(session: Session, *, continues: bool) -> None:
    """Open the app and return when the user quits. Plans continue in processes of their own.

    With `continues`, the app shows the latest session of the repository. Raises `click.UsageError` if there
    is none.
    """
    from cleveragents.cli.conversation.line_session import latest_session
    from cleveragents.cli.conversation.place import new_request
    from cleveragents.cli.servers import prefix_of, selected_url
    from cleveragents.cli.terminal_app.app import TerminalApp

    context = click.get_current_context()
    directory = Path(session.configuration().settings.state.directory)
    # The screen belongs to the app: whatever is logged meanwhile goes to a file.
    with redirect_stderr(LogStream(directory / _LOG)):
        runner = None if selected_url(context, session) else _plan_runner(session)
        client = session.client() if runner is None else _local_client(runner)
        try:
            request = new_request(session, client, None, None, None, Limits())
        except click.UsageError:  # no resource of the server is this repository; the board works without one
            request = ConversationRequest()
        chosen = latest_session(session, client) if continues else None
        app = TerminalApp(
            client,
            request,
            _files_here,
            session_id=chosen,
            prefix=prefix_of(session),
            run_plans=None if runner is None else runner.run_queued,
            notice="" if runner is None else model_notice(client, session.configuration().settings.models),
        )
        if runner is not None:
            runner.failed = app.report
        app.run()
    if app.return_code:  # a signal, or an error of the app
        context.exit(app.return_code)


def model_notice(client: Client, models: ModelSettings) -> str:
    """Return why no model can answer yet, and how to configure one; "" if the default model has its key."""
    ways = "Quit and run `agents init` to set up a provider, or name a model here: /model PROVIDER/NAME."
    if not models.default:
        return f"No model is configured, so messages get no answer yet.\n{ways}"
    try:
        if client.models.get(models.default).key != "missing":
            return ""
    except CleverAgentsError as error:
        return f"{error}\n{ways}"
    return f"The key of the default model {models.default} is missing.\n{ways}"


def _plan_runner(session: Session) -> PlanRunner:
    from cleveragents.cli.terminal_app.plan_runner import PlanRunner

    context, container = click.get_current_context(), session.container()
    runner = PlanRunner(container, context.find_root().params.get("overrides", ()))
    context.call_on_close(runner.close)  # before the container is closed
    return runner


def _local_client(runner: PlanRunner) -> Client:
    """Return a client of this machine that starts a process for each plan it continues."""
    from cleveragents.api.client import LocalClient

    return LocalClient(runner.container, in_front=True, run_plan=runner.run)


def _files_here() -> Sequence[str]:
    return repository_files(Path.cwd())


def repository_files(directory: Path) -> Sequence[str]:
    """Return the files of the repository around the directory that git does not ignore; none on errors."""
    from os import fsdecode

    from cleveragents.git.plumbing import run_git, user_environment, within
    from cleveragents.sandboxes.resources import find_resource

    try:
        root = find_resource(directory)[0]
        listed = run_git(
            *("ls-files", "--cached", "--others", "--exclude-standard", "-z"),
            environment=user_environment(),
            directory=root,
            seconds_left=within(_LIST_SECONDS),
        )
    except CleverAgentsError:
        return ()
    return [path for path in fsdecode(listed).split("\0") if path]
