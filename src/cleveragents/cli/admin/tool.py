"""`agents tool`: the tools of actions and actors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.render.narrow_terminal import columns_for
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze, thaw
from cleveragents.core.text.redaction import redact

if TYPE_CHECKING:
    from cleveragents.cli.admin.tool_sandbox import ToolSandbox
    from cleveragents.processes.ports import CommandOptions, CommandResult
    from cleveragents.tools.ports import Tool

__all__ = ["tool"]


@click.group()
def tool() -> None:
    """List, describe and try the tools of actions.

    \b
    Example:
      agents tool list
      agents tool run grep --arg pattern=TODO
    """


@tool.command("list")
@format_option
@pass_session
def list_tools(session: Session, output: Output) -> None:
    """List the built-in tools and those of installed packages.

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
    columns = columns_for(output, ["name", "needs", "writes", "description"], spare=["needs", "writes"])
    output.table(rows, columns, empty="no tools")
    for problem in registry.problems():
        progress(f"not usable: {problem}")


@tool.command("show")
@click.argument("name")
@format_option
@pass_session
def show_tool(session: Session, name: str, output: Output) -> None:
    """Show the input and output of a tool as JSON Schema.

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


@tool.command("run")
@click.argument("name")
@click.option("--arg", "pairs", multiple=True, metavar="KEY=VALUE", help="An argument: JSON, otherwise text.")
@click.option("--json", "document", metavar="OBJECT", help="All arguments, as a JSON object.")
@format_option
@pass_session
def run_tool(
    session: Session, name: str, pairs: tuple[str, ...], document: str | None, output: Output
) -> None:
    """Run one tool, without changing your files.

    A tool that can change files runs in a temporary sandbox of the current repository, and the changes are
    listed. Tools of MCP servers, mcp__SERVER__TOOL, run in the same way; effects outside the sandbox, such as
    requests to a service, are permanent.

    \b
    Example:
      agents tool run grep --arg pattern=TODO
      agents tool run edit --json '{"path": "a.py", "old": "x", "new": "y"}'
    """
    from cleveragents.cli.admin.tool_sandbox import temporary_tool_sandbox
    from cleveragents.tools.registry import ToolRegistry

    arguments = _arguments(name, pairs, document)
    registry, changed = ToolRegistry(), []
    if name in registry.names() and not registry.get(name).spec.writes:
        result = _read(registry.get(name), arguments)
    else:
        with temporary_tool_sandbox(session, name) as ground:
            result = _called(ground, ground.tools.get(name), arguments)
            changed = sorted(ground.sandbox.scan())
    _print(output, result)
    for path in changed:
        progress(f"changed in the temporary sandbox only: {path}")


def _arguments(name: str, pairs: tuple[str, ...], document: str | None) -> Mapping[str, JsonValue]:
    from cleveragents.core.errors import InvalidToolCall

    if pairs and document is not None:
        raise click.UsageError("pass --arg or --json, not both")
    found: dict[str, object] = {}
    if document is not None:
        try:
            given = json.loads(document)
        except ValueError as error:
            raise InvalidToolCall(name, f"--json is not valid JSON: {error}") from None
        if not isinstance(given, dict):
            raise InvalidToolCall(name, "--json must be an object")
        found = given
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--arg takes KEY=VALUE, not {pair!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return FrozenObject({key: freeze(value) for key, value in found.items()})


def _read(found: Tool, arguments: Mapping[str, JsonValue]) -> JsonValue:
    """Run a read-only tool on the files themselves."""
    from cleveragents.core.cancellation import CancellationToken
    from cleveragents.core.errors import ToolRefused
    from cleveragents.sandboxes.resources import find_resource
    from cleveragents.tools.files.confined_files import ConfinedFiles
    from cleveragents.tools.ports import Workplace

    def refuse(path: str) -> None:
        raise ToolRefused(found.spec.name, f"the tool is read-only and may not change {path!r}")

    def run(
        argv: tuple[str, ...], *, directory: str, timeout_seconds: float, terms: CommandOptions | None = None
    ) -> CommandResult:
        raise ToolRefused(found.spec.name, "the tool is read-only and may not run commands")

    resource, _ = find_resource(Path.cwd())
    files = ConfinedFiles(resource, before_change=refuse)
    return found.call(arguments, Workplace(files, run, CancellationToken()))


def _called(ground: ToolSandbox, found: Tool, arguments: Mapping[str, JsonValue]) -> JsonValue:
    from cleveragents.core.cancellation import CancellationToken
    from cleveragents.plans.calls.call_log import CallCommands
    from cleveragents.tools.files.confined_files import ConfinedFiles
    from cleveragents.tools.ports import Workplace

    token, sandbox = CancellationToken(), ground.sandbox

    run = CallCommands(
        tool=found.spec.name,
        runner=ground.commands,
        sandbox=sandbox,
        directory="",
        environment={},
        markers={},
        network=ground.network,
        network_denied=ground.network_denied,
        is_approved=lambda: False,
        limit_seconds=float("inf"),
        stop=token,
    )
    with sandbox.occupied(), sandbox.writing():
        return found.call(arguments, Workplace(ConfinedFiles(sandbox.root), run, token))


def _print(output: Output, result: JsonValue) -> None:
    from cleveragents.tools.tool_results import result_text

    shown = freeze(redact(thaw(freeze(result))))
    if output.machine_readable:
        output.record(shown if isinstance(shown, Mapping) else {"result": shown})
    else:
        click.echo(result_text(shown))
