"""`agents demo`."""

from __future__ import annotations

import click

__all__ = ["demo"]


@click.command()
def demo() -> None:
    """Show it all at work, offline, without touching your state.

    \b
    Example:
      agents demo
    """
