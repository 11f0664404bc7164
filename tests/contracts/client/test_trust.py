"""Trust in files of a repository, through every client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleveragents.access.model.user import Role
from cleveragents.api.client import Client, LocalClient
from cleveragents.api.trust import Trust, TrustSurveyView
from cleveragents.api.views import as_json, every, view_of
from cleveragents.core.errors import (
    ChangedMeanwhile,
    ConfigurationError,
    NotAllowed,
    RequestRefused,
    UnknownResource,
)
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

ACTION = "name: team/greet\nexecute: {steps: [{tool: command, with: {argv: [touch, x]}}]}\n"
FILES = {
    ".cleveragents/actions/greet.yaml": ACTION,
    ".mcp.json": '{"mcpServers": {}}',
}
Ask = Callable[[Trust], object]


@pytest.fixture
def admin(client_of: ClientOf) -> Client:
    return client_of("admin")


@pytest.fixture
def brought(server: PlanServer, admin: Client) -> Iterator[Path]:
    """The repository of the resource `shop`, with files that need trust."""
    for name, content in FILES.items():
        (server.repository / name).parent.mkdir(parents=True, exist_ok=True)
        (server.repository / name).write_text(content)
    yield server.repository
    admin.trust.revoke("shop")
    for name in FILES:
        (server.repository / name).unlink()


def pairs(trust: Trust) -> list[tuple[str, str]]:
    return [(file.path, file.digest) for file in trust.survey("shop").files]


def test_files_are_shown_trusted_and_no_longer_trusted(
    server: PlanServer, admin: Client, brought: Path
) -> None:
    survey = admin.trust.survey("shop")
    assert (survey.resource, survey.refused) == ("shop", ())
    assert {file.path: (file.size, file.trusted) for file in survey.files} == {
        name: (len(content), False) for name, content in FILES.items()
    }
    (action,) = [file for file in survey.files if file.path.endswith("greet.yaml")]
    assert action.preview == ("runs: touch x",)
    assert survey == view_of(TrustSurveyView, server.bench.admin.get("/api/resources/shop/trust").json())
    given = admin.trust.give("shop", [(action.path, action.digest)])
    assert [file.path for file in given.files if file.trusted] == [action.path]
    assert admin.trust.survey("shop") == given
    (listed,) = admin.trust.list().items
    assert (listed.path, listed.digest) == (str(brought / action.path), action.digest)
    assert as_json(listed) in server.bench.admin.get("/api/trust").json()["items"]
    assert admin.trust.revoke("shop").paths == (listed.path,)
    assert admin.trust.revoke("shop").paths == ()


def test_trusted_contents_are_listed_by_path_in_pages(admin: Client, brought: Path) -> None:
    admin.trust.give("shop", pairs(admin.trust))
    found = [one.path for one in every(lambda after: admin.trust.list(limit=1, after=after))]
    assert found == sorted(str(brought / name) for name in FILES)


def test_a_file_that_changed_after_it_was_shown_is_not_trusted(admin: Client, brought: Path) -> None:
    seen = pairs(admin.trust)
    (brought / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "evil"}}}')
    with pytest.raises(ChangedMeanwhile) as caught:
        admin.trust.give("shop", seen)
    assert caught.value.files == ".mcp.json"
    assert admin.trust.list().items == ()
    many = [(f"file-{number}", "0" * 64) for number in range(7)]
    with pytest.raises(ChangedMeanwhile) as caught:
        admin.trust.give("shop", many)
    assert caught.value.files == "file-0, file-1, file-2, file-3, file-4 …"


def questions(name: str) -> list[Ask]:
    return [
        lambda trust: trust.survey(name),
        lambda trust: trust.give(name, [(".mcp.json", "0" * 64)]),
        lambda trust: trust.revoke(name),
    ]


@pytest.mark.parametrize("name", ["nothing", "a/b", "..", "", "Shop", "x" * 65])
def test_a_resource_that_does_not_exist_is_an_error_with_its_name(admin: Client, name: str) -> None:
    for ask in questions(name):
        with pytest.raises(UnknownResource) as caught:
            ask(admin.trust)
        assert caught.value.name == name


def test_a_role_that_is_too_small_is_refused(client_of: ClientOf) -> None:
    trust = client_of("operator").trust
    for ask in questions("shop"):
        with pytest.raises(NotAllowed) as caught:
            ask(trust)
        assert (caught.value.name, caught.value.needed) == ("operator", "admin in project team")
    with pytest.raises(NotAllowed) as caught:
        trust.list()
    assert caught.value.needed == "admin"


def test_the_admin_of_a_project_looks_and_revokes_and_does_not_trust(
    client_of: ClientOf, admin: Client, brought: Path
) -> None:
    admin.projects.set_member("team", "operator", Role.ADMIN)
    try:
        trust = client_of("operator").trust
        with pytest.raises(NotAllowed) as caught:
            trust.give("shop", pairs(trust))
        assert caught.value.needed == "admin"
        admin.trust.give("shop", pairs(admin.trust))
        assert len(trust.revoke("shop").paths) == 2
    finally:
        admin.projects.set_member("team", "operator", Role.OPERATOR)


def test_a_foreign_resource_is_as_one_that_does_not_exist(client_of: ClientOf, admin: Client) -> None:
    admin.projects.add("away")
    admin.resources.add("away-main", "away", remote="file:///nowhere/away.git", check=False)
    try:
        for ask in questions("away-main"):
            with pytest.raises(UnknownResource) as caught:
                ask(client_of("operator").trust)
            assert caught.value.name == "away-main"
    finally:
        admin.resources.remove("away-main")
        admin.projects.remove("away")


def test_a_path_is_one_of_this_machine(admin: Client, brought: Path) -> None:
    trust = admin.trust
    if not isinstance(admin, LocalClient):
        for ask in (
            lambda: trust.survey(brought),
            lambda: trust.give(brought, []),
            lambda: trust.revoke(brought),
        ):
            with pytest.raises(RequestRefused):
                ask()
        return
    survey = trust.survey(brought)
    assert (survey.resource, len(survey.files)) == (str(brought), 2)
    (file,) = trust.survey(brought / ".mcp.json").files
    with pytest.raises(ChangedMeanwhile):  # it is not the file that the path means
        trust.give(brought / ".mcp.json", [(one.path, one.digest) for one in survey.files])
    trust.give(brought / ".mcp.json", [(file.path, file.digest)])
    assert [one.path for one in trust.survey(brought).files if one.trusted] == [".mcp.json"]
    assert len(trust.revoke(brought).paths) == 1
    for wrong in (brought / "nothing", brought / "README.md"):
        with pytest.raises(ConfigurationError):
            trust.survey(wrong)


def test_a_path_is_for_server_admins(client_of: ClientOf, brought: Path) -> None:
    client = client_of("operator")
    if isinstance(client, LocalClient):
        asks: list[Callable[[], object]] = [
            lambda: client.trust.survey(brought),
            lambda: client.trust.give(brought, []),
            lambda: client.trust.revoke(brought),
        ]
        for ask in asks:
            with pytest.raises(NotAllowed):
                ask()
