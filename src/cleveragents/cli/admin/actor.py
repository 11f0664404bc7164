"""`agents actor`: actors in YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.cli.actor_file import library_here, loaded_actor, named_actor
from cleveragents.cli.admin.actor_run import run_actor
from cleveragents.cli.completion import complete_actor
from cleveragents.cli.local_only import goes_to_server, repository_here, resource_option
from cleveragents.cli.output import Output, colour, console, format_option, progress
from cleveragents.cli.render.narrow_terminal import columns_for
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.yaml_input import print_problems, yaml_content
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorLibrary
    from cleveragents.actors.model.actor import Actor
    from cleveragents.api.actors import ActorView

__all__ = ["actor"]


@click.group()
def actor() -> None:
    """List, check, graph and run actors.

    \b
    Example:
      agents actor list
      agents actor graph builtin/executor
    """


actor.add_command(run_actor)


@actor.command("list")
@resource_option
@format_option
@pass_session
def list_actors(session: Session, resource: str | None, output: Output) -> None:
    """List built-in actors, your own, and those of the repository.

    Your own actors are YAML files in the folder `actors` beside your settings. An actor of the repository
    runs only after `agents trust`.

    \b
    Example:
      agents actor list --format json
    """
    from cleveragents.api.views import as_json, every

    actors, repository = session.client().actors, repository_here(resource)
    pages = every(
        lambda after: actors.list(resource=resource, repository=repository, limit=1000, after=after)
    )
    rows = [as_json(row) for row in pages]
    columns = columns_for(output, ["name", "origin", "trusted", "description"], spare=["origin", "trusted"])
    shown = rows if output.machine_readable else [_marked(row) for row in rows]
    output.table(shown, columns, empty="no actors")
    if not output.machine_readable:
        for row in rows:
            if row["problem"]:
                progress(f"{row['source']}: {row['problem']}")


@actor.command("show")
@click.argument("name", metavar="NAME_OR_FILE", shell_complete=complete_actor)
@click.option("--yaml", "as_yaml", is_flag=True, help="Print the file of the actor, to save and change.")
@resource_option
@format_option
@pass_session
def show_actor(session: Session, name: str, as_yaml: bool, resource: str | None, output: Output) -> None:
    """Show an actor: its nodes, state and limits. For an external agent, its command and passthrough.

    With --yaml, the file includes the prompts, and a built-in actor is named `mine/…`, ready to be saved
    among your own actors.

    \b
    Example:
      agents actor show builtin/strategist
      agents actor show actors/triage.yaml --format json
      agents actor show external/codex --yaml > ~/.config/cleveragents/actors/codex.yaml
    """
    from cleveragents.api.actors import own_text
    from cleveragents.api.views import as_json

    if as_yaml and name == "-":
        raise click.UsageError("--yaml needs the name or file of an actor, not -")
    shown = _found(session, name, resource)
    if as_yaml:
        here = _is_file(name) or not goes_to_server(click.get_current_context())
        # Unmasked: values that look like secrets are needed to use the file.
        click.echo(own_text(Path(shown.file)) if here and shown.file else shown.yaml, nl=False)
        return
    if output.machine_readable:
        said = as_json(shown)
        output.record({name: value for name, value in said.items() if name not in ("graph", "yaml")})
        return
    facts: dict[str, JsonValue] = {
        "name": shown.name,
        "description": " ".join(shown.description.split()),
        "model": shown.model,
        "read-only": shown.read_only,
        **{f"max {name}": limit for name, limit in shown.limits.items()},
        "file": shown.file,
    }
    output.record({name: value for name, value in facts.items() if value is not None})
    output.title("nodes")
    nodes = [{**node, "next": ", ".join(node["next"])} for node in shown.nodes]
    output.table(nodes, ["name", "type", "next"], empty="")
    for node in shown.nodes:
        if "argv" in node:
            name = node["name"]
            output.title("command and passthrough" if len(nodes) == 1 else f"command of {name}")
            output.record(_agent_facts(node))
    if shown.state:
        output.title("state")
        output.table(shown.state, ["name", "type", "reducer", "description"], empty="")


@actor.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
@pass_session
def validate_actors(session: Session, files: tuple[Path, ...], output: Output) -> None:
    """Check the actors of YAML files; - reads standard input.

    Mistakes are listed with their lines and remedies. Check actors that refer to each other together. The
    exit code is 0 if all are valid, otherwise 2.

    \b
    Example:
      agents actor validate actors/*.yaml
    """
    contents = [(file, *yaml_content(file)) for file in files]
    together = _Together(library_here(session), {})
    for file, content, _ in contents:
        found = loaded_actor(session, file, content, None)
        if found.actor is not None:
            together.known[found.actor.name] = found.actor
    judged = [loaded_actor(session, file, content, together) for file, content, _ in contents]
    if not output.machine_readable:
        for one in judged:
            if one.error is not None:
                print_problems(f"{one.error.source} is not a valid actor", one.error.problems)
    rows: list[Mapping[str, JsonValue]] = [
        {
            "file": source,
            "valid": one.actor is not None,
            "name": one.actor.name if one.actor else None,
            "problems": one.error.problems if one.error else (),
        }
        for one, (_, _, source) in zip(judged, contents, strict=True)
    ]
    output.table(rows, ["file", "valid", "name"], empty="")
    wrong = next((one.error for one in judged if one.error is not None), None)
    if wrong is not None:
        raise click.exceptions.Exit(wrong.exit_code)


@actor.command("graph")
@click.argument("name", metavar="NAME_OR_FILE", shell_complete=complete_actor)
@click.option("--mermaid", "as_mermaid", is_flag=True, help="Print Mermaid text instead of a tree.")
@resource_option
@format_option
@pass_session
def draw_actor(session: Session, name: str, as_mermaid: bool, resource: str | None, output: Output) -> None:
    """Draw the graph of an actor: its nodes, edges and conditions.

    \b
    Example:
      agents actor graph builtin/reviewer
      agents actor graph triage.yaml --mermaid > triage.mmd
    """
    from cleveragents.api.views import as_json

    drawn = _found(session, name, resource)
    if output.machine_readable:
        output.record(as_json(drawn.graph))
    elif as_mermaid:
        click.echo(drawn.graph.mermaid, nl=False)
    else:
        _print_tree(drawn, styled=output.human_readable)


@actor.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of actor files, for editors.

    \b
    Example:
      agents actor schema > actor.schema.json
    """
    from cleveragents.actors.schema import shipped_schema

    click.echo(shipped_schema(), nl=False)


@dataclass(frozen=True, slots=True)
class _Together:
    """Actors checked together; they take precedence over saved actors."""

    library: ActorLibrary
    known: dict[str, Actor]

    def get(self, name: str) -> Actor:
        return self.known[name] if name in self.known else self.library.get(name)


def _is_file(name: str) -> bool:
    return name == "-" or is_actor_file(name)


def _found(session: Session, name: str, resource: str | None) -> ActorView:
    """Return the actor in the local file `name`, even if the command uses a server. If there is no such file,
    return the actor with this name.
    """
    if not _is_file(name):
        repository = repository_here(resource)
        return session.client().actors.get(name, resource=resource, repository=repository)
    from cleveragents.api.actors import actor_view, own_text

    found, file = named_actor(session, name), None if name == "-" else Path(name)
    return actor_view(found, found.document if file is None else own_text(file), file)


def _print_tree(drawn: ActorView, *, styled: bool) -> None:
    from cleveragents.actors.diagram import node_summary, tree

    edges = [(edge.source, edge.target, edge.when or "") for edge in drawn.graph.edges]
    what = {node["name"]: node_summary(node["type"], node) for node in drawn.nodes}
    # A pipe has no width limit.
    width = None if styled else 1000
    shown = tree(drawn.name, drawn.entry, edges, what)
    console(width=width, no_color=not styled or colour() is False).print(shown)


def _agent_facts(node: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the command, the passthrough and the limits of an external agent."""
    facts: dict[str, JsonValue] = {
        "runs": shlex.join(node["argv"]),
        "prompt via": node.get("prompt_by", "session"),
        "variables": ", ".join(node["environment"]) or "none",
        "home files": ", ".join(node["home"]) or "none",
        "network": "required" if node["network"] else "optional",
        "max seconds": node["seconds"],
        "max processes": node["processes"],
        "install": node["install"] or None,
    }
    if node.get("variables"):
        facts["sets"] = ", ".join(f"{name}={value}" for name, value in node["variables"].items())
    return {name: value for name, value in facts.items() if value is not None}


def _marked(row: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    return row if row["problem"] is None else {**row, "description": f"invalid: {row['problem']}"}
