"""Actions, through every client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import (
    ActionExists,
    ConfigurationError,
    InvalidAction,
    NotAllowed,
    NotTrusted,
    RequestRefused,
    UnknownAction,
    UnknownResource,
)
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

FORMAT = """\
name: team/format
description: |-
  Formats the code.
  All of it.
arguments:
  path: {type: string, description: what to format, default: src}
execute:
  steps:
    - {tool: command, with: {argv: [make, "format-${path}"]}}
checks: [{name: tests, command: pytest -q}]
"""


@pytest.fixture
def admin(client_of: ClientOf) -> Iterator[Client]:
    made = client_of("admin")
    yield made
    if any(row.origin == "user" for row in made.actions.list(limit=1000).items):
        made.actions.remove("team/format")


def test_an_action_is_added_listed_found_and_removed(
    server: PlanServer, client: Client, admin: Client
) -> None:
    made = admin.actions.add(FORMAT)
    assert (made.name, made.steps[0].given) == ("team/format", {"argv": ["make", "format-${path}"]})
    assert client.actions.get("team/format") == made
    assert as_json(made) == server.get("/actions/team/format")
    assert as_json(made)["steps"][0]["with"] == made.steps[0].given
    (row,) = [one for one in client.actions.list(limit=1000).items if one.name == "team/format"]
    assert (row.origin, row.trusted, row.description) == ("user", True, "Formats the code.")
    with pytest.raises(ActionExists):
        admin.actions.add(FORMAT)
    assert admin.actions.add(FORMAT.encode(), replace=True) == made
    admin.actions.remove("team/format")
    with pytest.raises(UnknownAction):
        client.actions.get("team/format")


def test_pages_follow_each_other(client: Client) -> None:
    found = [row.name for row in every(lambda after: client.actions.list(limit=1, after=after))]
    assert found == [row.name for row in client.actions.list(limit=1000).items]
    assert found == sorted(found)
    assert "builtin/replace" in found


def test_every_mistake_is_named_with_the_source(admin: Client) -> None:
    with pytest.raises(InvalidAction) as caught:
        admin.actions.add(FORMAT.replace("tool: command", "tool: comand").replace("arguments", "argument"))
    assert len(caught.value.problems) >= 2
    for wrong in ("", b"\xff\xfe"):
        with pytest.raises((InvalidAction, RequestRefused)):
            admin.actions.add(wrong)
    with pytest.raises(InvalidAction) as caught:
        admin.actions.add("- 1\n", source="format.yaml")
    assert caught.value.source == "format.yaml"


@pytest.mark.parametrize("name", ["team/nothing", "nonsense", "a/b/c", "../../users", "a/b.yaml", ""])
def test_an_action_that_does_not_exist_is_an_error_with_its_name(
    client: Client, admin: Client, name: str
) -> None:
    with pytest.raises(UnknownAction) as caught:
        client.actions.get(name)
    assert caught.value.name == name
    with pytest.raises(UnknownAction):
        admin.actions.remove(name)


def test_a_shipped_action_cannot_be_removed(admin: Client) -> None:
    with pytest.raises(ConfigurationError):
        admin.actions.remove("builtin/replace")


def test_only_a_server_admin_adds_and_removes_actions(client: Client) -> None:
    with pytest.raises(NotAllowed) as caught:
        client.actions.add(FORMAT)
    assert caught.value.name == "operator"
    with pytest.raises(NotAllowed):
        client.actions.remove("builtin/replace")


def test_actions_of_a_repository_are_listed_and_given_out_once_trusted(
    server: PlanServer, client: Client
) -> None:
    file = server.repository / ".cleveragents" / "actions" / "own.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FORMAT.replace("team/", "shop/"))
    rows = {row.name: row for row in client.actions.list(resource="shop", limit=1000).items}
    assert (rows["shop/format"].origin, rows["shop/format"].trusted) == ("repository", False)
    with pytest.raises(NotTrusted) as caught:
        client.actions.get("shop/format", resource="shop")
    assert caught.value.resource == "shop"


def test_a_foreign_resource_does_not_exist(client: Client, foreign: str) -> None:
    for name in (foreign, "nothing"):
        with pytest.raises(UnknownResource):
            client.actions.list(resource=name)
        with pytest.raises(UnknownResource):
            client.actions.get("builtin/replace", resource=name)


def test_a_directory_of_the_machine_is_for_its_owner(client: Client) -> None:
    with pytest.raises((NotAllowed, RequestRefused)):
        client.actions.list(repository=Path())
