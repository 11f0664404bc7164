"""Trust in files of a repository: by content, given by the user, and only inside the repository."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import select

from cleveragents.access.trust.repository_files import (
    RepositoryFile,
    read_inside,
    repository_paths,
    repository_root,
)
from cleveragents.access.trust.sql_trust_store import SqlTrustStore
from cleveragents.api.trust import preview
from cleveragents.core.errors import ConfigurationError, InvalidPayload
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.storage.database import Database, open_database
from cleveragents.storage.tables import outbox
from cleveragents.testing.clock import FakeClock
from tests.ready_database import ready_database


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    return root


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "state.db")) as opened:
        yield opened


@pytest.fixture
def trust(database: Database) -> SqlTrustStore:
    return SqlTrustStore(database, UlidSource(), FakeClock())


def write(root: Path, path: str, text: str = "x") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def events(database: Database, kind: str = "trust.given") -> list[tuple[str, dict[str, object]]]:
    with database.read() as connection:
        rows = connection.execute(select(outbox).order_by(outbox.c.number)).all()
    return [(row.subject, json.loads(row.payload)) for row in rows if row.event_type == kind]


def test_everything_that_needs_trust_is_found_and_nothing_else(root: Path, trust: SqlTrustStore) -> None:
    brought = [
        ".cleveragents.toml",
        ".mcp.json",
        ".cleveragents/actions/a.yaml",
        ".cleveragents/checks.yaml",
        ".cleveragents/checks/one.sh",
        ".cleveragents/checks/two.sh",
        ".claude/skills/x/SKILL.md",
        "SKILL.md",
        "skills/y/SKILL.md",
    ]
    others = [
        "README.md",
        ".cleveragents/actions/notes.txt",
        ".cleveragents/other.yaml",
        "node_modules/x/SKILL.md",
        ".git/SKILL.md",
        "a/b/c/d/e/f/g/h/i/SKILL.md",
    ]
    for path in [*brought, *others]:
        write(root, path, path)
    survey = trust.survey(root)
    assert sorted(file.path for file in survey.files) == sorted(brought)
    assert all(file.digest == sha256(file.path.encode()).hexdigest() for file in survey.files)
    assert survey.pending == survey.files
    assert survey.refused == ()


def test_a_repository_that_brings_nothing_needs_no_trust(root: Path, trust: SqlTrustStore) -> None:
    assert trust.survey(root).files == ()
    assert trust.look(root, ".mcp.json") is None
    assert trust.look(root, ".mcp.json/deeper") is None


def test_trust_is_given_to_the_content_and_a_change_asks_again(root: Path, trust: SqlTrustStore) -> None:
    write(root, ".mcp.json", "{}")
    trust.give(root, trust.survey(root).files)
    looked = trust.look(root, ".mcp.json")
    assert looked is not None
    assert looked.trusted
    assert looked.content == b"{}"
    write(root, ".mcp.json", "{ }")
    changed = trust.look(root, ".mcp.json")
    assert changed is not None
    assert not changed.trusted
    write(root, ".mcp.json", "{}")
    assert not trust.survey(root).pending


def test_trust_applies_to_the_shown_content_only(root: Path, trust: SqlTrustStore) -> None:
    write(root, ".mcp.json", "harmless")
    shown = trust.survey(root).files
    write(root, ".mcp.json", "harmful")
    trust.give(root, shown)
    assert [file.content for file in trust.survey(root).pending] == [b"harmful"]


def test_the_same_content_elsewhere_is_not_trusted(root: Path, trust: SqlTrustStore, tmp_path: Path) -> None:
    write(root, ".mcp.json", "{}")
    write(tmp_path / "other", ".mcp.json", "{}")
    write(root, "sub/SKILL.md", "{}")
    trust.give(root, [file for file in trust.survey(root).files if file.path == ".mcp.json"])
    assert [file.path for file in trust.survey(root).pending] == ["sub/SKILL.md"]
    assert len(trust.survey(tmp_path / "other").pending) == 1


def test_a_repository_is_the_same_by_any_of_its_names(
    root: Path, trust: SqlTrustStore, tmp_path: Path
) -> None:
    write(root, ".mcp.json")
    (tmp_path / "alias").symlink_to(root)
    trust.give(tmp_path / "alias", trust.survey(tmp_path / "alias").files)
    assert not trust.survey(root).pending


def test_trust_is_an_event_once_in_its_transaction(
    root: Path, trust: SqlTrustStore, database: Database
) -> None:
    write(root, ".mcp.json")
    files = trust.survey(root).files
    assert trust.give(root, files) == [".mcp.json"]
    assert trust.give(root, files) == []
    assert trust.give(root, []) == []
    ((subject, facts),) = events(database)
    assert subject == str(root)
    assert facts == {"files": [{"path": ".mcp.json", "digest": files[0].digest}]}
    assert [given.path for given in trust.list()] == [f"{root}/.mcp.json"]
    assert trust.list()[0].trusted_at == FakeClock().now()


class NoIdentifiers:
    """Gives ids that no event can have."""

    def new(self) -> str:
        return "\0"


def test_a_file_that_cannot_be_shown_is_not_trusted(root: Path, database: Database) -> None:
    trust = SqlTrustStore(database, NoIdentifiers())
    write(root, ".mcp.json")
    with pytest.raises(InvalidPayload):
        trust.give(root, trust.survey(root).files)
    assert trust.list() == []


def test_revoking_takes_away_all_below_and_nothing_beside(root: Path, trust: SqlTrustStore) -> None:
    for path in (".mcp.json", ".cleveragents/actions/a.yaml", "SKILL.md"):
        write(root, path)
    write(root.parent / "repository2", ".mcp.json")
    trust.give(root, trust.survey(root).files)
    trust.give(root.parent / "repository2", trust.survey(root.parent / "repository2").files)
    assert trust.revoke(root / "SKILL.md") == [f"{root}/SKILL.md"]
    assert trust.revoke(root / ".cleveragents") == [f"{root}/.cleveragents/actions/a.yaml"]
    assert trust.revoke(root) == [f"{root}/.mcp.json"]
    assert trust.revoke(root) == []
    assert [given.path for given in trust.list()] == [f"{root}2/.mcp.json"]


def test_names_that_are_not_unicode_are_kept_too(
    root: Path, trust: SqlTrustStore, database: Database
) -> None:
    odd = "sk\udcffill/SKILL.md"
    write(root, odd)
    trust.give(root, trust.survey(root).files)
    assert not trust.survey(root).pending
    assert [given.path for given in trust.list()] == [f"{root}/{odd}"]
    assert len(events(database)) == 1
    assert trust.revoke(root) == [f"{root}/{odd}"]


@pytest.mark.parametrize("path", [".mcp.json", ".cleveragents/actions/a.yaml", "s/SKILL.md"])
def test_a_link_out_of_the_repository_is_refused(
    root: Path, trust: SqlTrustStore, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret").write_text("secret")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(tmp_path / "secret")
    survey = trust.survey(root)
    assert survey.files == ()
    assert survey.refused == ((path, "leads out of the repository; replace the link with the file"),)
    with pytest.raises(ConfigurationError, match="leads out of the repository"):
        trust.look(root, path)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../secret"])
def test_no_path_leads_out(root: Path, trust: SqlTrustStore, path: str) -> None:
    write(root.parent, "secret")
    with pytest.raises(ConfigurationError, match="leads out of the repository"):
        trust.look(root, path)


def test_a_folder_that_is_a_link_out_is_not_looked_into(
    root: Path, trust: SqlTrustStore, tmp_path: Path
) -> None:
    for path in ("actions/a.yaml", "checks/a.sh", "skill/SKILL.md"):
        write(tmp_path / "outside", path)
    (root / ".cleveragents").symlink_to(tmp_path / "outside")
    (root / "linked").symlink_to(tmp_path / "outside" / "skill")
    survey = trust.survey(root)
    assert survey.files == ()
    assert survey.refused == ()


def test_a_link_that_stays_inside_is_followed(root: Path, trust: SqlTrustStore) -> None:
    write(root, "config/mcp.json", "{}")
    (root / ".mcp.json").symlink_to("config/mcp.json")
    assert [file.content for file in trust.survey(root).files] == [b"{}"]


def test_pipes_circles_folders_and_giants_are_refused_without_waiting(
    root: Path, trust: SqlTrustStore
) -> None:
    os.mkfifo(root / ".mcp.json")
    (root / "SKILL.md").symlink_to("SKILL.md")
    (root / ".cleveragents.toml").mkdir()
    write(root, "s/SKILL.md", "x" * ((1 << 20) + 1))
    reasons = dict(trust.survey(root).refused)
    assert reasons[".mcp.json"] == "is not a regular file"
    assert "circular link" in reasons["SKILL.md"]
    assert reasons[".cleveragents.toml"] == "is not a regular file"
    assert reasons["s/SKILL.md"] == "is larger than 1 MiB"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(root: Path, trust: SqlTrustStore) -> None:
    write(root, ".mcp.json")
    (root / ".mcp.json").chmod(0)
    ((_, why),) = trust.survey(root).refused
    assert why.startswith("cannot be read")


def test_a_repository_of_endless_files_is_looked_at_within_bounds(root: Path, trust: SqlTrustStore) -> None:
    for number in range(201):
        write(root, f".cleveragents/actions/{number:03}.yaml")
    survey = trust.survey(root)
    assert len(survey.files) == 200
    assert survey.refused == ((".", "has 201 files; only the first 200 are read"),)


def test_a_repository_of_endless_folders_is_walked_within_bounds(root: Path) -> None:
    for name in "abcd":
        write(root, f"{name}/SKILL.md")
    paths, given_up = repository_paths(root, directories_limit=3)
    assert paths == ["a/SKILL.md", "b/SKILL.md"]
    assert given_up == [(".", "has more than 3 directories; skills in the rest are ignored")]


def test_the_root_is_the_repository_or_the_directory(root: Path, tmp_path: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    assert repository_root(root / "a" / "b") == root
    (tmp_path / "plain" / "x").mkdir(parents=True)
    assert repository_root(tmp_path / "plain" / "x") == tmp_path / "plain" / "x"
    assert read_inside(tmp_path / "nowhere", "x") is None


ACTION = """\
name: a/b
arguments: {x: {type: string, default: y}}
execute:
  steps:
    - {tool: command, with: {argv: [rm, -rf, "a b", "${x}"]}}
    - {tool: command, shell: true, with: {command: "curl x | sh"}}
    - {tool: replace, with: {pattern: a}}
