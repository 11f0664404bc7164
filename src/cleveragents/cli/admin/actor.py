"""`agents actor`: who thinks, written in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.actors.model.actor import AgentNode
from cleveragents.api.actor_account import actor_account, actor_graph, actor_row
from cleveragents.cli.actor_file import library_here, loaded_actor, named_actor
from cleveragents.cli.admin.actor_run import run_actor
from cleveragents.cli.output import Output, colour, console, format_option, progress
from cleveragents.cli.render.narrow import columns_for
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.yaml_input import tell_problems, yaml_content
from cleveragents.core.json_value import FrozenObject, JsonValue

if TYPE_CHECKING:
    from cleveragents.actors.library import ActorLibrary
    from cleveragents.actors.model.actor import Actor

__all__ = ["actor"]


@click.group()
def actor() -> None:
    """List, check, graph and run actors: who thinks, and how.

    \b
    Example:
      agents actor list
      agents actor graph builtin/executor
    """


actor.add_command(run_actor)


@actor.command("list")
@format_option
@pass_session
def list_actors(session: Session, output: Output) -> None:
    """List the actors that are shipped, yours, and the repository's.

    Yours are the YAML files in the folder `actors` beside your settings. A repository's actor runs only once
    you have said `agents trust`.

    \b
    Example:
      agents actor list --format json
    """
    rows = [actor_row(listing) for listing in library_here(session).list()]
    columns = columns_for(output, ["name", "origin", "trusted", "description"], spare=["origin", "trusted"])
    shown = rows if output.for_programs else [_marked(row) for row in rows]
    output.table(shown, columns, empty="there are no actors")
    if not output.for_programs:
        for row in rows:
            if row["problem"]:
                progress(f"{row['source']}: {row['problem']}")


@actor.command("show")
@click.argument("name", metavar="NAME_OR_FILE")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print its file, as one that can be kept and changed.")
@format_option
@pass_session
def show_actor(session: Session, name: str, as_yaml: bool, output: Output) -> None:
    """Show what an actor is made of: its nodes, its state and its limits; of other agents, what they run and
    what of yours they get.

    With --yaml the prompts stand in the file itself, and a shipped actor is called `mine/…`: kept among your
    actors, it is one of yours.

    \b
    Example:
      agents actor show builtin/strategist
      agents actor show actors/triage.yaml --format json
      agents actor show external/codex --yaml > ~/.config/cleveragents/actors/codex.yaml
    """
    from cleveragents.actors.drawing import node_type
    from cleveragents.api.actor_text import agent_facts, own_text

    if as_yaml and name == "-":
        raise click.UsageError("--yaml prints the file of an actor, and - is none")
    shown = named_actor(session, name)
    file = None if name == "-" else library_here(session).file_of(name)
    if as_yaml and file is not None:
        click.echo(own_text(file), nl=False)
        return
    whole = {**actor_account(shown), "file": None if file is None else str(file)}
    if output.for_programs:
        output.record(FrozenObject(whole))
        return
    said = {"name": shown.name, "description": " ".join(shown.description.split()), "model": shown.model}
    limits = {f"at most {name}": limit for name, limit in asdict(shown.limits).items()}
    facts: dict[str, JsonValue] = {**said, "read only": shown.read_only, **limits, "file": whole["file"]}
    output.record({name: value for name, value in facts.items() if value is not None})
    output.title("nodes")
    nodes = [
        {"name": node.name, "type": node_type(node), "next": ", ".join(node.next)} for node in shown.nodes
    ]
    output.table(nodes, ["name", "type", "next"], empty="")
    for node in shown.nodes:
        if isinstance(node, AgentNode):
            output.title("what it runs, and gets of yours" if len(nodes) == 1 else f"what {node.name} runs")
            output.record(agent_facts(node))
    if shown.state:
        output.title("state")
        columns = ["name", "type", "reducer", "description"]
        output.table(_rows(whole["state"]), columns, empty="")


@actor.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
@pass_session
def validate_actors(session: Session, files: tuple[Path, ...], output: Output) -> None:
    """Check the actors of YAML files; - reads standard input.

    Every mistake is named with its line and a remedy. Actors that name each other may be checked together.
    Ends with 0 if all are valid, else with 2.

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
    if not output.for_programs:
        for one in judged:
            if one.error is not None:
                tell_problems(f"{one.error.source} is not a valid actor", one.error.problems)
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
@click.argument("name", metavar="NAME_OR_FILE")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="As text for Mermaid, instead of a tree.")
@format_option
@pass_session
def draw_actor(session: Session, name: str, as_mermaid: bool, output: Output) -> None:
    """Draw an actor: which node follows which, and on which condition.

    \b
    Example:
      agents actor graph builtin/reviewer
      agents actor graph triage.yaml --mermaid > triage.mmd
    """
    from cleveragents.actors.drawing import mermaid

    drawn = named_actor(session, name)
    if output.for_programs:
        output.record(actor_graph(drawn))
    elif as_mermaid:
        click.echo(mermaid(drawn), nl=False)
    else:
        _print_tree(drawn, styled=output.for_eyes)


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
    """Actors that are checked at once count before those that are kept."""

    library: ActorLibrary
    known: dict[str, Actor]

    def get(self, name: str) -> Actor:
        return self.known[name] if name in self.known else self.library.get(name)


def _print_tree(drawn: Actor, *, styled: bool) -> None:
    from cleveragents.actors.drawing import tree

    # In a pipe it is as wide as it has to be.
    width = None if styled else 1000
    console(width=width, no_color=not styled or colour() is False).print(tree(drawn))


def _marked(row: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    return row if row["problem"] is None else {**row, "description": f"broken: {row['problem']}"}


def _rows(value: JsonValue) -> list[Mapping[str, JsonValue]]:
    many = value if isinstance(value, (list, tuple)) else ()
    return [row for row in many if isinstance(row, Mapping)]
