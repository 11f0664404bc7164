"""`agents actor` and `agents model`, asked of a server.

What is only about a file of the user's, such as whether it is a valid actor, needs none.
"""

from __future__ import annotations

from typing import Any

import click

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.api.model_account import model_row
from cleveragents.cli.admin import actor as local_actor
from cleveragents.cli.admin import model as local_model
from cleveragents.cli.client.selection import connected
from cleveragents.cli.client.twins import ClientGroup, client_command
from cleveragents.cli.output import Output, printable, progress
from cleveragents.cli.render.narrow import columns_for
from cleveragents.cli.session import Session

__all__ = ["actor", "model"]

_LISTED = ["name", "origin", "trusted", "description"]
_resource = click.Option(
    ["--resource"], metavar="NAME", help="What the repository of this resource brings along, too."
)


def _list_actors(session: Session, resource: str | None, output: Output) -> None:
    _show_listed(list(connected(session).pages("/actors", resource=resource)), output, "there are no actors")


def _show_listed(rows: list[dict[str, Any]], output: Output, empty: str) -> None:
    output.table(rows, columns_for(output, _LISTED, spare=["origin", "trusted"]), empty=empty)
    if not output.for_programs:
        for row in rows:
            if row["problem"]:
                progress(f"{row['source']}: {row['problem']}")


def _show_actor(session: Session, name: str, as_yaml: bool, resource: str | None, output: Output) -> None:
    if _is_file(name):
        _done_here(local_actor.show_actor, name=name, as_yaml=as_yaml, output=output)
        return
    found = connected(session).get(f"/actors/{_titled(name)}", resource=resource)
    text, graph = found.pop("yaml"), found.pop("graph")
    if as_yaml:
        click.echo(text, nl=False)
    elif output.for_programs:
        output.record(found)
    else:
        said = {"name": found["name"], "description": " ".join(found["description"].split())}
        output.record({**said, **({"model": found["model"]} if found.get("model") else {})})
        output.title("nodes")
        after: dict[str, list[str]] = {}
        for edge in graph["edges"]:
            after.setdefault(edge["from"], []).append(edge["to"])
        nodes = [{**node, "next": ", ".join(after.get(node["name"], ()))} for node in graph["nodes"]]
        output.table(nodes, ["name", "type", "next"], empty="")


def _draw_actor(session: Session, name: str, as_mermaid: bool, resource: str | None, output: Output) -> None:
    if _is_file(name):
        _done_here(local_actor.draw_actor, name=name, as_mermaid=as_mermaid, output=output)
        return
    graph = connected(session).get(f"/actors/{_titled(name)}", resource=resource)["graph"]
    if output.for_programs:
        output.record(graph)
    elif as_mermaid:
        click.echo(graph["mermaid"], nl=False)
    else:
        nodes = {node["name"]: node["type"] for node in graph["nodes"]}
        rows = [
            {
                "node": edge["from"],
                "type": nodes.get(edge["from"], ""),
                "next": edge["to"],
                "when": edge["when"],
            }
            for edge in graph["edges"]
        ]
        output.table(rows, ["node", "type", "next", "when"], empty="it has one node, and ends with it")


def _titled(name: str) -> str:
    namespace, slash, rest = name.partition("/")
    if not slash or not namespace or not rest or "/" in rest or "." in name:
        raise click.UsageError(f"{name!r} is no NAMESPACE/NAME")
    return name


def _is_file(name: str) -> bool:
    return name == "-" or is_actor_file(name)


def _done_here(command: click.Command, **given: Any) -> None:
    click.get_current_context().invoke(command, **given)


def _show_model(session: Session, name: str, output: Output) -> None:
    (found,) = connected(session).get("/models", name=name)["items"]
    output.record(found if output.for_programs else model_row(found))
    if not output.for_programs:
        progress("prices in dollars per million tokens")


def _list_models(session: Session, provider: str | None, output: Output) -> None:
    rows = list(connected(session).pages("/models", provider=provider))
    rows = rows if output.for_programs else [model_row(row) for row in rows]
    columns = columns_for(
        output, ["model", "input", "output", "context_tokens", "key"], ["context_tokens"], 70
    )
    columns = columns_for(output, columns, spare=["input", "output"], width=50)
    output.table(rows, columns, empty=f"no model of {provider} is listed; it may work all the same")
    if rows and not output.for_programs:
        progress("prices in dollars per million tokens")


def _test_model(session: Session, name: str | None, prompt: str, output: Output) -> None:
    told = connected(session).post("/models/trial", {"model": name, "prompt": prompt})
    if output.for_eyes:
        click.echo("\n".join(printable(line) for line in str(told["answer"]).split("\n")))
    output.record(told)


actor = ClientGroup(
    local_actor.actor,
    {
        "list": client_command(local_actor.list_actors, _list_actors, more=(_resource,)),
        "show": client_command(local_actor.show_actor, _show_actor, more=(_resource,)),
        "graph": client_command(local_actor.draw_actor, _draw_actor, more=(_resource,)),
    },
    here=("validate", "schema"),
    refused={
        "run": "without a plan, an actor works in your terminal: `agents --server local actor run`; "
        "`agents run --actor` makes a plan of it"
    },
)
model = ClientGroup(
    local_model.model,
    {
        "list": client_command(local_model.list_models, _list_models),
        "show": client_command(local_model.show_model, _show_model),
        "test": client_command(local_model.test_model, _test_model),
    },
)
