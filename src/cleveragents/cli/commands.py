"""The root command `agents` and the table of its subcommands, each imported when it runs.

With `--server`, it refuses commands that work on this machine only.
"""

from __future__ import annotations

import click

from cleveragents import __version__
from cleveragents.cli.lazy import LazyGroup

__all__ = ["cli"]

_HERE = "cleveragents.cli"

_COMMANDS = {
    "init": (f"{_HERE}.init:init", "Set up a provider, its key and a default model, and test them."),
    "run": (
        f"{_HERE}.run.command:run",
        "Run a goal or an action as a plan, in a sandbox.",
    ),
    "ask": (
        f"{_HERE}.conversation.ask:ask",
        "Ask a question about a repository, and print the answer.",
    ),
    "session": (
        f"{_HERE}.conversation.group:session",
        "Talk with an assistant about a repository.",
    ),
    "context": (
        f"{_HERE}.context:context",
        "Find the code relevant to a question.",
    ),
    "plan": (f"{_HERE}.plan.group:plan", "Show, review, apply and undo plans."),
    "action": (f"{_HERE}.admin.action:action", "Create, list and delete actions: plan templates."),
    "actor": (f"{_HERE}.admin.actor:actor", "List, check, graph and run actors."),
    "tool": (f"{_HERE}.admin.tool:tool", "List, describe and try the tools of actions."),
    "mcp": (f"{_HERE}.admin.mcp:mcp", "Add, list, test and remove MCP servers, or run as one."),
    "acp": (f"{_HERE}.admin.acp:acp", "Work in an editor that speaks the Agent Client Protocol."),
    "model": (f"{_HERE}.admin.model:model", "List, describe and test language models."),
    "cost": (f"{_HERE}.admin.cost:cost", "Show the costs of model calls by day, project, model or actor."),
    "policy": (
        f"{_HERE}.admin.policy:policy",
        "List, add and revoke rules that approve commands in advance.",
    ),
    "trust": (f"{_HERE}.admin.trust:trust", "Trust the config files of the repository at PATH."),
    "project": (
        f"{_HERE}.admin.project:project",
        "Manage projects, their members and their concurrency limits.",
    ),
    "resource": (
        f"{_HERE}.admin.resource:resource",
        "Manage the repositories that users of a server may run plans on.",
    ),
    "gc": (f"{_HERE}.admin.gc:gc", "Remove the sandboxes of ended plans."),
    "serve": (f"{_HERE}.admin.serve:serve", "Serve the page and the HTTP API, and run plans."),
    "worker": (f"{_HERE}.admin.worker:worker", "Run a worker for the plans of a server."),
    "user": (f"{_HERE}.admin.user:user", "Manage users of the server, their roles and tokens."),
    "login": (f"{_HERE}.login:login", "Log in to a server with a token."),
    "logout": (f"{_HERE}.login:logout", "Remove the token of a server."),
    "backup": (f"{_HERE}.admin.backup:backup", "Back up the state, also while plans run."),
    "demo": (
        "cleveragents.demo.command:demo",
        "Run a demonstration, offline and in a temporary directory.",
    ),
    "jobs": (f"{_HERE}.admin.jobs:jobs", "List, inspect and cancel jobs."),
    "events": (f"{_HERE}.admin.events:events", "Follow, verify and anchor the audit log."),
    "config": (f"{_HERE}.admin.config:config", "Show and change settings."),
    "completion": (
        f"{_HERE}.completion:completion",
        "Print the completion script of a shell: bash, zsh or fish.",
    ),
    "doctor": (f"{_HERE}.doctor.command:doctor", "Check the installation and the state of this machine."),
}

_SERVED = (
    *("acp", "action", "actor", "ask", "completion", "context", "cost", "events", "jobs", "login", "logout"),
    "mcp",
    "model",
    *("plan", "project", "resource", "run", "session", "trust", "user"),
)
"""Commands that can use a server."""


class _RootGroup(LazyGroup):
    """A group that refuses `--server` for commands that cannot use a server."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy and not ctx.resilient_parsing:
            self._ensure_served(ctx, cmd_name)
        return super().get_command(ctx, cmd_name)

    def _ensure_served(self, ctx: click.Context, name: str) -> None:
        """Raise `click.UsageError` for a command that cannot use a server, if `--server` is passed."""
        if name in _SERVED or ctx.params.get("server") is None:
            return
        from cleveragents.cli.servers import selected_url
        from cleveragents.cli.session import Session

        if ctx.obj is None:
            ctx.obj = Session(ctx.params.get("overrides", ()))
        if selected_url(ctx, ctx.obj) is not None:  # guard: not run on this machine instead
            raise click.UsageError(f"agents {name} works on this machine only; omit --server", ctx)


@click.group(
    cls=_RootGroup,
    lazy_commands=_COMMANDS,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 needs a person, 75 try again, 130 interrupted.",
)
@click.version_option(
    __version__, "-V", "--version", prog_name="cleveragents", message="%(prog)s %(version)s"
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a setting for this command; may be repeated. List settings with `agents config list`.",
)
@click.option(
    "--server",
    metavar="URL",
    help="Server to use. Default: server.address. `local` means this machine.",
)
@click.option("--continue", "continues", is_flag=True, help="Continue the latest session of this repository.")
@click.option("--plain", is_flag=True, help="Talk line by line instead of in the terminal app.")
@click.pass_context
def cli(
    ctx: click.Context, overrides: tuple[str, ...], server: str | None, continues: bool, plain: bool
) -> None:
    """Run many AI agent plans in parallel on real repositories, and lose nothing.

    Without a command, open the terminal app.

    \b
    Example:
      agents
      agents run "Add a --json flag to the export command" --check "pytest -q"
      agents run --action builtin/command -- sed -i s/colour/color/ README.md
      agents ask "Where is the session cookie signed?"
      agents demo
      agents --set log.level=debug doctor
      agents --server https://agents.example plan list
    """
    from cleveragents.cli.session import Session

    ctx.obj = ctx.obj or Session(overrides)
    if ctx.invoked_subcommand is not None:
        if continues or plain:
            option = "--continue" if continues else "--plain"
            raise click.UsageError(f"{option} takes no command; use it alone, or `agents session resume`")
        return
    from cleveragents.cli.conversation.open import open_conversation

    open_conversation(ctx, continues=continues, plain=plain)
