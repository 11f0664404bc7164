"""Questions about repositories, through every client."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.client import Client
from cleveragents.api.views import as_json
from cleveragents.core.errors import NotAllowed, QuestionRefused, RequestRefused, UnknownResource
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

QUESTION = "Where is the colour?"


def test_a_question_is_answered_with_files_and_fragments(server: PlanServer, client: Client) -> None:
    (server.repository / "paint.py").write_text("def colour() -> str:\n    return 'the colour'\n")
    answer = client.context.ask(QUESTION, resource="shop", budget=500)
    assert answer.files[0] == "paint.py"
    assert [one.path for one in answer.ranking] == list(answer.files)
    assert answer.tokens <= answer.budget == 500
    assert answer.fragments[0].found_by[0].strategy
    assert answer.fragments[0].text in answer.text
    told = server.post("/context", {"question": QUESTION, "resource": "shop", "budget": 500})
    same = ("files", "fragments", "tokens", "ranking", "notes", "skeleton")
    assert {name: as_json(answer)[name] for name in same} == {name: told[name] for name in same}


def test_only_files_are_ranked_and_a_commit_is_searched(server: PlanServer, client: Client) -> None:
    new = server.repository / "colour_mixer.py"
    new.write_text("def mix_colour() -> str:\n    return 'colour'\n")
    try:
        answer = client.context.ask("mix_colour", resource="shop", fragments=False)
        assert (answer.fragments, "colour_mixer.py" in answer.files) == ((), True)
        before = client.context.ask("mix_colour", resource="shop", at="HEAD")
        assert "colour_mixer.py" not in before.files
    finally:
        new.unlink()
    with pytest.raises(RequestRefused) as caught:
        client.context.ask(QUESTION, resource="shop", at="v9")
    assert (caught.value.problem, caught.value.where) == ("resource shop has no commit v9", "at")


def test_a_place_without_files_is_noted(server: PlanServer, client: Client, tmp_path: Path) -> None:
    projects, now = server.bench.container.projects, server.bench.container.clock.now()
    projects.add_resource("hollow", "team", ResourceKind.DIRECTORY, str(tmp_path), now=now)
    try:
        answer = client.context.ask("zzqqxx", resource="hollow")
        assert (answer.files, answer.notes) == ((), ("there is no file in resource hollow",))
    finally:
        projects.remove_resource("hollow", now=now)


def test_without_a_question_or_a_place_it_is_refused(client: Client) -> None:
    with pytest.raises(QuestionRefused):
        client.context.ask("   ", resource="shop")
    with pytest.raises(RequestRefused) as caught:
        client.context.ask(QUESTION)
    assert caught.value.where == "resource"


def test_a_viewer_cannot_ask(client_of: ClientOf) -> None:
    with pytest.raises(NotAllowed) as caught:
        client_of("viewer").context.ask(QUESTION, resource="shop")
    assert caught.value.name == "viewer"


def test_a_foreign_resource_does_not_exist(client: Client, foreign: str) -> None:
    for name in (foreign, "nothing"):
        with pytest.raises(UnknownResource) as caught:
            client.context.ask(QUESTION, resource=name)
        assert caught.value.name == name


def test_a_directory_of_the_machine_is_for_its_owner(server: PlanServer, client: Client) -> None:
    with pytest.raises((NotAllowed, RequestRefused)):
        client.context.ask(QUESTION, repository=server.repository)
