"""No control character of a stored text, a file, a model's answer or an argument reaches a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path

import click
import msgspec
import pytest
import structlog

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import Role, TokenKind
from cleveragents.app.container import Container
from cleveragents.cli.commands import cli
from cleveragents.cli.output import Styled, console, write
from cleveragents.cli.plan.view import shown_diff
from cleveragents.cli.servers import keep_token, logins_file
from cleveragents.config.loader import load_configuration
from cleveragents.config.logging import GuardedStream, configure_logging, guard_terminals, unguarded
from cleveragents.config.settings import Settings
from cleveragents.core.text.control_characters import escape_controls, escape_controls_in_json
from cleveragents.server.app import create_app
from cleveragents.server.service import Service
from tests.cli_bench import Terminal
from tests.hostile_home import EVIL, EVIL_LINE, HostileHome, ScreenRecorder, Shown, hostile_home
from tests.live_server import served
from tests.server_bench import ServerBench


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileHome]:
    with hostile_home(tmp_path_factory.mktemp("hostile")) as made:
        yield made


def _commands(command: click.Command, path: str = "") -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _commands(below, f"{path} {name}".strip())


READERS: dict[str, list[tuple[str, ...]]] = {
    "run": [
        (EVIL_LINE, "--review"),
        ("--action", "builtin/command", "--format", "stream-json", "--", "printf", EVIL),
        ("--action", EVIL_LINE),
        (EVIL_LINE, "--actor", "me/asker"),
        (EVIL_LINE, "--model", EVIL_LINE),
    ],
    "ask": [(EVIL_LINE,), (EVIL_LINE, "--session", "{session}", "--model", EVIL_LINE)],
    "session start": [("--model", EVIL_LINE)],
    "session list": [(), ("--all", "--format", "json"), ("--format", "plain")],
    "session show": [("{session}",), ("{session}", "--format", "json"), (EVIL_LINE,)],
    "session resume": [("{session}",), (EVIL_LINE,)],
    "session fork": [("{session}",), (EVIL_LINE,)],
    "session rename": [("{session}", EVIL_LINE), (EVIL_LINE, "title")],
    "session budget": [("{session}",), ("{session}", "--max-steps", "9"), (EVIL_LINE,)],
    "session compact": [("{session}",), (EVIL_LINE,)],
    "session delete": [("{session}",), (EVIL_LINE,)],
    "context": [("EVIL colour", "--explain"), ("colour", "--files"), ("colour", "--format", "json")],
    "plan list": [(), ("--all", "--format", "json"), ("--format", "plain"), ("--state", EVIL)],
    "plan show": [("{goal}",), ("{ready}",), ("{failed}",), ("{asking}",), ("{approval}",), (EVIL_LINE,)],
    "plan watch": [("{goal}",), ("{ready}",), ("{failed}",), ("{asking}",), ("{approval}",), (EVIL_LINE,)],
    "plan log": [("{goal}",), ("{ready}", "1"), ("{failed}", "1"), ("{approval}",)],
    "plan tree": [("{goal}",), ("{goal}", "--all", "--format", "plain"), ("{goal}", "--format", "json")],
    "plan explain": [("{goal}", "1"), ("{goal}", "1", "--format", "json")],
    "plan correct": [("{goal}", "1", "--guidance", EVIL_LINE, "--dry-run"), ("{goal}", EVIL_LINE)],
    "plan diff": [
        ("{ready}",),
        ("{long}",),
        ("{goal}", "--name-only"),
        ("{ready}", "--stat"),
        ("{ready}", "--format", "json"),
        ("--between", "{ready}", "{goal}"),
    ],
    "plan review": [("{ready}", EVIL_LINE), ("{ready}", "copied")],
    "plan comment": [("{ready}", EVIL_LINE), (EVIL_LINE, "x")],
    "plan comments": [("{ready}",), (EVIL_LINE,)],
    "plan revise": [(EVIL_LINE,)],
    "plan search": [("EVIL",), ("EVIL", "--format", "json")],
    "plan pause": [("{asking}",), (EVIL_LINE,)],
    "plan publish": [("{failed}",), (EVIL_LINE,)],
    "plan rebase": [("{asking}",), (EVIL_LINE,)],
    "plan capture": [("{ready}",)],
    "plan rollback": [("{ready}", "1"), ("{ready}", "9")],
    "plan resolve": [("{ready}", EVIL_LINE)],
    "plan apply": [("{goal}",), ("{failed}",)],
    "plan undo": [("{goal}",), ("{asking}",)],
    "plan resume": [("{failed}",)],
    "plan discard": [("{failed}",), (EVIL_LINE,)],
    "plan approve": [("{approval}",), ("{asking}",)],
    "plan deny": [("{asking}",), (EVIL_LINE,)],
    "plan answer": [("{asking}", EVIL_LINE)],
    "plan cancel": [("{asking}", "--reason", EVIL_LINE), ("{failed}",), (EVIL_LINE,)],
    "plan delete": [("{failed}", "--yes"), (EVIL_LINE,)],
    "action create": [("{root}/action.yaml",), ("{root}/script.yaml",), (EVIL_LINE,)],
    "action list": [()],
    "action show": [("me/evil",), ("me/evil", "--format", "json"), (EVIL_LINE,)],
    "action delete": [("me/evil",), (EVIL_LINE,)],
    "actor graph": [("me/asker",), ("me/asker", "--mermaid"), (EVIL_LINE,)],
    "actor list": [()],
    "actor run": [("me/asker", EVIL_LINE), (EVIL_LINE, EVIL_LINE)],
    "actor schema": [()],
    "actor show": [("me/asker",), ("me/asker", "--yaml"), ("me/asker", "--format", "json")],
    "actor validate": [("{root}/home/.config/cleveragents/actors/broken.yaml",), (EVIL_LINE,)],
    "tool list": [(), ("--format", "json")],
    "tool run": [
        ("grep", "--arg", "pattern=colour"),
        ("command", "--arg", f"script=printf '{EVIL}'"),
        (EVIL,),
    ],
    "tool show": [("grep",), (EVIL_LINE,)],
    "mcp add": [(EVIL_LINE, "--", EVIL_LINE), ("evil", "--", "false", EVIL_LINE)],
    "acp": [("--profile", EVIL_LINE), ("--resource", EVIL_LINE)],
    "mcp list": [(), ("--format", "json")],
    "mcp remove": [(EVIL_LINE,)],
    "mcp serve": [("--profile", EVIL_LINE)],
    "mcp test": [(EVIL_LINE,)],
    "model list": [(), ("--provider", EVIL_LINE)],
    "model show": [(EVIL_LINE,), (f"openai/{EVIL_LINE}",)],
    "model test": [("--prompt", EVIL_LINE), ("--format", "json"), (f"scripted/{EVIL_LINE}",)],
    "trust": [(), (EVIL_LINE,), ("--list",)],
    "project add": [(EVIL_LINE,), ("evil",)],
    "project add-member": [("evil", EVIL_LINE)],
    "project list": [()],
    "project members": [("evil",), (EVIL_LINE,)],
    "project remove": [(EVIL_LINE,)],
    "project remove-member": [("evil", EVIL_LINE)],
    "resource add": [("evil", "--project", EVIL_LINE, "--path", EVIL_LINE), (EVIL_LINE, "--project", "evil")],
    "resource list": [()],
    "resource remove": [(EVIL_LINE,)],
    "gc": [("--dry-run",), ("--older-than", EVIL_LINE)],
    "serve": [("--host", EVIL_LINE), ("--token-file", EVIL_LINE)],
    "worker": [("--until-idle", "--name", EVIL_LINE)],
    "user add": [(EVIL_LINE,), ("evil", "--role", "viewer")],
    "user list": [()],
    "user remove": [(EVIL_LINE,)],
    "user role": [(EVIL_LINE, "viewer"), ("evil", EVIL_LINE)],
    "user token": [("evil", "--label", EVIL_LINE), ("evil", "--list"), (EVIL_LINE,)],
    "login": [(EVIL_LINE,)],
    "logout": [(EVIL_LINE,)],
    "backup": [(EVIL_LINE,)],
    "demo": [(EVIL_LINE,)],
    "jobs cancel": [(EVIL_LINE,), ("{job}", "--reason", EVIL_LINE)],
    "jobs list": [(), ("--format", "json")],
    "jobs show": [("{job}",), (EVIL_LINE,)],
    "events anchor": [(EVIL_LINE,), ("--key", EVIL_LINE), ("git+/nowhere#" + EVIL_LINE,)],
    "events adopt": [()],
    "events tail": [(), ("--format", "json"), ("--type", EVIL_LINE)],
    "events verify": [()],
    "config get": [("models.default",), (EVIL_LINE,)],
    "config list": [()],
    "config path": [()],
    "config set": [("models.default", EVIL_LINE), (EVIL_LINE, EVIL_LINE)],
    "config unset": [(EVIL_LINE,)],
    "doctor": [(), ("--format", "json")],
    "cost": [(), ("--by", EVIL_LINE), ("--since", EVIL_LINE)],
    "completion": [("bash",), (EVIL_LINE,)],
    "init": [("--provider", EVIL_LINE), ("--base-url", EVIL_LINE)],
    "policy allow": [(EVIL_LINE,), (f"true {EVIL_LINE}",)],
    "policy list": [(), ("--format", "json")],
    "policy revoke": [(EVIL_LINE,)],
}
"""Arguments with which each command shows stored texts, or answers hostile ones with an error."""

SHOWS_LINES = {"plan diff", "context", "actor show", "model test", "tool run", "session show"}
SHOWS_LINES |= {"session resume"}
"""Commands that show texts with their lines, such as the contents of files, some of them below a title."""


def test_every_command_is_run_on_a_hostile_home() -> None:
    assert set(READERS) == set(_commands(cli))


@pytest.mark.parametrize("command", READERS)
def test_no_command_lets_a_control_character_through_to_a_terminal(home: HostileHome, command: str) -> None:
    for arguments in READERS[command]:
        shown = home.on_terminal(*command.split(), *(home.filled(one) for one in arguments), typed="n\n")
        assert shown.text, arguments
        assert shown.controls == set(), (arguments, shown.text)
        assert command in SHOWS_LINES or not shown.forged, (arguments, shown.text)


@pytest.mark.parametrize("command", READERS)
def test_usage_errors_escape_control_characters(home: HostileHome, command: str) -> None:
    shown = home.on_terminal(*command.split(), f"--{EVIL_LINE}")
    assert shown.code == 2
    assert "EVIL" in shown.text
    assert (shown.controls, shown.forged) == (set(), [])


# ── Through a server ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def server(home: HostileHome) -> Iterator[str]:
    """The address of a server on the hostile state, at which the user is logged in."""
    with Container(load_configuration(os.environ, Path.cwd()).settings) as container:
        now = container.clock.now()
        container.users.add("root", Role.ADMIN, now=now)
        _, token = container.users.issue("root", TokenKind.PROGRAM, EVIL_LINE, now=now)
        container.projects.add("hostile", description=EVIL_LINE, now=now)
        shop = str(home.root / "shop")
        container.projects.add_resource("hostile", "hostile", ResourceKind.DIRECTORY, shop, now=now)
        service = Service(container)
        bench = ServerBench(home.root / "state", service, create_app(service), {"root": token})
        with served(bench) as address:
            keep_token(logins_file(os.environ), address, token)
            yield address


REFUSED: dict[str, tuple[str, ...]] = {
    "run": ("--action", EVIL_LINE),
    "plan apply": (EVIL_LINE,),
    "plan approve": (EVIL_LINE,),
    "plan answer": (EVIL_LINE, "x"),
    "plan correct": (EVIL_LINE, "1"),
    "plan deny": (EVIL_LINE,),
    "plan resume": (EVIL_LINE,),
    "plan undo": ("{asking}",),
}
"""Commands that wait for a worker, which this server has not, and what it refuses at once."""


def _served_commands() -> Iterator[str]:
    with click.Context(cli) as ctx:
        for name in ("plan", "run"):
            command = cli.get_command(ctx, name)
            assert command is not None
            yield from _commands(command, name)


@pytest.mark.parametrize("command", sorted(_served_commands()))
def test_no_text_of_a_server_controls_a_terminal(home: HostileHome, server: str, command: str) -> None:
    for arguments in [REFUSED[command]] if command in REFUSED else READERS[command][:2]:
        words = [home.filled(one) for one in arguments]
        shown = home.on_terminal("--server", server, *command.split(), *words, typed="n\n")
        assert shown.text, arguments
        assert shown.controls == set(), (arguments, shown.text)
        assert command in SHOWS_LINES or not shown.forged, (arguments, shown.text)


# ── Pipes, diffs, errors ─────────────────────────────────────────────────────────────────────────


def test_a_pipe_gets_the_bytes_of_a_diff(home: HostileHome) -> None:
    patch = home.piped("plan", "diff", home.plans["long"])
    assert f"+{EVIL}\n".encode() in patch
    assert b"\x1b[32m" not in patch
    git = ["git", "apply", "--check", "-"]
    subprocess.run(git, input=patch, cwd=home.root / "shop", check=True, capture_output=True)


def test_json_is_the_same_on_a_terminal_and_in_a_pipe(home: HostileHome) -> None:
    command = ("jobs", "show", home.plans["job"], "--format", "json")
    shown = home.on_terminal(*command).text
    assert json.loads(shown) == json.loads(home.piped(*command))
    assert json.loads(shown)["payload"]["said"] == EVIL_LINE


@pytest.mark.parametrize("colours", [True, False])
def test_a_diff_on_a_terminal_has_no_escape_sequence_of_the_file(
    monkeypatch: pytest.MonkeyPatch, colours: bool
) -> None:
    screen = ScreenRecorder()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("NO_COLOR", "" if colours else "1")
    lines = ["diff --git a/x b/x", "--- a/x", "+++ b/x", "@@ -1 +1,2 @@", "-old", f"+{EVIL}", " same", ""]
    with guard_terminals():
        shown_diff("\n".join(lines).encode())
    styles = ["\x1b[1m"] * 3 + ["\x1b[36m", "\x1b[31m", "\x1b[32m", "", ""]
    expected = [
        f"{style}{escape_controls(line)}\x1b[0m" if style and colours else escape_controls(line)
        for style, line in zip(styles, lines, strict=True)
    ]
    assert screen.recorded() == "\n".join(expected)


def test_an_entry_in_the_error_log_cannot_be_forged(
    home: HostileHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError(f"{EVIL}\n== 2026-01-01 forged")

    monkeypatch.setattr("cleveragents.cli.plan.list.list_plans.callback", fail)
    assert "errors.log" in home.on_terminal("plan", "list").text
    log = (home.root / "state/errors.log").read_text()
    assert Shown(0, log).controls == set()
    assert [line for line in log.splitlines() if line.startswith("==")] == log.splitlines()[:1]


# ── The guarded stream ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "send",
    [
        lambda: click.echo(EVIL),
        lambda: click.secho(EVIL, fg="red"),
        lambda: traceback.print_exception(ValueError(EVIL), file=sys.stdout),
        lambda: sys.stdout.writelines([EVIL, EVIL]),
        lambda: write(EVIL, Styled(EVIL, fg="red")),
        lambda: console().print(EVIL),
        lambda: click.prompt(EVIL, default="x", prompt_suffix=""),
    ],
    ids=["echo", "secho", "traceback", "writelines", "write", "console", "prompt"],
)
def test_all_text_for_a_terminal_is_escaped(
    monkeypatch: pytest.MonkeyPatch, send: Callable[[], object]
) -> None:
    screen = ScreenRecorder()
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    monkeypatch.setattr(sys, "stdout", screen)
    with guard_terminals():
        send()
    shown = Shown(0, screen.recorded())
    assert "EVIL" in shown.text
    assert shown.controls == set()


def test_an_ascii_terminal_is_not_written_to_past_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = ScreenRecorder(encoding="ascii")
    monkeypatch.setattr(sys, "stdout", recorder)
    with guard_terminals():
        click.echo(EVIL)
        assert not hasattr(sys.stdout, "buffer")
    assert Shown(0, recorder.recorded()).controls == set()


def test_streams_are_as_before_afterwards_and_pipes_are_never_guarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, pipe = ScreenRecorder(), TextIOWrapper(BytesIO())
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", pipe)
    with guard_terminals():
        assert isinstance(sys.stdout, GuardedStream)
        assert unguarded(sys.stdout) is terminal
        assert sys.stderr is pipe
        with guard_terminals():
            assert unguarded(sys.stdout) is terminal
    assert sys.stdout is terminal


# ── Escapes ──────────────────────────────────────────────────────────────────────────────────────


def test_every_control_character_is_escaped_and_nothing_else() -> None:
    controls = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    for code in (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0200)):
        character = chr(code)
        kept = unicodedata.category(character) not in controls
        assert (escape_controls(character) == character) is kept
        if not kept:
            assert json.loads(f'"{escape_controls_in_json(character)}"'.replace("\n", "\\n")) == character


def test_line_feeds_and_tabs_stay_where_lines_are_kept() -> None:
    assert escape_controls("a\tb\nc\r", keep_lines=True) == "a\tb\nc\\r"
    assert escape_controls("a\tb\nc") == "a\\tb\\nc"
    assert escape_controls(escape_controls(EVIL_LINE)) == escape_controls(EVIL_LINE)


# ── Logs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("format_name", ["console", "json"])
@pytest.mark.parametrize("stream", [ScreenRecorder, lambda: TextIOWrapper(BytesIO(), encoding="utf-8")])
def test_a_log_line_cannot_be_forged(
    monkeypatch: pytest.MonkeyPatch, format_name: str, stream: Callable[[], TextIOWrapper]
) -> None:
    recorder = stream()
    monkeypatch.setattr(sys, "stderr", recorder)
    with guard_terminals():
        configure_logging(msgspec.convert({"log": {"format": format_name}}, Settings))
        logger = structlog.get_logger()
        logger.warning(EVIL_LINE, goal=EVIL_LINE, **{EVIL_LINE: [EVIL_LINE]}, word=EVIL_LINE.replace(" ", ""))
        try:
            raise ValueError(EVIL_LINE)
        except ValueError:
            logger.warning("failed", exc_info=True)
    recorder.flush()
    assert isinstance(recorder.buffer, BytesIO)
    shown = Shown(0, recorder.buffer.getvalue().decode())
    assert shown.text.count("EVIL") > 4
    assert (shown.controls, shown.forged) == (set(), [])
