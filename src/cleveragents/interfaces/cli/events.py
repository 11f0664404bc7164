"""`agents events`: the audit log, live and verified."""

from __future__ import annotations

import click

__all__ = ["events"]


@click.group()
def events() -> None:
    """Follow and verify the audit log.

    \b
    Example:
      agents events verify
    """
