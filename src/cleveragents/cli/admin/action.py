"""`agents action`: plan templates in YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.local_only import repository_here, resource_option
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.render.narrow_terminal import columns_for
from cleveragents.cli.servers import prefix_of
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.yaml_input import print_problems, yaml_content
from cleveragents.core.actions.model import Invariant
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.api.actions import ActionView, StepView

__all__ = ["action"]


@click.group()
def action() -> None:
    """Create, list and delete actions: plan templates.

    \b
    Example:
      agents action list
      agents action show builtin/replace
    """


@action.command("create")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--replace", is_flag=True, help="Replace an action with the same name.")
@format_option
@pass_session
def create_action(session: Session, file: Path, replace: bool, output: Output) -> None:
    """Add the action in a YAML FILE; - reads standard input.

    Mistakes are listed with their lines. A file with mistakes is not added.

    \b
    Example:
      agents action create format.yaml
      agents action create --replace - < format.yaml
    """
    from cleveragents.core import errors

    content, source = yaml_content(file)
    try:
        made = session.client().actions.add(content, source=source, replace=replace)
    except errors.InvalidAction as error:
        if len(error.problems) == 1:
            raise
        print_problems(f"{error.source} is not a valid action; it was not added", error.problems)
        raise click.exceptions.Exit(error.exit_code) from None
    progress(f"added {made.name}; run it with `{_usage(made, prefix_of(session))}`")
    for text in made.invariants:
        progress(f"invariant, {Invariant.parse(text).enforcement} ({text})")
    output.record({"name": made.name, "description": made.description})


@action.command("list")
@resource_option
@format_option
@pass_session
def list_actions(session: Session, resource: str | None, output: Output) -> None:
    """List built-in actions, your own, and those of the repository.

    An action of the repository runs only after `agents trust`.

    \b
    Example:
      agents action list --format json
    """
    from cleveragents.api.views import as_json, every

    actions, repository = session.client().actions, repository_here(resource)
    pages = every(
        lambda after: actions.list(resource=resource, repository=repository, limit=1000, after=after)
    )
    rows = [as_json(row) for row in pages]
    columns = columns_for(output, ["name", "origin", "trusted", "description"], spare=["origin", "trusted"])
    output.table(rows, columns, empty="no actions")
    if not output.machine_readable:
        for row in rows:
            if row["problem"]:
                progress(f"{row['source']}: {row['problem']}")


@action.command("show")
@click.argument("name")
@resource_option
@format_option
@pass_session
def show_action(session: Session, name: str, resource: str | None, output: Output) -> None:
    """Show the arguments and steps of an action.

    \b
    Example:
      agents action show builtin/command
    """
    from cleveragents.api.views import as_json

    shown = session.client().actions.get(name, resource=resource, repository=repository_here(resource))
    if output.machine_readable:
        output.record(as_json(shown))
        return
    output.record({"name": shown.name, "description": " ".join(shown.description.split())})
    if shown.arguments:
        output.title("arguments")
        columns = ["name", "type", "default", "description"]
        output.table([as_json(argument) for argument in shown.arguments], columns, empty="")
    output.title("steps")
    output.record(_doing(shown))
    output.title("usage")
    click.echo(f"  {_usage(shown, prefix_of(session))}")


@action.command("delete")
@click.argument("name")
@pass_session
def delete_action(session: Session, name: str) -> None:
    """Delete one of your actions.

    Existing plans of this action continue.

    \b
    Example:
      agents action delete team/format
    """
    session.client().actions.remove(name)
    progress(f"deleted {name}")


def _doing(action: ActionView) -> dict[str, JsonValue]:
    """Return the parts of an action to print for people; empty parts are left out."""
    fields: dict[str, JsonValue] = {}
    for number, step in enumerate(action.steps, start=1):
        fields[f"step {number}"] = _spelt(step)
    said: dict[str, JsonValue] = {
        "strategist": action.strategize_actor,
        "executor": action.execute_actor,
        "reviewer": action.review_actor,
        "setup": action.setup["command"] if action.setup else None,
        "done when": action.definition_of_done,
        "profile": action.profile,
    }
    fields |= {name: value for name, value in said.items() if value}
    for check in action.checks:
        fields[f"check {check.name}"] = f"{check.command}{'' if check.required else ' (informational)'}"
    for number, invariant in enumerate(action.invariants, start=1):
        fields[f"invariant {number}"] = f"{invariant} ({Invariant.parse(invariant).enforcement})"
    return fields


def _spelt(step: StepView) -> str:
    given = step.given if isinstance(step.given, Mapping) else {}
    argv = given.get("command" if step.shell else "argv")
    if isinstance(argv, (list, tuple)):
        return f"{step.tool}: {shlex.join(str(word) for word in argv)}"
    if step.shell:
        return f"{step.tool}: {argv}"
    return f"{step.tool}: " + ", ".join(f"{name}={value}" for name, value in given.items())


def _usage(action: ActionView, prefix: str) -> str:
    words = [f"{prefix} run --action", action.name]
    rest = ""
    for argument in action.arguments:
        if argument.rest:
            rest = f" -- {argument.name.upper()}…"
        elif argument.required:
            words.append(f"--arg {argument.name}={argument.type.upper()}")
    return " ".join(words) + rest
