"""`agents serve`: the HTTP API, the page and a worker in one process."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.output import progress
from cleveragents.cli.readiness import wait_until_reachable
from cleveragents.cli.session import Session, collect_often, pass_session

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cleveragents.app.container import Container
    from cleveragents.config.settings import Settings

__all__ = ["offer_repository", "print_first_token", "serve"]


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: server.host.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port. Default: server.port. 0 selects a free port."
)
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Concurrency of this process. Default: worker.concurrency. 0 leaves plans to `agents worker`.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file with an admin token, for machines without interactive login.",
)
@click.option(
    "--drain-seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    help="How long running jobs may continue after a stop signal.",
)
@allow_unisolated_option
@click.pass_context
@pass_session
def serve(
    session: Session,
    ctx: click.Context,
    host: str | None,
    port: int | None,
    workers: int | None,
    token_file: Path | None,
    drain_seconds: float,
    allow_unisolated: bool,
) -> None:
    """Serve the page and the HTTP API, and run plans.

    By default it listens on this machine only; other addresses need at least one user with a token. The first
    start creates a user admin, and a token in the file server-token of the state directory, which only you
    can read. A terminal shows a login address, once; a log never contains the token. SIGTERM and Ctrl-C stop
    the server gracefully: running jobs may end, or return to the queue for other workers.

    In a git repository that is no resource yet, a terminal asks whether to register it, so that plans can run
    on it from the page; without a terminal, the command to do so is printed.

    The server needs isolation for the commands of plans, unless you pass --allow-unisolated or --workers 0.

    \b
    Example:
      agents serve
      agents serve --port 8421 --workers 8
      agents serve --host 0.0.0.0 --workers 0
    """
    from cleveragents.cli.plan.work import interactive
    from cleveragents.cli.prompts import confirmed
    from cleveragents.server.first_token import adopt_token
    from cleveragents.server.serve import ensure_guarded, listening
    from cleveragents.server.serve import serve as serve_until_told

    container = _container(ctx, session, _changed(session.configuration().settings, host, port))
    at_once = container.settings.worker.concurrency if workers is None else workers
    if at_once:
        ensure_isolated(container.settings.sandbox, allowed=allow_unisolated)
    wait_until_reachable(container, engine=at_once > 0)
    if token_file is not None:
        adopt_token(container, token_file)
    ensure_guarded(container)
    offer_repository(container, Path.cwd(), confirmed if interactive() else None)
    server = container.settings.server
    with listening(server.host, server.port, container.state_directory) as listens:
        print_first_token(container, listens)
        code = serve_until_told(
            container, listens, plans_at_once=at_once, say=progress, drain_seconds=drain_seconds
        )
    ctx.exit(code)


def _changed(settings: Settings, host: str | None, port: int | None) -> Settings:
    from msgspec.structs import replace

    server = settings.server
    server = replace(server, host=host or server.host, port=server.port if port is None else port)
    return replace(settings, server=server)


def _container(ctx: click.Context, session: Session, settings: Settings) -> Container:
    from cleveragents.app.container import Container
    from cleveragents.config.logging import configure_logging

    configure_logging(settings)
    collect_often()
    return ctx.with_resource(Container(settings, secrets=session.secrets))


def offer_repository(container: Container, directory: Path, ask: Callable[[str], bool] | None) -> None:
    """Offer to register the repository around the directory as a resource, unless it is registered. Without
    `ask`, only print the command that registers it.
    """
    from cleveragents.access.model.project import DEFAULT_PROJECT, is_name
    from cleveragents.api.client import LocalClient
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource, is_repository

    try:
        root, _ = find_resource(directory)
    except SandboxRefused:
        return
    known = container.projects.resources()
    if not is_repository(root) or any(one.location == str(root) for one in known):
        return
    name = root.name.casefold()
    free = is_name(name) and name not in {one.name for one in known}
    named = f"agents resource add {name if free else 'NAME'}"
    add = f"{named} --project {DEFAULT_PROJECT} --path {quote(str(root))}"
    if not free or ask is None:
        progress(f"plans cannot run on {root} from the page yet; register it with `{add}`")
    elif ask(f"Register {root} as {name!r}, so that plans can run on it from the page?"):
        LocalClient(container).resources.add(name, DEFAULT_PROJECT, path=str(root))
        progress(f"added {name}: plans may run on {root}")
    else:
        progress(f"register it later with `{add}`")


def print_first_token(container: Container, listens: socket.socket) -> None:
    """Print where to log in, and with which token. Only the first start shows the token itself, and only on a
    terminal.
    """
    from cleveragents.server.first_token import any_token_exists, ensure_first_token
    from cleveragents.server.serve import url_of

    first = ensure_first_token(container)
    login = f"{url_of(container.settings.server.host, listens)}/login"
    if first.secret is not None and sys.stderr.isatty():  # guard: a log, which others read, gets no token
        # After the #, which browsers do not send: the token is in no log and in no `Referer`.
        progress(f"log in at {login}#{first.secret}")
        progress(f"  this address is shown once; later, log in with the token in {first.file}")
    elif first.lets_in:
        progress(f"log in at {login} with the token in {first.file}")
    elif any_token_exists(container):
        progress(f"log in at {login} with your token")
    else:
        progress(f"log in at {login} with a token; create one with `agents user token NAME`")
