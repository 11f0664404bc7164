"""`agents model`: lists, shows and tries models; mistakes end in a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from socket import socket

import pytest

from cleveragents.testing.scripted_server import ScriptedServer
from tests.cli_bench import Agents, command_line, paint_shop, use_home

SCRIPT = """
facts: {input_price: 1000000, output_price: 2000000}
rules:
  - when: {user: "five words"}
    reply: {text: "Hello to you, my friend.", usage: {input: 2, output: 3, cached: 1}}
  - when: {user: quiet}
    reply: {usage: {unsaid: true}}
"""


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    (tmp_path / "script.yaml").write_text(SCRIPT)
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_models_are_listed_with_their_prices(agents: Agents) -> None:
    rows = json.loads(agents("model", "list", "--format", "json").out)
    found = {row["model"]: row for row in rows}
    assert (found["openai/gpt-4o"]["input"], found["openai/gpt-4o"]["key"]) == (2.5, "missing")
    ended = agents("model", "list", "--provider", "google")
    assert "google/gemini-2.5-pro" in ended.out
    assert "openai" not in ended.out
    assert "dollars per million tokens, as of 20" in ended.err
    nobody = agents("model", "list", "--provider", "nobody")
    assert (nobody.code, "no provider 'nobody'; known providers: anthropic, " in nobody.err) == (2, True)
    assert "did you mean google?" in agents("model", "list", "--provider", "googel").err


def test_a_base_url_keeps_the_shipped_prices_in_the_list(agents: Agents) -> None:
    elsewhere = ("--set", "models.base_url=http://127.0.0.1:1/v1", "model")
    rows = json.loads(agents(*elsewhere, "list", "--format", "json").out)
    found = {row["model"]: row for row in rows}
    assert (found["openai/gpt-4o"]["input"], found["openai/gpt-4o"]["key"]) == (2.5, "not needed")
    assert found["google/gemini-2.5-pro"]["input"] == 1.25
    assert found["openai/gpt-4o"] == json.loads(
        agents(*elsewhere, "show", "openai/gpt-4o", "--format", "json").out
    )


def test_a_server_that_does_not_run_is_named_with_its_setting(agents: Agents) -> None:
    pytest.importorskip("langchain_openai")
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        ended = agents(
            "--set", f"models.base_url={url}", "--set", "models.retries=0", "model", "test", "openai/x"
        )
    assert ended.code == 75
    assert f"the connection to {url} (from models.base_url" in ended.err
    assert "check that the server is running" in ended.err


def test_a_model_is_shown_with_unknown_values_marked(agents: Agents) -> None:
    shown = json.loads(agents("model", "show", "openai/new", "--format", "json").out)
    assert (shown["input"], shown["context_tokens"]) == (None, 32_768)
    ended = agents("model", "show", "openai/new")
    assert "unknown" in ended.out
    assert "prices in dollars per million tokens" in ended.err


def test_a_scripted_model_can_be_tried(agents: Agents) -> None:
    ended = agents("model", "test", "scripted/script.yaml", "--format", "json")
    told = json.loads(ended.out)
    assert told["answer"] == "Hello to you, my friend."
    assert (told["input_tokens"], told["output_tokens"], told["cached_tokens"]) == (2, 3, 1)
    assert told["cost"] == "$8.00"


def test_missing_model_facts_are_not_invented(agents: Agents) -> None:
    ended = agents("model", "test", "scripted/script.yaml", "--prompt", "quiet", "--format", "json")
    told = json.loads(ended.out)
    assert (told["input_tokens"], told["cost"], told["first_word_seconds"]) == (None, "unknown", None)


def test_the_answer_is_shown_as_it_comes(agents: Agents) -> None:
    out = agents("model", "test", "scripted/script.yaml", "--format", "rich").out
    assert out.count("Hello to you, my friend.") == 2


def test_a_server_of_ones_own_can_be_tried(agents: Agents, tmp_path: Path) -> None:
    pytest.importorskip("langchain_openai")
    with ScriptedServer.from_file(tmp_path / "script.yaml") as server:
        ended = agents("--set", f"models.base_url={server.base_url}", "model", "test", "openai/local")
    assert "Hello to you, my friend." in ended.out
    assert "unknown" in ended.out


def test_without_a_name_it_is_the_default(agents: Agents) -> None:
    assert agents("--set", "models.default=scripted/script.yaml", "model", "test").code == 0
    ended = agents("model", "test")
    assert ended.code == 2
    assert "agents config set models.default" in ended.err


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("opneai/gpt-4.1-mini", 2, "did you mean openai/gpt-4.1-mini?"),
        ("opneai/x", 2, "there is no provider 'opneai'; did you mean openai? the providers are anthropic, "),
        ("nope/gpt-4", 2, "no provider 'nope'; did you mean openai/gpt-4o? the providers are anthropic, "),
        ("gpt-4o", 2, "write it as provider/model; did you mean openai/gpt-4o?"),
        ("nope/foo", 2, "there is no provider 'nope'; the providers are anthropic, "),
        ("quux/x", 2, "there is no provider 'quux'; the providers are anthropic, "),
        ("openai/gpt-4o", 2, "set OPENAI_API_KEY"),
        ("openai/gpt-4.1-mni", 2, "did you mean openai/gpt-4.1-mini?"),
        ("scripted/none.yaml", 2, "there is no file none.yaml"),
        ("scripted/~nobody-of-that-name/x", 2, "there is no file ~nobody-of-that-name/x"),
        ("scripted/a\0b", 2, "there is no file "),
    ],
)
def test_mistakes_end_in_a_sentence(agents: Agents, name: str, code: int, said: str) -> None:
    ended = agents("model", "test", name)
    assert (ended.code, said in ended.err) == (code, True)


def test_a_file_that_is_no_script_is_reported_as_such(agents: Agents, tmp_path: Path) -> None:
    for content, said in (
        (b"", "s.yaml is empty; a script starts with `rules:`"),
        (b"\0\xff", "s.yaml is not text; a script starts with `rules:`"),
        (b"key: hunter2", "s.yaml is not a script; a script starts with `rules:`"),
    ):
        (tmp_path / "s.yaml").write_bytes(content)
        ended = agents("model", "test", "scripted/s.yaml")
        assert (ended.code, ended.err) == (2, f"error: model 'scripted/s.yaml': {said}\n")
    (tmp_path / "d").mkdir()
    assert "d is a directory, not a script" in agents("model", "test", "scripted/d").err
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is not a regular file" in agents("model", "test", "scripted/pipe").err
    assert "there is no file none.yaml\n" in agents("model", "test", "scripted/none.yaml").err
    (tmp_path / "loop").symlink_to("loop")
    assert "loop cannot be read: " in agents("model", "test", "scripted/loop").err


TEXT_CALLS = """\
version: 1
rules:
  - when: {system: "You plan changes"}
    reply:
      text: '{"summary": "s", "decisions": [], "steps": [{"title": "Write", "instructions": "Write it."}]}'
  - when: {system: "You change files", turn: 0}
    reply:
      text: |
        I write the file.
        ```json
        {"name": "write", "arguments": {"path": "hello.txt", "content": "Hello\\n"}}
        ```
  - when: {system: "You change files"}
    reply: {text: "Done."}
  - reply: {text: '{"verdict": "accept", "findings": [], "summary": "Right."}'}
"""


def test_a_goal_is_reached_by_a_model_that_writes_its_calls_as_text(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langchain_openai")
    (tmp_path / "calls.yaml").write_text(TEXT_CALLS)
    repository = paint_shop(tmp_path / "shop")
    monkeypatch.chdir(repository)
    with ScriptedServer.from_file(tmp_path / "calls.yaml") as server:
        model = ("--model", "openai/qwen2.5-coder-1.5b-instruct")
        goal = ("--action", "builtin/goal", "--arg", "goal=Say hello")
        ran = agents("--set", f"models.base_url={server.base_url}", "run", *goal, *model, "--yes")
    assert ran.code == 0, ran.err
    assert (repository / "hello.txt").read_text() == "Hello\n"
    assert "I write the file." in ran.err
