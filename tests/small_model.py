"""A default model without native tool calls, on a scripted server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleveragents.models.script_document import read_script
from cleveragents.testing.scripted_server import ScriptedServer

__all__ = ["small_default_model"]

_SCRIPT = "version: 1\nrules: [{reply: {text: It is blue.}}]"


@contextmanager
def small_default_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the model the default one. It answers every question with the same sentence."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[models."openai/small"]\ntool_calls = "none"\ncontext_tokens = 8192\n')
    with ScriptedServer(read_script(_SCRIPT, "script"), models=("small",)) as server:
        settings = {"BASE_URL": server.base_url, "PRICES": str(prices), "DEFAULT": "openai/small"}
        for name, value in settings.items():
            monkeypatch.setenv(f"CLEVERAGENTS_MODELS_{name}", value)
        yield
