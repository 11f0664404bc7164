"""`agents init`: a provider, its key, a model, and the settings file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import keyring
import pytest

from cleveragents.api.models import LocalModels
from cleveragents.core.errors import ConfigurationError
from cleveragents.models import local_servers
from cleveragents.models.local_servers import find_local_servers, models_at
from cleveragents.models.provider import keep_in_keyring
from tests.cli_bench import Agents, command_line, use_home

KEY = "sk-" + "a1B2" * 8
SETTINGS = '# mine\n[log]\nlevel = "info" # keep\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "SHELL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "")  # restored after a test that sets it
    monkeypatch.setattr(local_servers, "PORTS", {})
    monkeypatch.setattr(find_local_servers, "__defaults__", ({},))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The entries of a keyring in memory."""
    entries: dict[str, str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: entries.get(name))
    monkeypatch.setattr(keyring, "set_password", lambda service, name, key: entries.update({name: key}))
    return entries


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The models that were tested, and the addresses of their servers."""
    models: list[tuple[str, str]] = []

    def test(self: LocalModels, name: str, **options: object) -> Any:
        models.append((name, self._access.container.settings.models.base_url))
        if "wrong" in name:
            raise ConfigurationError(f"model {name}", "the key was refused")
        return SimpleNamespace(seconds=0.5, cost="$0.0001", tool_calls="native")

    monkeypatch.setattr(LocalModels, "test", test)
    return models


@pytest.fixture
def agents(
    kept: dict[str, str],
    tested: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Agents]:
    monkeypatch.setattr(click.termui, "hidden_prompt_func", lambda prompt: KEY)
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    """A model server on loopback; `answer` is its list of models."""
    said = SimpleNamespace(answer=b"", status=200)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_GET(self) -> None:
            self.send_response(said.status)
            self.send_header("location", "http://192.0.2.1/")
            self.end_headers()
            self.wfile.write(said.answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        said.port = served.server_address[1]
        said.url = f"http://127.0.0.1:{said.port}/v1"
        yield said
        served.shutdown()


def settings_of(home: Path) -> Path:
    return home / ".config" / "cleveragents" / "config.toml"


def test_a_typed_key_goes_to_the_keyring_and_nowhere_else(
    agents: Agents, home: Path, kept: dict[str, str], tested: list[tuple[str, str]]
) -> None:
    file = settings_of(home)
    file.parent.mkdir(parents=True)
    file.write_text(SETTINGS)
    ended = agents("init", typed="3\n\n")  # OpenAI, the usual model
    assert ended.code == 0, ended.err
    assert (kept, tested) == ({"OPENAI_API_KEY": KEY}, [("openai/gpt-4.1-mini", "")])
    assert "key: stored in the keyring as OPENAI_API_KEY\n" in ended.err
    assert "openai/gpt-4.1-mini answered in 0.5 s" in ended.err
    assert file.read_text().startswith(SETTINGS)
    assert 'default = "openai/gpt-4.1-mini"' in file.read_text()
    assert KEY not in file.read_text() + ended.out + ended.err


def test_without_a_keyring_the_key_is_not_stored(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "set_password", lambda service, name, key: None)  # the null backend
    ended = agents("init", typed="3\n\n")
    assert ended.code == 0, ended.err
    assert "key: not stored, because there is no keyring" in ended.err
    assert "add `export OPENAI_API_KEY=…`" in ended.err
    assert KEY not in ended.err + settings_of(home).read_text()
    assert not keep_in_keyring("OPENAI_API_KEY", KEY)


def test_a_local_server_is_found_and_needs_no_key(
    agents: Agents,
    home: Path,
    server: SimpleNamespace,
    tested: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.answer = json.dumps({"data": [{"id": "qwen3:8b"}, {"id": "a b"}, {}, 5]}).encode()
    monkeypatch.setattr(find_local_servers, "__defaults__", ({"Ollama": server.port},))
    ended = agents("init", typed="4\n1\n")
    assert ended.code == 0, ended.err
    assert f"4  Ollama at {server.url} (1 model)" in ended.err
    assert tested == [("openai/qwen3:8b", server.url)]
    assert f'base_url = "{server.url}"' in settings_of(home).read_text()
    # Another provider does not keep the address of the local server.
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert agents("init", "--model", "openai/gpt-4.1", "--yes").code == 0
    assert "base_url" not in settings_of(home).read_text()


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"data": 5}', b"x" * 3_000_000, b"[" * 100_000])
def test_an_answer_that_is_no_list_of_models_is_ignored(server: SimpleNamespace, answer: bytes) -> None:
    server.answer = answer
    assert list(models_at(server.url)) == []


def test_a_redirect_is_not_followed(server: SimpleNamespace) -> None:
    server.status = 302
    assert list(models_at(server.url)) == []
    assert find_local_servers({"none": 9}) == []


def test_without_a_terminal_the_options_decide(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch, tested: list[tuple[str, str]]
) -> None:
    for words, why in {
        (): "without a terminal, pass --model PROVIDER/NAME",
        ("--model", "gpt"): "names no provider",
        ("--model", "nope/x"): "names no provider",
        ("--provider", "google", "--base-url", "http://x", "--model", "y"): "omit --provider",
        ("--model", "anthropic/claude-sonnet-4-5"): "no key for anthropic: set ANTHROPIC_API_KEY",
    }.items():
        ended = agents("init", *words)
        assert (ended.code, why in ended.err) == (2, True), ended.err
    assert not settings_of(home).exists()
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    ended = agents("init", "--provider", "anthropic", "--model", "claude-sonnet-4-5")
    assert (ended.code, "key: found in ANTHROPIC_API_KEY" in ended.err) == (0, True), ended.err
    other = agents("init", "--base-url", "http://127.0.0.1:9/v1", "--model", "qwen/qwen3")
    assert "the default model is anthropic/claude-sonnet-4-5; pass --yes to replace it" in other.err
    assert agents("init", "--base-url", "http://127.0.0.1:9/v1", "--model", "qwen/qwen3", "--yes").code == 0
    assert tested[-1] == ("openai/qwen/qwen3", "http://127.0.0.1:9/v1")


def test_a_failed_test_changes_nothing_unless_the_user_agrees(agents: Agents, home: Path) -> None:
    words = ("init", "--base-url", "http://127.0.0.1:9/v1", "--model", "wrong")
    ended = agents(*words)
    assert (ended.code, "the key was refused" in ended.err) == (2, True)
    assert agents(*words, typed="n\n").code == 2
    assert not settings_of(home).exists()
    assert agents(*words, typed="y\n").code == 0
    assert 'default = "openai/wrong"' in settings_of(home).read_text()
    assert agents("init", "--provider", "openai", typed="\nn\n").code == 130  # keep the present model


@pytest.mark.parametrize(
    ("shell", "file"), [("bash", ".bashrc"), ("fish", ".config/fish/completions/agents.fish")]
)
def test_completion_is_offered_once(
    agents: Agents, home: Path, monkeypatch: pytest.MonkeyPatch, shell: str, file: str
) -> None:
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    words = ("init", "--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    assert agents(*words, typed="n\n").code == 0
    assert not (home / file).exists()
    assert f"completion: installed in {home}" in " ".join(agents(*words, typed="y\n").err.split())
    installed = (home / file).read_text()
    assert "agents" in installed
    again = agents(*words, typed="")
    assert (again.code, "Install completion" in again.err) == (0, False)
    assert (home / file).read_text() == installed


def test_the_address_of_a_model_server_is_not_dropped_silently(agents: Agents, home: Path) -> None:
    gateway = ("config", "set", "models.base_url", "https://gateway.example/v1")
    assert agents(*gateway).code == 0
    refused = agents("init", "--model", "openai/gpt-4.1-mini")
    assert refused.code == 2
    assert (
        "address of the model server is https://gateway.example/v1; pass --yes to replace it" in refused.err
    )


def test_a_missing_package_is_named_before_the_key_is_asked_for(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, kept: dict[str, str]
) -> None:
    monkeypatch.setattr(
        "cleveragents.cli.init.find_spec", lambda module: None if "anthropic" in module else True
    )
    listed = agents("init", typed="3\n")
    assert "  3  Anthropic (not installed)" in listed.err
    assert "Anthropic is not installed:" in " ".join(listed.err.split())
    assert kept == {}
