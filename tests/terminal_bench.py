"""The terminal app over a real client of a scratch repository, driven without a terminal."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from cleveragents.api.client import Client, connect
from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.cli.terminal_app.app import TerminalApp
from tests.cli_bench import paint_shop, use_home

__all__ = ["drive", "shop_client", "text_of", "until"]

_SECONDS = 110.0


@contextmanager
def shop_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: Sequence[object] = ()
) -> Iterator[Client]:
    """Return a client of a repository with the word `colour` in two files. The model follows the rules."""
    root = paint_shop(tmp_path / "shop")
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    if rules:
        script = tmp_path / "script.yaml"
        script.write_text(json.dumps({"version": 1, "facts": {"image_tokens": 900}, "rules": list(rules)}))
        monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{script}")
    monkeypatch.chdir(root)
    with connect(directory=root) as client:
        yield client


def drive(
    client: Client,
    play: Callable[[Pilot[None], TerminalApp], Awaitable[None]],
    *,
    size: tuple[int, int] = (100, 30),
    notice: str = "",
    notifications: bool = False,
) -> None:
    """Run the app without a terminal, and `play` on it."""

    async def run() -> None:
        files = ["src/paint.py", "README.md"]
        app = TerminalApp(client, ConversationRequest(repository="."), lambda: files, notice=notice)
        async with app.run_test(size=size, notifications=notifications) as pilot:
            await play(pilot, app)

    asyncio.run(run())


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Let the app work until the condition is true."""
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, "the condition is still false"
        await pilot.pause(0.01)


def text_of(screen: Screen[Any]) -> str:
    """Return everything that the screen shows."""
    lines = screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line) for line in lines)
