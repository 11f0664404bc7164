"""The configuration of MCP servers: precedence, refusals and variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.core.errors import ConfigurationError, InvalidToolCall, ToolRefused
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.text.redaction import KnownSecrets, redact_text
from cleveragents.storage.database import open_database
from cleveragents.tools.mcp.configuration import load_mcp, parse_servers, user_mcp_file
from cleveragents.tools.mcp.connection import filled
from cleveragents.tools.mcp.gate import UserNamedGate
from cleveragents.tools.mcp.server_entry import McpServer
from cleveragents.tools.mcp.tool_list import full_name
from cleveragents.tools.mcp.tools import check_arguments
from tests.ready_database import ready_database


def text(**servers: object) -> str:
    return json.dumps({"mcpServers": servers})


@pytest.fixture
def trust(tmp_path: Path) -> Iterator[SqlTrustStore]:
    with open_database(ready_database(tmp_path / "state.db")) as database:
        yield SqlTrustStore(database, UlidSource())


def test_reads_both_kinds_of_servers_in_the_common_format() -> None:
    servers = parse_servers(
        text(
            near={"command": "npx", "args": ["-y", "x"], "env": {"A": "b"}, "cwd": "sub", "type": "stdio"},
            far={"url": "https://x.test/mcp", "headers": {"H": "v"}, "type": "http", "autoApprove": []},
            off={"command": "x", "disabled": True},
        ),
        "mcp.json",
        own=True,
    )
    assert sorted(servers) == ["far", "near"]
    near, far = servers["near"], servers["far"]
    assert (near.command, dict(near.environment), near.directory) == (("npx", "-y", "x"), {"A": "b"}, "sub")
    assert (far.url, dict(far.headers), far.isolated) == ("https://x.test/mcp", {"H": "v"}, True)
    assert parse_servers("{}", "mcp.json", own=True) == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON: .*line 1"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "must be a JSON object"),
        ('{"servers": {}}', 'has no "mcpServers"'),
        ('{"mcpServers": []}', "object of servers by name"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' twice"),
        (text(a="x"), "must be an object with"),
        (text(a={}), "either `command`.*or `url`"),
        (text(a={"command": "x", "url": "http://x"}), "either `command`"),
        (text(a={"command": "x", "headers": {}}), "`headers` cannot be used with `command`"),
        (text(a={"url": "http://x", "args": []}), "`args` cannot be used with `url`"),
        (text(a={"command": "x", "arg": []}), "unknown key 'arg'; did you mean 'args'"),
        (text(a={"command": "x", "zzz": 1}), "unknown key 'zzz'; expected command"),
        (text(a={"command": ""}), "`command` must be a string"),
        (text(a={"command": "x", "args": "y"}), "`args` must be a list of strings"),
        (text(a={"command": "x", "env": {"A": 1}}), "`env` must be an object of strings"),
        (text(a={"command": "x", "isolated": "no"}), "`isolated` must be true or false"),
        (text(a={"command": "x", "disabled": 1}), "`disabled` must be true or false"),
        (text(a={"url": "ftp://x"}), "must begin with http"),
        (text(a={"url": "http://x", "type": "sse"}), "unknown type 'sse'; use stdio"),
        (text(a={"command": "x", "type": 1}), "unknown type 1; use stdio"),
        (text(a__b={"command": "x"}), "the name must consist of"),
        (text(**{"a b": {"command": "x"}}), "the name must consist of"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_correction(content: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s)^mcp.json: .*{words}"):
        parse_servers(content, "mcp.json", own=True)


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(ConfigurationError, match=r"server 'a'.*server 'b'"):
        parse_servers(text(a={}, b={"command": 1}), "mcp.json", own=True)


def test_only_the_trusted_content_of_a_repository_counts(tmp_path: Path, trust: SqlTrustStore) -> None:
    mine, repository = tmp_path / "mcp.json", tmp_path / "repository"
    repository.mkdir()
    assert load_mcp(mine, repository, trust).servers == {}
    mine.write_text(text(both={"command": "mine"}))
    theirs = repository / ".mcp.json"
    theirs.write_text(text(both={"command": "theirs"}, extra={"command": "theirs"}))
    before = load_mcp(mine, repository, trust)
    assert (list(before.servers), list(before.untrusted)) == (["both"], ["extra"])
    assert f"{theirs} is not trusted" in before.notes[0]
    trust.give(repository, trust.survey(repository).files)
    after = load_mcp(mine, repository, trust)
    assert {name: server.own for name, server in after.servers.items()} == {"both": True, "extra": False}
    assert after.servers["both"].command == ("mine",)
    assert "you have one with that name" in after.notes[0]
    theirs.write_text(text(extra={"command": "something else"}))
    assert list(load_mcp(mine, repository, trust).servers) == ["both"]
    assert load_mcp(mine).servers.keys() == {"both"}


def test_a_repository_cannot_disable_isolation(tmp_path: Path, trust: SqlTrustStore) -> None:
    (tmp_path / ".mcp.json").write_text(text(a={"command": "x", "isolated": False}))
    trust.give(tmp_path, trust.survey(tmp_path).files)
    with pytest.raises(ConfigurationError, match="a repository must not set"):
        load_mcp(tmp_path / "none.json", tmp_path, trust)
    assert parse_servers(text(a={"command": "x", "isolated": False}), "f", own=True)["a"].isolated is False


def test_an_unreadable_repository_file_does_not_block(tmp_path: Path, trust: SqlTrustStore) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    file = repository / ".mcp.json"
    file.symlink_to(tmp_path / "outside.json")
    (tmp_path / "outside.json").write_text(text(a={"command": "x"}))
    found = load_mcp(tmp_path / "none.json", repository, trust)
    assert not found.servers
    assert "the file is not used" in found.notes[0]
    file.unlink()
    wrong = {"{": "is not valid JSON", '{"mcpServers": 1}': "must be an object", '{"servers": {}}': "has no"}
    for content, why in wrong.items():
        file.write_text(content)
        found = load_mcp(tmp_path / "none.json", repository, trust)
        assert not found.untrusted
        (note,) = found.notes
        assert (str(file) in note, why in note, "the file is not used" in note) == (True, True, True), note


def test_variables_are_filled_in_and_their_values_masked() -> None:
    server = McpServer(
        "a",
        "mcp.json",
        True,
        ("${HOME}/bin/x", "${WHERE:-there}", "$HOME", "${EMPTY:-full}"),
        environment={"KEY": "${MY_PAT}", "PLAIN": "plain words here", "API_TOKEN": "written-down-1"},
        headers={"Authorization": "Bearer written-down-2"},
        url="https://${HOST}/mcp",
    )
    secrets = KnownSecrets()
    given = {"HOME": "/home/somebody", "MY_PAT": "pat-0123456789", "HOST": "h.test", "EMPTY": ""}
    made = filled(UserNamedGate([server.name]).permit(server), given, secrets)
    assert made.command == ("/home/somebody/bin/x", "there", "$HOME", "full")
    assert (made.environment["KEY"], made.url) == ("pat-0123456789", "https://h.test/mcp")
    said = redact_text("/home/somebody plain words here pat-0123456789 written-down-1 written-down-2")
    assert said == "/home/somebody plain words here *** *** ***"
    assert "pat-0123456789" not in repr(made)


def test_an_unset_variable_is_named_and_ours_are_never_passed() -> None:
    server = McpServer("a", "mcp.json", True, ("x", "${ONE}", "${CLEVERAGENTS_SERVER_TOKEN}"))
    with pytest.raises(
        ToolRefused, match=r"mcp\.json needs the environment variable ONE, CLEVERAGENTS_SERVER_TOKEN"
    ):
        filled(UserNamedGate(["a"]).permit(server), {"CLEVERAGENTS_SERVER_TOKEN": "ours"}, KnownSecrets())


def test_the_users_file_is_beside_their_settings() -> None:
    found = user_mcp_file({"XDG_CONFIG_HOME": "/c"})
    assert found == Path("/c/cleveragents/mcp.json")


def test_altered_names_stay_distinct() -> None:
    long = "x" * 80
    names = {full_name("s", name) for name in ("a.b", "a/b", "a_b", long, long + "y")}
    assert len(names) == 5
    assert all(len(name) <= 64 for name in names)
    assert full_name("s", "a_b") == "mcp__s__a_b"


def test_an_untrusted_schema_neither_fetches_nor_hangs() -> None:
    stalling = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    check_arguments("t", stalling, {"a": "a" * 40 + "!"})
    check_arguments("t", {"$ref": "http://127.0.0.1:9/schema"}, {"a": 1})
    check_arguments("t", {"type": 7}, {"a": 1})
    # Each reference doubles the work: 2 to the power of 40 steps.
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    check_arguments("t", {"$defs": {**twice, "d40": {}}, "$ref": "#/$defs/d0"}, {"a": 1})
    with pytest.raises(InvalidToolCall, match="invalid argument 'a': 1 is not of type 'string'"):
        check_arguments("t", stalling, {"a": 1})
    with pytest.raises(InvalidToolCall) as many:
        check_arguments("t", {"required": [str(number) for number in range(20)]}, {})
    assert str(many.value).count(";") == 4


@pytest.mark.parametrize(
    ("key", "facts"), [("env", {"command": "x"}), ("headers", {"url": "http://x"})], ids=["env", "headers"]
)
@pytest.mark.parametrize("name", ["", "a b", "a\nb", 'password="', "a:", "x" * 201])
def test_refuses_an_env_or_header_name_with_odd_characters(
    key: str, facts: dict[str, object], name: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"`{key}` has the name"):
        parse_servers(json.dumps({"mcpServers": {"a": {**facts, key: {name: "x"}}}}), "f", own=True)
    assert parse_servers(json.dumps({"mcpServers": {"a": {**facts, key: {"X-a_1.b": "x"}}}}), "f", own=True)