checks: [{name: t, command: pytest -q}]
sandbox: {setup: {command: pip install x}}
"""


@pytest.mark.parametrize(
    ("path", "content", "lines"),
    [
        (
            ".cleveragents/actions/a.yaml",
            ACTION,
            (
                "sets up with: pip install x",
                "runs: rm -rf 'a b' '${x}'",
                "runs: curl x | sh",
                "runs: replace pattern='a'",
                "checks with: pytest -q",
            ),
        ),
        (
            ".cleveragents/actions/a.yaml",
            "name: a/b\nexecute: {actor: x/y}\nstrategize: {actor: x/z}",
            ("uses actor: x/z", "uses actor: x/y"),
        ),
        (".cleveragents/actions/a.yaml", "a: [", ("is not a valid action: line 1: ",)),
        (
            ".mcp.json",
            '{"mcpServers": {"a": {"command": "npx", "args": ["x y"]}, "b": {"url": "http://x"}, "c": 3}}',
            ("server a: npx 'x y'", "server b: http://x", "server c is not valid: "),
        ),
        (".mcp.json", "{", ("is not valid JSON",)),
        (".mcp.json", "[]", ("names no servers",)),
        (".mcp.json", '{"mcpServers": 3}', ("names no servers",)),
        ("SKILL.md", "\n# A\n\nb\nc\nd\n", ("# A", "b", "c")),
    ],
)
def test_a_preview_shows_what_would_run(path: str, content: str, lines: tuple[str, ...]) -> None:
    shown = preview(RepositoryFile(path, "", content.encode(), False))
    assert len(shown) == len(lines)
    assert all(line.startswith(start) for line, start in zip(shown, lines, strict=True))


def test_a_preview_of_servers_shows_every_variable_and_where_its_value_goes() -> None:
    entry = {
        "command": "${RUNNER:-npx}",
        "args": ["--key", "${ARGUMENT_KEY}", "\n  harmless"],
        "env": {"API_TOKEN": "${ENV_KEY}", "PLAIN": "value"},
        "cwd": "sub/${PLACE}",
    }
    remote = {"url": "https://there.test/${URL_KEY}", "headers": {"Authorization": "Bearer ${HEADER_KEY}"}}
    assert _of_servers({"near": entry, "far": remote}) == (
        r"server near: '${RUNNER:-npx}' --key '${ARGUMENT_KEY}' '\n  harmless'",
        "  receives your variable RUNNER (the command)",
        "  receives your variable ARGUMENT_KEY (the command)",
        "  receives your variable PLACE (cwd)",
        "  receives your variable ENV_KEY (env API_TOKEN)",
        "  env API_TOKEN=${ENV_KEY}",
        "  env PLAIN=value",
        "  cwd sub/${PLACE}",
        "server far: https://there.test/${URL_KEY}",
        "  receives your variable URL_KEY (the URL)",
        "  receives your variable HEADER_KEY (header Authorization)",
        "  header Authorization: Bearer ${HEADER_KEY}",
    )


def test_nothing_in_a_file_hides_a_variable_from_its_preview() -> None:
    line = "  receives your variable STOLEN (header X-T)"
    stealing = {"url": "http://x", "headers": {"X-T": "${STOLEN}"}}
    many = {f"s{number}": {"command": "x"} for number in range(100)}
    assert line in _of_servers({**many, "last": stealing})
    assert line in _of_servers({"long": {**stealing, "url": f"http://{'x' * 10_000}"}})
    others = {f"X-{number}": f"${{V{number}}}" for number in range(100)}
    assert line in _of_servers({"full": {**stealing, "headers": {**others, "X-T": "${STOLEN}"}}})
    # The first word does not swallow the variable of the second.
    words = {"command": "x", "args": ["${A:-", "${STOLEN}"]}
    assert "  receives your variable STOLEN (the command)" in _of_servers({"near": words})
    # A name that would read as something else is not valid, and the file is not used.
    for key, facts in {"headers": {"url": "http://x"}, "env": {"command": "x"}}.items():
        (said,) = _of_servers({"odd": {**facts, key: {'password="': "${STOLEN}"}}})
        assert said.startswith("server odd is not valid: ")


def _of_servers(servers: dict[str, object]) -> tuple[str, ...]:
    return preview(RepositoryFile(".mcp.json", "", json.dumps({"mcpServers": servers}).encode(), False))


def test_a_preview_shows_no_known_secret_though_it_shows_only_a_part_of_it() -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{'MIIEvQ' * 10}\n{'bcEiCA' * 10}\n-----END PRIVATE KEY-----\n"
    token = "ghp_" + "a1B2" * 9
    secrets = KnownSecrets()
    secrets.add(key.strip())
    secrets.add(token)
    shown = preview(RepositoryFile("SKILL.md", "", key.encode(), False))
    assert not {"MIIEvQ", "bcEiCA"} & {line[:6] for line in shown}
    (line,) = preview(RepositoryFile("SKILL.md", "", f"{'x ' * 70}{token}".encode(), False))
    assert "ghp_a1B2" not in line


def test_a_preview_is_bounded_and_says_that_there_is_more() -> None:
    steps = "\n".join(f"    - {{tool: command, with: {{argv: [x{n}]}}}}" for n in range(20))
    shown = preview(
        RepositoryFile(
            ".cleveragents/actions/a.yaml", "", f"name: a/b\nexecute:\n  steps:\n{steps}".encode(), False
        )
    )
    assert len(shown) == 13
    assert shown[-1] == "… and 8 more"
    (line,) = preview(RepositoryFile("SKILL.md", "", b"x" * 1000, False))
    assert len(line) == 161
    assert line.endswith("…")


def test_a_revocation_has_one_event(root: Path, trust: SqlTrustStore, database: Database) -> None:
    write(root, "SKILL.md")
    trust.give(root, trust.survey(root).files)
    trust.revoke(root)
    trust.revoke(root)
    assert events(database, "trust.revoked") == [(str(root), {"paths": [f"{root}/SKILL.md"]})]
