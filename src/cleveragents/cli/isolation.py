"""The isolation check at the start of servers and workers, which run commands for other users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import progress
from cleveragents.core.errors import NotIsolated

if TYPE_CHECKING:
    from cleveragents.config.settings import SandboxSettings
    from cleveragents.processes.bubblewrap import BubblewrapProbe

__all__ = ["allow_unisolated_option", "ensure_isolated"]

_INSTALL = "install bubblewrap and allow user namespaces"

allow_unisolated_option = click.option(
    "--allow-unisolated",
    is_flag=True,
    help="Run commands without isolation. Default: sandbox.allow_unisolated.",
)


def ensure_isolated(
    settings: SandboxSettings, *, allowed: bool, probe: BubblewrapProbe | None = None
) -> None:
    """Check that the commands of plans are isolated. If they are not, and `allowed` is set, print a warning.

    Raises `NotIsolated` if running without isolation is not allowed, or `sandbox.isolation` is `required`.
    """
    from cleveragents.processes.bubblewrap import shared_probe

    if settings.isolation == "off":
        problem, remedy = "sandbox.isolation is off", "set sandbox.isolation to auto"
    else:
        result = (probe or shared_probe).result()
        if result.program is not None:
            return
        problem, remedy = result.problem, _INSTALL
    if settings.isolation not in ("off", "auto"):
        raise NotIsolated(problem, f"{remedy}, or set sandbox.isolation to auto")
    if not allowed and not settings.allow_unisolated:  # guard: commands of other users are isolated
        raise NotIsolated(problem, f"{remedy}, or pass --allow-unisolated")
    progress(f"warning: commands of plans are not isolated: {problem}")
    progress("  every command can read and change everything that this user can, including the database")
