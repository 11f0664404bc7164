"""Users and tokens, through every client."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import (
    AlreadyThere,
    InvalidName,
    NotAllowed,
    RequestRefused,
    StillUsed,
    UnknownProject,
    UnknownUser,
)
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer

NOBODY = ["nobody", "a/b", "..", "", "Ada", "x" * 65, "ada?x=1"]
Change = Callable[[Client], object]


@pytest.fixture
def admin(client_of: ClientOf) -> Client:
    return client_of("admin")


@pytest.fixture
def ada(server: PlanServer, admin: Client) -> str:
    known = [user.name for user in server.bench.container.users.list()]
    name = f"ada{len(known)}"
    admin.users.add(name)
    return name


def test_a_user_is_added_found_and_removed(server: PlanServer, admin: Client) -> None:
    made = admin.users.add("eve", Role.OPERATOR, project="team")
    assert (made.name, made.role, made.projects) == ("eve", Role.OPERATOR, {"team": Role.OPERATOR})
    assert admin.users.get("eve") == made
    assert as_json(made) == server.bench.admin.get("/api/users/eve").json()
    assert made in admin.users.list().items
    admin.users.remove("eve")
    with pytest.raises(UnknownUser):
        admin.users.get("eve")


def test_users_are_listed_by_name_in_pages(admin: Client, ada: str) -> None:
    found = [user.name for user in every(lambda after: admin.users.list(limit=1, after=after))]
    assert found == sorted(found)
    assert {"admin", "operator", "viewer", ada} <= set(found)


def test_a_role_is_changed(admin: Client, ada: str) -> None:
    assert admin.users.set_role(ada, Role.OPERATOR).projects == {"default": Role.OPERATOR}
    assert admin.users.set_role(ada, Role.ADMIN).role is Role.ADMIN
    assert admin.users.get(ada).role is Role.ADMIN
    admin.users.remove(ada)


def test_the_last_server_admin_stays(server: PlanServer, admin: Client) -> None:
    admins = [user.name for user in server.bench.container.users.list() if user.is_server_admin]
    assert admins == ["admin"]
    for change in (lambda: admin.users.remove("admin"), lambda: admin.users.set_role("admin", Role.VIEWER)):
        with pytest.raises(StillUsed) as caught:
            change()
        assert caught.value.name == "admin"


@pytest.mark.parametrize("name", NOBODY)
def test_a_user_who_does_not_exist_is_an_error_with_the_name(admin: Client, name: str) -> None:
    changes: list[Change] = [
        lambda client: client.users.get(name),
        lambda client: client.users.set_role(name, Role.VIEWER),
        lambda client: client.users.remove(name),
        lambda client: client.users.tokens(name),
        lambda client: client.users.issue_token(name),
        lambda client: client.users.revoke_token(name),
    ]
    for change in changes:
        with pytest.raises(UnknownUser) as caught:
            change(admin)
        assert caught.value.name == name


def test_an_invalid_entry_is_an_error_with_its_fields(admin: Client) -> None:
    with pytest.raises(AlreadyThere) as there:
        admin.users.add("viewer")
    assert (there.value.what, there.value.name) == ("user", "viewer")
    with pytest.raises(InvalidName) as invalid:
        admin.users.add("Not A Name")
    assert (invalid.value.what, invalid.value.name) == ("user", "Not A Name")
    for project in ("nowhere", "No/Name"):
        with pytest.raises(UnknownProject) as unknown:
            admin.users.add("new", project=project)
        assert unknown.value.name == project


def test_a_token_is_issued_listed_and_revoked(server: PlanServer, admin: Client, ada: str) -> None:
    container = server.bench.container
    made = admin.users.issue_token(ada, label="laptop", days=3)
    assert (made.kind, made.label) == (TokenKind.PROGRAM, "laptop")
    assert made.expires is not None
    assert (made.expires - made.created).days == 3
    found = container.users.known_by(made.token, TokenKind.PROGRAM, now=container.clock.now())
    assert found is not None
    assert found[0].name == ada
    (listed,) = admin.users.tokens(ada).items
    assert as_json(made) == {**as_json(listed), "token": made.token}
    admin.users.revoke_token(made.id)
    assert admin.users.tokens(ada).items == ()
    with pytest.raises(UnknownUser) as caught:
        admin.users.revoke_token(made.id)
    assert caught.value.name == made.id


def test_tokens_are_listed_in_pages(admin: Client, ada: str) -> None:
    made = [admin.users.issue_token(ada, label=label).id for label in ("a", "b", "c")]
    found = [token.id for token in every(lambda after: admin.users.tokens(ada, limit=1, after=after))]
    assert found == made


def test_a_user_manages_only_their_own_tokens(server: PlanServer, client_of: ClientOf, ada: str) -> None:
    viewer = client_of("viewer")
    assert viewer.users.get("viewer").name == "viewer"
    own = viewer.users.issue_token("viewer", label="own")
    assert own.id in [token.id for token in viewer.users.tokens("viewer").items]
    theirs = client_of("admin").users.issue_token(ada)
    with pytest.raises(UnknownUser) as caught:
        viewer.users.revoke_token(theirs.id)
    assert caught.value.name == theirs.id
    viewer.users.revoke_token(own.id)
    with pytest.raises(NotAllowed):
        viewer.users.tokens(ada)
    with pytest.raises(NotAllowed):
        viewer.users.issue_token(ada)


@pytest.mark.parametrize("name", ["viewer", "operator"])
def test_users_are_managed_by_server_admins_alone(client_of: ClientOf, name: str) -> None:
    changes: list[Change] = [
        lambda client: client.users.list(),
        lambda client: client.users.get("admin"),
        lambda client: client.users.add("mallory"),
        lambda client: client.users.set_role(name, Role.ADMIN),
        lambda client: client.users.remove("admin"),
    ]
    for change in changes:
        with pytest.raises(NotAllowed) as caught:
            change(client_of(name))
        assert (caught.value.name, caught.value.role, caught.value.needed) == (name, name, "admin")


def test_no_token_outlives_the_token_that_makes_it(server: PlanServer, client_of: ClientOf, ada: str) -> None:
    short = client_of("admin").users.issue_token(ada, days=1)
    own = client_of(f"{ada}:{short.token}")
    made = own.users.issue_token(ada)
    assert (made.expires, made.made_with) == (short.expires, short.id)
    with pytest.raises(RequestRefused, match="your own token expires at"):
        own.users.issue_token(ada, days=2)
    with pytest.raises(RequestRefused):
        own.users.revoke_token(short.id, alone=True)
    own.users.revoke_token(short.id)
    assert client_of("admin").users.tokens(ada).items == ()
