"""`agents plan publish`: push a result to a branch, and open a pull request with the program of the forge.

The branch is pushed by the client. The pull request is opened by `gh`, `glab` or `tea` of the user, with the
user's login; without such a program, its page is printed. For a plan of a server, the server names the
repository, so a person confirms the repository, and no token is sent to a host that the program does not
know.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.api.client import LocalClient
from cleveragents.api.publish import repository_at
from cleveragents.api.views import as_json
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.choose import chosen_plan, optional_plan
from cleveragents.cli.prompts import confirmed, ensure_confirmed
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.usage import as_usage
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.publish import PublishView

__all__ = ["publish_plan"]

_SECONDS = 120.0
_LONGEST_ERROR = 2000
_PUBLIC = {"gh": "github.com", "glab": "gitlab.com"}
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9.-]*(?:/[A-Za-z0-9_.][A-Za-z0-9_.-]*){2,}")
_TOKENS = frozenset(
    {
        *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"),
        *("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "OAUTH_TOKEN", "CI_JOB_TOKEN", "JOB_TOKEN"),
    }
)
_HOST_OF_TOKEN = ("GITLAB_HOST", "GITLAB_URI", "GL_HOST")
"""Variables that name the host of a token of GitLab."""


@click.command("publish")
@optional_plan
@click.option("--branch", metavar="NAME", help="Name of the new branch; {plan} stands for the plan id.")
@click.option("--remote", metavar="NAME", help="Git remote. Default: the remote of your branch, or origin.")
@click.option("--message", metavar="TEXT", help="Commit message. Default: drafted from the goal.")
@click.option("--with-commits", is_flag=True, help="Also push your commits that the remote does not have.")
@click.option("--no-pull-request", is_flag=True, help="Only push the branch.")
@format_option
@pass_session
def publish_plan(
    session: Session,
    plan_id: str | None,
    branch: str | None,
    remote: str | None,
    message: str | None,
    with_commits: bool,
    no_pull_request: bool,
    output: Output,
) -> None:
    """Push a plan's result to a new branch, and open a pull request.

    The branch starts at your HEAD; a terminal asks before commits are pushed that the remote does not have,
    elsewhere pass --with-commits. Your files and branches stay as they are, and the plan stays ready. The
    pull request is opened with gh, glab or tea, if installed; otherwise the address of its page is printed.
    The default branch is never pushed to. With a server, only plans on git remotes can be published: their
    result is applied to the new branch. Their pull request is opened only in a terminal, after you confirmed
    the repository, at github.com, gitlab.com or a host that gh or glab is logged in to.

    \b
    Example:
      agents plan publish 7QX2
      agents plan publish 7QX2 --branch add-json-flag --no-pull-request
    """
    from cleveragents.cli.plan.work import interactive

    client = session.client()
    plan_id = chosen_plan(client, plan_id, "apply")
    with as_usage():
        made = client.plans.publish(
            plan_id,
            branch=branch,
            remote=remote,
            message=message,
            with_commits=with_commits,
            confirm=_confirmed if interactive() else None,
        )
    if made.unchanged:
        progress(f"branch {made.branch} of {made.remote} already has this result")
    else:
        progress(f"pushed branch {made.branch} to {made.remote}")
    opened = None if no_pull_request else _opened(made, _repository(client, made.plan))
    if opened is None and not no_pull_request:
        progress(f"open a pull request: {made.url or f'compare {made.branch} with {made.base}'}")
    row = as_json(made)
    if not output.machine_readable:
        row = {name: value for name, value in row.items() if name != "body" and value}
    output.record({**row, "pull_request": opened} if opened else row)


def _confirmed(question: str) -> bool:
    """Ask what a push would include or lack. Raises `click.Abort` unless the user agrees."""
    ensure_confirmed(question)
    return True


def _repository(client: Client, plan_id: str) -> Path | None:
    """Return the repository of a plan of this machine; None for a plan of a server."""
    if not isinstance(client, LocalClient):
        return None  # A server does not choose where programs of the user run
    place = Path(client.plans.summary(plan_id).resource)
    return place if place.is_dir() else None


def _opened(made: PublishView, repository: Path | None) -> str | None:
    """Return the address of the new pull request. If none could be opened, print the reason
    and return None.
    """
    from cleveragents.processes.program_lookup import look_up

    command = _command(made, in_repository=repository is not None)
    if command is None:
        return None
    name, *words = command
    program = look_up(name, os.environ.get("PATH", ""))
    if program is None:
        progress(f"{name} is not installed")
        return None
    environment = None
    if repository is None:  # guard: a server does not choose where the user's login and name are used
        host, path = repository_at(made.remote) or ("", "")
        environment = _environment(host)
        if not _may_open(program, host, path, environment):
            return None
    try:
        ended = _run(program, words, repository, environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        progress(f"{name} failed: {redact_text(str(error))[:_LONGEST_ERROR]}")
        return None
    if ended.returncode:
        progress(f"{name} failed: {redact_text(ended.stderr.strip())[:_LONGEST_ERROR]}")
        return None
    address = next((word for word in reversed(ended.stdout.split()) if "://" in word), None)
    progress(f"opened a pull request{f': {address}' if address else ''}")
    return address or ""


def _may_open(program: Path, host: str, path: str, environment: Mapping[str, str]) -> bool:
    """Return whether a pull request may be opened in a repository that a server named: at a host that the
    program is logged in to, after a person confirmed it in a terminal.
    """
    from cleveragents.cli.plan.work import interactive

    if not interactive() or not _REPOSITORY.fullmatch(f"{host}/{path}"):
        return False
    if host != _PUBLIC.get(program.name):
        try:
            status = _run(program, ["auth", "status", f"--hostname={host}"], None, environment)
        except (OSError, subprocess.TimeoutExpired):
            return False
        if status.returncode:
            progress(f"{program.name} is not logged in to {host}")
            return False
    return confirmed(f"Open a pull request in {host}/{path} with {program.name}?")


def _environment(host: str) -> dict[str, str]:
    """Return the environment of a program that opens a pull request at a host that a server named, without
    tokens for other hosts.
    """
    elsewhere = host == _PUBLIC["glab"] and any(os.environ.get(name) for name in _HOST_OF_TOKEN)
    if host in _PUBLIC.values() and not elsewhere:
        return dict(os.environ)
    return {name: value for name, value in os.environ.items() if name not in _TOKENS}


def _run(
    program: Path, words: Sequence[str], repository: Path | None, environment: Mapping[str, str] | None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *words],
        cwd=repository or Path.home(),  # not the current directory, which may be another repository
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=_SECONDS,
        check=False,
    )


def _command(made: PublishView, *, in_repository: bool) -> list[str] | None:
    """Return the command that opens the pull request at the forge; None if no program can do that. Outside
    the repository, the command names the repository; `tea` cannot, because its repository names have no host.
    """
    at = repository_at(made.remote)
    if made.url is None or at is None:
        return None  # no forge is known
    host, path = at
    if "gitlab" in host:
        source = ["--source-branch", made.branch, "--target-branch", made.base]
        named = [] if in_repository else ["--repo", f"https://{host}/{path}"]
        about = ["--title", made.title, "--description", made.body]
        return ["glab", "mr", "create", *named, *source, *about, "--yes"]
    source = ["--head", made.branch, "--base", made.base]
    if "github" in host:
        named = [] if in_repository else ["--repo", f"{host}/{path}"]
        return ["gh", "pr", "create", *named, *source, "--title", made.title, "--body", made.body]
    about = ["--title", made.title, "--description", made.body]
    return ["tea", "pulls", "create", *source, *about] if in_repository else None
