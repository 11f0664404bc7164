"""`agents tool`: what actions and actors can call."""

from __future__ import annotations

import click

from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.interfaces.cli.output import Output, format_option, progress
from cleveragents.interfaces.cli.session import Session, pass_session

__all__ = ["tool"]


@click.group()
def tool() -> None:
    """List and describe the tools that actions can call.

    \b
    Example:
      agents tool list
    """


@tool.command("list")
@format_option
@pass_session
def list_tools(session: Session, output: Output) -> None:
    """List the tools there are, built in and from installed packages.

    \b
    Example:
      agents tool list
    """
    registry = session.container().plan_parts.tools
    rows: list[dict[str, JsonValue]] = [
        {
            "name": spec.name,
            "needs": spec.capability.value,
            "writes": spec.writes,
            "description": spec.description,
        }
        for spec in registry.specs()
    ]
    output.table(rows, ["name", "needs", "writes", "description"], empty="there are no tools")
    for problem in registry.problems():
        progress(f"not usable: {problem}")


@tool.command("show")
@click.argument("name")
@format_option
@pass_session
def show_tool(session: Session, name: str, output: Output) -> None:
    """Show what a tool takes and gives, as JSON Schema.

    \b
    Example:
      agents tool show edit
    """
    spec = session.container().plan_parts.tools.get(name).spec
    output.record(
        {
            "name": spec.name,
            "description": spec.description,
            "needs": spec.capability.value,
            "writes": spec.writes,
            "input": freeze(spec.input_schema),
            "output": freeze(spec.output_schema),
        }
    )
