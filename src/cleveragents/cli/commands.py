"""The root of all commands, each in a module that is imported when it runs."""

from __future__ import annotations

import click

from cleveragents import __version__
from cleveragents.cli.root_group import RootGroup

__all__ = ["cli"]

_HERE = "cleveragents.cli"

_COMMANDS = {
    "run": (
        f"{_HERE}.run.command:run",
        "Reach a goal, or run an action, as a plan: sandboxed, reviewed, applied or not.",
    ),
    "context": (
        f"{_HERE}.context:context",
        "Find what of a repository matters for a question, within a budget of tokens.",
    ),
    "plan": (f"{_HERE}.plan.group:plan", "Look at plans, review what they changed, apply or undo it."),
    "action": (f"{_HERE}.admin.action:action", "Create, list and delete templates of plans."),
    "actor": (f"{_HERE}.admin.actor:actor", "List, check, graph and run actors: who thinks, and how."),
    "tool": (f"{_HERE}.admin.tool:tool", "List, describe and try the tools that actions can call."),
    "mcp": (f"{_HERE}.admin.mcp:mcp", "Add, list, test and remove MCP servers, or be one."),
    "model": (f"{_HERE}.admin.model:model", "List language models, describe one, try one out."),
    "trust": (f"{_HERE}.admin.trust:trust", "Trust what the repository at PATH brings along."),
    "project": (
        f"{_HERE}.admin.project:project",
        "Manage projects: their members, and how many of their plans run at once.",
    ),
    "resource": (
        f"{_HERE}.admin.resource:resource",
        "Say which repositories the users of a server may run plans on.",
    ),
    "gc": (f"{_HERE}.admin.gc:gc", "Remove the sandboxes of plans that ended."),
    "serve": (f"{_HERE}.admin.serve:serve", "Serve the page and the HTTP API, and run plans."),
    "worker": (f"{_HERE}.admin.worker:worker", "Run plans of a server, as one more worker."),
    "user": (f"{_HERE}.admin.user:user", "Add users of the server, give them roles and tokens."),
    "login": (f"{_HERE}.login:login", "Log in to a server, with a token."),
    "logout": (f"{_HERE}.login:logout", "Forget the token of a server."),
    "backup": (f"{_HERE}.admin.backup:backup", "Copy all that is kept, while work goes on."),
    "demo": ("cleveragents.demo.command:demo", "Show it all at work, offline, without touching your state."),
    "jobs": (f"{_HERE}.admin.jobs:jobs", "List, inspect and cancel jobs."),
    "events": (f"{_HERE}.admin.events:events", "Follow, verify and anchor the audit log."),
    "config": (f"{_HERE}.admin.config:config", "Show and change settings."),
    "doctor": (f"{_HERE}.doctor.command:doctor", "Check that everything needed is there and sound."),
}


@click.group(
    cls=RootGroup,
    lazy_commands=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 needs a human, 75 try again, 130 interrupted.",
)
@click.version_option(
    __version__, "-V", "--version", prog_name="cleveragents", message="%(prog)s %(version)s"
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting for this command; may be repeated. `agents config list` shows them all.",
)
@click.option(
    "--server",
    metavar="URL",
    help="Have a server do it, instead of this machine (server.address); `local` means this machine.",
)
@click.pass_context
def cli(ctx: click.Context, overrides: tuple[str, ...], server: str | None) -> None:
    """Runs many AI agent plans at once on real repositories, and loses nothing.

    \b
    Example:
      agents run "Add a --json flag to the export command" --check "pytest -q"
      agents run --action builtin/command -- sed -i s/colour/color/ README.md
      agents demo
      agents --set log.level=debug doctor
      agents --server https://agents.example plan list
    """
    from cleveragents.cli.session import Session

    ctx.obj = ctx.obj or Session(overrides)
