"""`agents user`: users, roles and tokens, from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cleveragents.access.model.user import TokenKind
from cleveragents.access.store.sql_user_store import SqlUserStore
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import open_database
from tests.cli_bench import Agents, command_line, use_home


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capfd) as run:
        yield run


def owner_of(secret: str, directory: Path) -> str | None:
    """Whose token it is, as a server would find."""
    with open_database(f"sqlite:///{directory / 'state' / 'state.db'}") as database:
        found = SqlUserStore(database, UlidSource()).known_by(
            secret, TokenKind.PROGRAM, now=datetime.now(UTC)
        )
    return None if found is None else found[0].name


def test_a_token_goes_to_stdout_alone_and_once(agents: Agents, tmp_path: Path) -> None:
    agents("user", "add", "ada", "--role", "admin")
    made = agents("user", "token", "ada", "--label", "laptop")
    secret = made.out.strip()
    assert owner_of(secret, tmp_path) == "ada"
    assert secret not in made.err
    for again in (agents("user", "token", "ada", "--list"), agents("events", "tail"), agents("user", "list")):
        assert again.code == 0
        assert secret.removeprefix("agents_sk_") not in again.out + again.err


def test_a_token_is_listed_with_its_label_and_revoked_by_its_id(agents: Agents, tmp_path: Path) -> None:
    agents("user", "add", "ada")
    made = json.loads(agents("user", "token", "ada", "--days", "2", "--format", "json").out)
    listed = json.loads(agents("user", "token", "ada", "--list", "--format", "json").out)
    secret = made.pop("token")
    assert listed == [made]
    assert made["expires"] is not None
    agents("user", "add", "bob")
    assert agents("user", "token", "bob", "--revoke", made["id"]).code == 2
    assert owner_of(secret, tmp_path) == "ada"
    assert agents("user", "token", "ada", "--alone").code == 2
    revoked = agents("user", "token", "ada", "--revoke", made["id"])
    assert (revoked.code, "and all tokens created with it" in revoked.err) == (0, True)
    assert owner_of(secret, tmp_path) is None
    assert agents("user", "token", "ada", "--list").err.strip() == "ada has no tokens"
    assert agents("user", "token", "ada", "--list", "--revoke", "x").code == 2


def test_users_are_listed_with_their_roles_and_tokens(agents: Agents) -> None:
    assert agents("user", "list").err.strip() == "no users yet"
    agents("user", "add", "ada", "--role", "admin")
    agents("user", "add", "bob")
    agents("user", "token", "bob")
    agents("user", "role", "bob", "operator")
    rows = json.loads(agents("user", "list", "--format", "json").out)
    told = [(row["name"], row["role"], row["tokens"]) for row in rows]
    assert told == [("ada", "admin", 0), ("bob", "operator", 1)]
    assert agents("user", "remove", "bob").code == 0
    assert "bob" not in agents("user", "list").out


def test_impossible_requests_name_the_reason(agents: Agents) -> None:
    agents("user", "add", "ada", "--role", "admin")
    assert "already" in agents("user", "add", "ada").err
    assert "lower-case letters" in agents("user", "add", "Ada").err
    for refused in (agents("user", "remove", "ada"), agents("user", "role", "ada", "viewer")):
        assert (refused.code, "the user is the last admin" in refused.err) == (1, True)
    for missing in (agents("user", "remove", "bob"), agents("user", "token", "bob")):
        assert (missing.code, "agents user list" in missing.err) == (2, True)
    assert agents("user", "add", "bob", "--role", "king").code == 2
