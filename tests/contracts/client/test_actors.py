"""Actors, through every client."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.actors.library import user_actors_directory
from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import NotAllowed, NotTrusted, RequestRefused, UnknownActor, UnknownResource
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

TRIAGE = """\
name: team/triage
type: llm
description: Says what an issue is about.
prompt: Say in one sentence what this is about.
"""


def test_actors_are_listed_in_pages_and_found(server: PlanServer, client: Client) -> None:
    found = [row.name for row in every(lambda after: client.actors.list(limit=1, after=after))]
    assert found == [row.name for row in client.actors.list(limit=1000).items]
    assert found == sorted(found)
    assert "builtin/executor" in found
    actor = client.actors.get("builtin/executor")
    assert actor.graph.nodes[0].name == actor.entry
    assert actor.graph.edges[0].source == actor.entry
    assert (actor.yaml.count("name: mine/executor"), actor.file) == (1, None)
    shown = server.get("/actors/builtin/executor")
    assert as_json(actor) == shown
    assert shown["graph"]["edges"][0]["from"] == actor.entry


@pytest.mark.parametrize("name", ["team/nothing", "nonsense", "a/b/c", "../../users", "a/b.yaml", "", "-"])
def test_an_actor_that_does_not_exist_is_an_error_with_its_name(client: Client, name: str) -> None:
    with pytest.raises(UnknownActor) as caught:
        client.actors.get(name)
    assert caught.value.name == name


def test_a_yaml_is_an_actor_or_every_mistake_is_named(client: Client) -> None:
    right = client.actors.validate(TRIAGE)
    assert (right.valid, right.name, right.problems) == (True, "team/triage", ())
    assert right.graph is not None
    assert [node.type for node in right.graph.nodes] == ["llm"]
    wrong = client.actors.validate(TRIAGE.replace("type: llm", "type: lm").replace("prompt", "promt"))
    assert (wrong.valid, wrong.name, wrong.graph) == (False, None, None)
    assert wrong.problems
    assert client.actors.validate("").problems


def test_a_viewer_cannot_validate_an_actor(client_of: ClientOf) -> None:
    with pytest.raises(NotAllowed) as caught:
        client_of("viewer").actors.validate(TRIAGE)
    assert caught.value.name == "viewer"


def test_where_actors_are_kept_is_for_server_admins(
    client: Client, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    kept = user_actors_directory() / "triage.yaml"
    kept.parent.mkdir(parents=True)
    kept.write_text(TRIAGE)
    for one, source, file in ((client, kept.name, None), (client_of("admin"), str(kept), str(kept))):
        rows = {row.name: row for row in one.actors.list(limit=1000).items}
        assert rows["team/triage"].source == source
        assert one.actors.get("team/triage").file == file


def test_an_actor_of_a_repository_is_given_out_once_trusted(server: PlanServer, client: Client) -> None:
    file = server.repository / ".cleveragents" / "actors" / "own.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TRIAGE.replace("team/", "shop/"))
    rows = {row.name: row for row in client.actors.list(resource="shop", limit=1000).items}
    assert (rows["shop/triage"].origin, rows["shop/triage"].trusted) == ("repository", False)
    with pytest.raises(NotTrusted) as caught:
        client.actors.get("shop/triage", resource="shop")
    assert caught.value.resource == "shop"


def test_a_foreign_resource_does_not_exist(client: Client, foreign: str) -> None:
    for name in (foreign, "nothing"):
        with pytest.raises(UnknownResource):
            client.actors.list(resource=name)
        with pytest.raises(UnknownResource):
            client.actors.get("builtin/executor", resource=name)


def test_a_directory_of_the_machine_is_for_its_owner(client: Client) -> None:
    with pytest.raises((NotAllowed, RequestRefused)):
        client.actors.get("builtin/executor", repository=Path())
