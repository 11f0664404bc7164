"""`agents ask`, `agents session` and `agents --continue`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attached_files import PDF, PNG
from tests.cli_bench import Agents, command_line, paint_shop, use_home
from tests.small_model import small_default_model

RULES = [
    {"when": {"user": "person:\\s+fail"}, "reply": {"fault": {"status": 401, "message": "no such key"}}},
    {
        "when": {"user": "person:\\s+colour"},
        "turns": [
            {"calls": [{"tool": "grep", "arguments": {"pattern": "colour"}}]},
            {"text": "In `src/paint.py:1`.\x1b[2J"},
        ],
    },
    {"when": {"attached": "image/png", "user": '"shot.png"'}, "reply": {"text": "A dialog."}},
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
    script.write_text(json.dumps({"version": 1, "facts": {"image_tokens": 900}, "rules": RULES}))
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


def test_a_picture_is_attached_to_a_question(agents: Agents, tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    shot.write_bytes(PNG)
    told = json.loads(agents("ask", "What is this?", "--attach", str(shot), "--format", "json").out)
    assert told["answer"] == "A dialog."
    assert told["attachments"] == [{"name": "shot.png", "media_type": "image/png", "bytes": len(PNG)}]
    talk = told["conversation_id"]
    typed = f"/attach {shot}\n/attach\n/attach {shot}\nAnd this?\nand you?\n"
    ended = agents("session", "resume", talk, typed=typed)
    assert "> A dialog.\n\n> I remember.\n" in ended.out, "the file goes with one message"
    assert ended.err.count("your next message has: shot.png") == 2
    assert "your next message has no attachments" in ended.err
    assert f"[attached shot.png, image/png, {len(PNG)} bytes]" in agents("session", "show", talk).out


def test_files_that_cannot_be_attached_are_refused_before_a_session_is_created(
    agents: Agents, tmp_path: Path
) -> None:
    def named(name: str, content: bytes = b"") -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    pipe, link, closed = tmp_path / "pipe.png", tmp_path / "link.png", named("closed.png", PNG)
    os.mkfifo(pipe)
    link.symlink_to(named("secret.png", PNG))
    closed.chmod(0)
    for path, problem in (
        (named("notes.png", b"just text"), "is no PNG, JPEG, GIF or WebP image and no PDF; paste its text"),
        (named("paper.pdf", PDF), "takes no application/pdf files"),
        (named("large.png", PNG + bytes(10_000_000)), "larger than 10,000,000 bytes"),
        (pipe, "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (link, "is a symbolic link"),
        (tmp_path / "none\x1b[2J.png", "cannot be read: No such file"),
        *([(closed, "cannot be read: Permission denied")] if os.getuid() else []),
    ):
        ended = agents("ask", "What is this?", "--attach", str(path))
        assert (ended.code, problem in ended.err, "\x1b" in ended.err) == (2, True, False), ended.err
    assert json.loads(agents("session", "list", "--format", "json").out) == []


def test_a_session_is_renamed(agents: Agents) -> None:
    talk = json.loads(agents("ask", "hello", "--format", "json").out)["conversation_id"]
    assert "is named The shed" in agents("session", "rename", talk, "The", "shed").err
    assert "The shed" in agents("session", "list").out
    assert agents("session", "rename", talk).code == 2


def test_a_session_continues_where_it_was_left(agents: Agents) -> None:
    assert "no session" in agents("--continue").err
    talk = json.loads(agents("ask", "hello", "--format", "json").out)["conversation_id"]
    agents("session", "start", typed="/quit\n")
    ended = agents("--continue", typed="and you?\n/plans\n/help\n/rename A talk\n/nothing\n\n")
    assert "I remember." in ended.out
    assert "no plan" in ended.err
    assert "/compact" in ended.err
    assert "this session is named A talk" in ended.err
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


def test_a_spent_budget_is_raised_and_the_question_answered(agents: Agents) -> None:
    ended = agents("ask", "colour", "--max-steps", "1")
    (talk,) = [one["id"] for one in json.loads(agents("session", "list", "--format", "json").out)]
    assert ended.code == 1
    remedies = f"  Raise the limit: agents session budget --max-steps 2 {talk}\n"
    assert f"{remedies}  try again: agents session resume {talk}\n" in ended.err
    assert "1 of 1" in agents("session", "budget", talk).out
    raised = agents("session", "budget", "--max-steps", "2", talk, "--format", "json")
    assert json.loads(raised.out)["limits"]["steps"] == 2
    lower = agents("session", "budget", talk, "--max-steps", "1")
    assert (lower.code, "cannot be lowered" in lower.err) == (2, True)
    assert "In `src/paint.py:1`." in agents("session", "resume", talk, typed="\n").out


def test_a_session_raises_its_budget_line_by_line(agents: Agents) -> None:
    lines = ("colour", "/budget", "/budget x", "/budget 5 cents", "/budget nan", "/budget 2 steps", "")
    ended = agents("session", "start", "--max-steps", "1", typed="".join(f"{line}\n" for line in lines))
    assert "  Raise the limit: /budget 2 steps\n  Send an empty line to continue the turn.\n" in ended.err
    assert "model calls  1 of 1\n" in ended.err
    for problem in ("'x' is not a valid float", "unknown unit 'cents'", "'nan' is not a number"):
        assert problem in ended.err
    assert "model calls  1 of 2\n" in ended.err
    assert "In `src/paint.py:1`." in ended.out


def test_a_session_says_that_a_model_without_tools_starts_no_plans(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "this model starts and changes no plans by itself"
    assert hint not in agents("session", "start", piped="hello\n").err
    with small_default_model(tmp_path, monkeypatch):
        ended = agents("session", "start", typed="Paint the shed.\nNow use red.\n")
        assert (ended.code, ended.out.count("It is blue."), ended.err.count(hint)) == (0, 2, 1)
        assert "  /plan GOAL  start a plan\n  agents plan correct PLAN --append --guidance TEXT" in ended.err
        assert agents("session", "start", piped="hello\n").err.count(hint) == 1


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
