"""`agents ask`, `agents session` and `agents --continue`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli_bench import Agents, command_line, paint_shop, use_home

RULES = [
    {"when": {"user": "person:\\s+fail"}, "reply": {"fault": {"status": 401, "message": "no such key"}}},
    {
        "when": {"user": "person:\\s+colour"},
        "turns": [
            {"calls": [{"tool": "grep", "arguments": {"pattern": "colour"}}]},
            {"text": "In `src/paint.py:1`.\x1b[2J"},
        ],
    },
    {"when": {"user": "Earlier turns"}, "reply": {"text": "I remember."}},
    {"reply": {"text": "Hello."}},
]


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    root = paint_shop(tmp_path / "shop")
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"version": 1, "facts": {}, "rules": RULES}))
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{script}")
    monkeypatch.chdir(root)
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_ask_prints_the_answer_alone(agents: Agents) -> None:
    ended = agents("ask", "colour")
    assert (ended.code, ended.out.startswith("In `src/paint.py:1`."), ended.err) == (0, True, "")
    told = json.loads(agents("ask", "colour", "--format", "json").out)
    assert (told["state"], told["read_only"], told["number"]) == ("answered", True, 1)


def test_an_empty_question_creates_no_session(agents: Agents) -> None:
    for question in ("", "  "):
        refused = agents("ask", question)
        assert (refused.code, "the question is empty" in refused.err) == (2, True)
    assert json.loads(agents("session", "list", "--format", "json").out) == []


def test_a_session_continues_where_it_was_left(agents: Agents) -> None:
    assert "no session" in agents("--continue").err
    talk = json.loads(agents("ask", "hello", "--format", "json").out)["conversation_id"]
    agents("session", "start", typed="/quit\n")
    ended = agents("--continue", typed="and you?\n/plans\n/help\n/nothing\n\n")
    assert "I remember." in ended.out
    assert "no plan" in ended.err
    assert "/compact" in ended.err
    assert "unknown command" in ended.err
    assert f"agents session resume {talk}" in ended.err
    rows = json.loads(agents("session", "list", "--format", "json").out)
    assert [(row["id"], row["turns"]) for row in rows if row["turns"]] == [(talk, 2)]
    assert talk in agents("session", "list").out
    shown = agents("session", "show", talk[-8:]).out
    assert "1. you: hello" in shown
    assert "I remember." in shown
    assert agents("ask", "again", "--session", talk).out == "I remember.\n"


def test_a_session_is_forked_compacted_and_deleted(agents: Agents) -> None:
    talk = json.loads(agents("ask", "hello", "--format", "json").out)["conversation_id"]
    fork = json.loads(agents("session", "fork", talk, "--turn", "1", "--format", "json").out)
    assert (fork["forked_from"], fork["turns"]) == (talk, 1)
    assert json.loads(agents("session", "compact", talk, "--format", "json").out)["compacted"] == 0
    assert "deleted" in agents("session", "delete", talk, "--yes").err
    missing = agents("session", "show", talk)
    assert (missing.code, "there is no session" in missing.err) == (2, True)


def test_a_failed_question_says_why(agents: Agents) -> None:
    ended = agents("ask", "fail")
    assert (ended.code, ended.out) == (1, "")
    assert "not answered" in ended.err
    assert "agents session resume" in ended.err


def test_lines_of_a_pipe_are_messages(agents: Agents) -> None:
    ended = agents("session", "start", piped="hello\n/quit\nand you?\n")
    assert (ended.code, "Hello." in ended.out, "I remember." in ended.out) == (0, True, False)


def test_an_unknown_command_in_a_pipe_does_not_stop_the_session(agents: Agents) -> None:
    ended = agents("session", "start", piped="/plasn\nhello\n")
    assert (ended.code, "Hello." in ended.out) == (2, True), ended.err
    assert ended.err.count("error: unknown command /plasn; /help shows the commands") == 1


def test_wrong_usage_is_refused(agents: Agents) -> None:
    for words in (("ask",), ("--continue", "plan", "list"), ("--set", "log.level=info")):
        assert agents(*words).code == 2
    talk = json.loads(agents("ask", "hello", "--format", "json").out)["conversation_id"]
    assert "a session has its own" in agents("ask", "x", "--session", talk, "--model", "a/b").err
