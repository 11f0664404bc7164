"""`agents mcp`, and `agents tool run`: what they change, what they start, and what they leave."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cleveragents.cli.admin.mcp import success_message
from cleveragents.core.errors import ConfigurationError, StoreBusy, StoreFull
from cleveragents.tools.mcp import configuration as editing
from cleveragents.tools.mcp.configuration import add_server, remove_server
from cleveragents.tools.mcp.server_entry import McpServer
from tests.cli_bench import Agents, command_line, git, paint_shop, use_home
from tests.mcp_bench import PROGRAMS

TELLS = (sys.executable, str(PROGRAMS / "misbehaving.py"), "tells")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    (tmp_path / "home").mkdir()
    root = paint_shop(tmp_path / "shop")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def agents(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "home/.config/cleveragents/mcp.json"


def test_a_server_is_added_listed_tested_and_removed_and_nothing_is_left(agents: Agents, file: Path) -> None:
    assert "no servers" in agents("mcp", "list").err
    assert agents("mcp", "add", "near", "--env", "A=b=c", "--", *TELLS).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    children = len(psutil.Process().children(recursive=True))
    tested = agents("mcp", "test", "near", "--format", "json")
    assert [row["name"] for row in json.loads(tested.out)] == ["mcp__near__work"]
    assert "stopped" in tested.err
    assert len(psutil.Process().children(recursive=True)) == children
    (row,) = json.loads(agents("mcp", "list", "--format", "json").out)
    assert (row["name"], row["isolated"]) == ("near", True)
    assert agents("mcp", "remove", "near").code == 0
    assert json.loads(file.read_text()) == {"mcpServers": {}}
    gone = agents("mcp", "remove", "near")
    assert (gone.code, "no server 'near'" in gone.err) == (2, True)


def test_a_server_is_stored_and_its_secrets_are_not_shown(agents: Agents, file: Path) -> None:
    far = ("mcp", "add", "far", "--url", "https://user:hunter2secret@far.test/mcp")
    assert agents(*far, "--header", "Authorization=Bearer ${T}", "--not-isolated", "--cwd", "sub").code == 2
    assert agents(*far, "--header", "Authorization=Bearer ${T}", "--not-isolated").code == 0
    assert json.loads(file.read_text())["mcpServers"]["far"] == {
        "url": "https://user:hunter2secret@far.test/mcp",
        "headers": {"Authorization": "Bearer ${T}"},
        "isolated": False,
    }
    assert "hunter2secret" not in agents("mcp", "list").out
    again = agents(*far)
    assert (again.code, "or replace it" in again.err) == (2, True)
    assert agents(*far, "--replace").code == 0
    assert "headers" not in json.loads(file.read_text())["mcpServers"]["far"]


def test_a_server_behind_a_url_is_neither_isolated_nor_not(agents: Agents) -> None:
    assert agents("mcp", "add", "far", "--url", "https://far.test/mcp").code == 0
    assert "n/a" in agents("mcp", "list").out
    (row,) = json.loads(agents("mcp", "list", "--format", "json").out)
    assert row["isolated"] is None
    far = McpServer("far", "mcp.json", True, url="https://far.test/mcp")
    assert success_message(far, 2) == "far works and offers 2 tools", "nobody started it, and nobody stops it"


def test_an_unknown_server_is_reported(agents: Agents) -> None:
    none = agents("mcp", "test", "prices")
    assert (none.code, "no server 'prices'; add one with `agents mcp add`" in none.err) == (2, True)
    assert agents("mcp", "add", "prices", "--", *TELLS).code == 0
    typo = agents("mcp", "test", "price")
    assert (typo.code, "no server 'price'; did you mean prices?" in typo.err) == (2, True)
    assert "known servers: prices" in agents("mcp", "test", "quux").err


def test_the_last_output_of_a_server_is_shown(agents: Agents) -> None:
    program = "print('cannot find its key'); print()"
    assert agents("mcp", "add", "near", "--", sys.executable, "-c", program).code == 0
    ended = agents("mcp", "test", "near")
    assert ended.code != 0
    assert "the server ended before it was ready" in ended.err
    assert "its output: cannot find its key" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x",), "pass either --url URL"),
        (("x", "--url", "http://x", "--", "y"), "pass either --url URL"),
        (("x", "--env", "secretword", "--", "y"), "--env takes NAME=VALUE"),
        (("x y", "--", "y"), "the name must consist of"),
        (("x", "--url", "ftp://x"), "must begin with http"),
    ],
)
def test_an_invalid_request_is_reported_and_writes_nothing(
    words: tuple[str, ...], said: str, agents: Agents, file: Path
) -> None:
    ended = agents("mcp", "add", *words)
    assert ended.code == 2
    assert said in ended.err
    assert "secretword" not in ended.err
    assert not file.exists()


def test_a_repositorys_server_is_listed_and_not_started_before_it_is_trusted(
    agents: Agents, shop: Path
) -> None:
    entry = {"command": TELLS[0], "args": [*TELLS[1:]]}
    (shop / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": entry}}))
    listed = agents("mcp", "list", "--format", "json")
    assert json.loads(listed.out)[0]["starts"] == "not trusted"
    assert "is not trusted; read it, then trust it" in listed.err
    refused = agents("mcp", "test", "theirs")
    assert (refused.code, "agents trust" in refused.err) == (3, True)
    assert agents("trust", "--yes").code == 0
    assert json.loads(agents("mcp", "list", "--format", "json").out)[0]["name"] == "theirs"


def test_an_invalid_repository_file_shows_only_its_mistake(agents: Agents, shop: Path) -> None:
    (shop / ".mcp.json").write_text("{")
    listed = agents("mcp", "list")
    assert (listed.code, listed.out, listed.err.count("\n")) == (0, "", 1), listed.err
    assert listed.err.startswith(f"{shop}/.mcp.json: is not valid JSON")
    assert json.loads(agents("mcp", "list", "--format", "json").out) == []
    tested = agents("mcp", "test", "theirs")
    assert (tested.code, tested.err.startswith(listed.err), "no server 'theirs'" in tested.err) == (
        2,
        True,
        True,
    )


def test_a_tool_is_run_and_the_users_files_are_as_they_were(agents: Agents, shop: Path) -> None:
    before = (git(shop, "status", "--porcelain"), git(shop, "for-each-ref"))
    written = agents("tool", "run", "write", "--arg", "path=new.txt", "--arg", "content=hello")
    assert written.code == 0
    assert "temporary sandbox only: new.txt" in written.err
    ran = agents(
        "tool", "run", "command", "--json", '{"script": "cat README.md; echo x > y"}', "--format", "json"
    )
    assert json.loads(ran.out)["output"] == "The colour of it.\n"
    assert "temporary sandbox only: y" in ran.err
    read = agents("tool", "run", "read", "--arg", "path=README.md")
    assert "The colour of it." in read.out
    assert (git(shop, "status", "--porcelain"), git(shop, "for-each-ref")) == before


def test_a_servers_tool_is_run_in_the_sandbox_too(agents: Agents, shop: Path) -> None:
    agents("mcp", "add", "near", "--", *TELLS)
    told = agents("tool", "run", "mcp__near__work")
    assert told.out.startswith("wrote in ")
    assert "temporary sandbox only: told.txt" in told.err
    assert not (shop / "told.txt").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reed",), "no tool 'reed'"),
        (("read", "--arg", "path"), "--arg takes KEY=VALUE"),
        (("read", "--arg", "path=a", "--json", "{}"), "not both"),
        (("read", "--json", "{"), "not valid JSON"),
        (("read", "--json", "[]"), "must be an object"),
        (("read", "--arg", "pth=a"), "did you mean 'path'"),
        (("mcp__nobody__x",), "no tool 'mcp__nobody__x'"),
    ],
)
def test_an_invalid_call_is_reported(words: tuple[str, ...], said: str, agents: Agents) -> None:
    ended = agents("tool", "run", *words)
    assert ended.code == 2
    assert said in ended.err


def test_other_content_of_the_file_and_a_link_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    real.write_text('{"inputs": [1], "mcpServers": {"a": {"command": "x"}}}')
    link.symlink_to(real)
    add_server(link, "b", {"command": "y"})
    remove_server(link, "a")
    assert link.is_symlink()
    assert json.loads(real.read_text()) == {"inputs": [1], "mcpServers": {"b": {"command": "y"}}}


@pytest.mark.parametrize("content", ["{", '{"mcpServers": []}', '{"mcpServers": {"a": {}}}'])
def test_a_file_with_a_mistake_is_not_touched(content: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(content)
    with pytest.raises(ConfigurationError):
        add_server(path, "b", {"command": "y"})
    assert path.read_text() == content


def test_concurrent_adds_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    threads = [
        threading.Thread(target=add_server, args=(path, f"s{number}", {"command": "x"}))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(path.read_text())["mcpServers"]) == [f"s{number}" for number in range(8)]


def test_an_unwritable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        add_server(tmp_path / "file" / "mcp.json", "a", {"command": "x"})
    monkeypatch.setattr(editing, "_LOCK_SECONDS", 0.0)
    with editing._turn(tmp_path / ".mcp.lock"), pytest.raises(StoreBusy):
        add_server(tmp_path / "mcp.json", "a", {"command": "x"})
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(StoreFull):
        add_server(tmp_path / "mcp.json", "a", {"command": "x"})
    assert not (tmp_path / "mcp.json").exists()


def _no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_typed_command_is_the_approval_of_the_server_it_names_and_of_no_other(
    agents: Agents, tmp_path: Path
) -> None:
    """Also under a profile that denies what the server needs; the policy is for plans."""
    marker = tmp_path / "marker"
    marking = f"import pathlib; pathlib.Path({str(marker)!r}).write_text('started')"
    assert agents("config", "set", "plan.profile", "review+ci").code == 0
    assert agents("config", "set", "sandbox.isolation", "off").code == 0
    assert agents("mcp", "add", "near", "--not-isolated", "--", *TELLS).code == 0
    assert agents("mcp", "add", "other", "--not-isolated", "--", sys.executable, "-c", marking).code == 0
    assert agents("mcp", "test", "near").code == 0
    assert agents("tool", "run", "mcp__near__work").code == 0
    assert not marker.exists()
    agents("mcp", "test", "other")
    assert marker.exists()
