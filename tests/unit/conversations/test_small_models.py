"""A model that calls no tools by itself is shown the relevant code and asked once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.access.model.user import TokenKind
from cleveragents.api.client import LocalClient
from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.conversations.model import TurnState
from cleveragents.models.script_document import read_script
from cleveragents.testing.scripted_server import ScriptedServer
from tests.server_plan_bench import plan_server

SCRIPT = """
version: 1
rules:
  - when: {system: "You answer questions about a repository", user: "def mix_colour"}
    reply: {text: "In `paint.py`, `mix_colour` mixes it."}
  - reply: {text: "I was shown nothing."}
"""


def test_it_answers_from_the_code_that_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    prices = tmp_path / "prices.toml"
    prices.write_text('[models."openai/small"]\ntool_calls = "none"\ncontext_tokens = 8192\n')
    with ScriptedServer(read_script(SCRIPT, "script"), models=("small",)) as model:
        settings = {"models__base_url": model.base_url, "models__prices": str(prices)}
        with plan_server(tmp_path / "server", **settings) as server:
            (server.repository / "paint.py").write_text("def mix_colour() -> str:\n    return 'blue'\n")
            container = server.bench.container
            found = container.users.known_by(
                server.bench.tokens["operator"], TokenKind.PROGRAM, now=container.clock.now()
            )
            assert found is not None
            talks = LocalClient(container, found[0]).conversations
            talk = talks.create(ConversationRequest(resource="shop", model="openai/small"))
            talks.send(talk.id, "Where is the colour mixed, in mix_colour?")
            turn = talks.wait(talk.id, timeout=120)
            assert (turn.state, turn.answer) == (
                TurnState.ANSWERED,
                "In `paint.py`, `mix_colour` mixes it.",
            )
            assert talks.get(talk.id).model_calls == 1
