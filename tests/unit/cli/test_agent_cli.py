"""Other agents on the command line: what is told of them, and what is told at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.actors.loader import load_actor
from cleveragents.processes.program_lookup import absence_of
from tests.cli_bench import Agents, command_line, use_home
from tests.plan_bench import new_repository

FAILS = """\
name: me/fails
type: command
argv: [sh, -c, "echo begun; echo why; exit 7"]
prompt: x
"""
ASKS = """\
name: me/asks
type: command
argv: [sh, -c, ":"]
prompt: x
environment: [MY_AGENT_KEY, OTHER_SETTING]
home: [.agent/login]
network: true
"""
ABSENT = "name: me/absent\ntype: {type}\nargv: [no-such-agent]\nprompt: x\nnetwork: true\ninstall: buy one\n"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    mine = tmp_path / ".config" / "cleveragents" / "actors"
    mine.mkdir(parents=True)
    return mine


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], mine: Path
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(new_repository(tmp_path / "repository"))
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.mark.parametrize("kind", ["command", "acp"])
def test_a_missing_agent_is_reported_before_the_plan_exists(
    agents: Agents, mine: Path, tmp_path: Path, kind: str
) -> None:
    (mine / "absent.yaml").write_text(ABSENT.format(type=kind))
    (tmp_path / "goals.yaml").write_text("goals:\n  - {name: one, goal: one, actor: me/absent}\n")
    wanted = "program 'no-such-agent' not found on your PATH; install it: buy one"
    for words in (("hi", "--actor", "me/absent"), ("-f", str(tmp_path / "goals.yaml"))):
        ran = agents("run", *words)
        assert ran.code == 2, ran.err
        assert wanted in ran.err
        assert "did you mean" not in ran.err
    assert json.loads(agents("plan", "list", "--format", "json").out) == []


def test_the_command_passthrough_and_file_of_an_agent_are_shown(agents: Agents) -> None:
    shown = agents("actor", "show", "external/claude-code").out
    assert "claude --print" in shown
    assert "ANTHROPIC_API_KEY" in shown
    assert ".claude/settings.json" in shown
    assert "npm install -g @anthropic-ai/claude-code" in shown
    assert "actors/external/claude-code.yaml" in "".join(shown.split())
    facts = json.loads(agents("actor", "show", "external/claude-code", "--format", "json").out)
    assert Path(facts["file"]).is_file()


@pytest.mark.parametrize("name", ["external/codex", "builtin/reviewer"])
def test_a_shipped_actor_is_printed_as_one_that_can_be_kept(agents: Agents, mine: Path, name: str) -> None:
    printed = agents("actor", "show", name, "--yaml")
    assert printed.code == 0
    kept = mine / "kept.yaml"
    kept.write_text(printed.out)
    own = f"mine/{name.rpartition('/')[2]}"
    assert load_actor(kept.read_bytes(), "kept.yaml").name == own
    shown = json.loads(agents("actor", "show", own, "--format", "json").out)
    shipped = json.loads(agents("actor", "show", name, "--format", "json").out)
    assert shown["file"] == str(kept)
    assert shown["nodes"] == shipped["nodes"]


def test_a_broken_actor_is_marked_in_the_list(agents: Agents, mine: Path) -> None:
    (mine / "bad.yaml").write_text("name: me/bad\n")
    listed = agents("actor", "list").out
    (line,) = [line for line in listed.splitlines() if "me/bad" in line]
    assert "invalid: line 1: 'type' is missing" in line


def test_the_last_output_of_a_failed_agent_is_shown(agents: Agents, mine: Path) -> None:
    (mine / "fails.yaml").write_text(FAILS)
    ran = agents("run", "hi", "--actor", "me/fails")
    assert ran.code == 1
    assert "it failed: agent: the agent exited with code 7; last line of output: why" in ran.err
    plan = json.loads(agents("plan", "list", "--format", "json").out)[0]["id"]
    assert f"agents plan log {plan} 1" in ran.err
    shown = agents("plan", "show", plan).out
    assert "last line of output: why" in shown
    assert "\\n" not in shown
    log = agents("plan", "log", plan, "1").out
    assert "  begun\n  why\n" in log
    assert "\\n" not in log


def test_an_approval_request_names_the_risks(agents: Agents, mine: Path) -> None:
    (mine / "asks.yaml").write_text(ASKS)
    ran = agents("run", "hi", "--actor", "me/asks")
    assert ran.code == 3
    assert (
        "needs approval for network: it runs sh with your variables MY_AGENT_KEY, OTHER_SETTING, "
        "copies of ~/.agent/login and the network"
    ) in ran.err


def test_standard_input_is_no_file_that_could_be_printed(agents: Agents) -> None:
    ran = agents("actor", "show", "-", "--yaml")
    assert ran.code == 2
    assert "not -" in ran.err


def test_an_agent_that_is_named_by_its_path_has_to_be_there_unless_the_sandbox_may_have_it() -> None:
    assert absence_of("/no/such/agent", "buy one") == (
        "program '/no/such/agent' not found; install it: buy one"
    )
    assert absence_of("./agent.sh") is None
    assert absence_of(sys.executable) is None
