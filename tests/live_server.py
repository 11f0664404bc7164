"""An application behind a real port, on a thread of the test's process, and its events over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from cleveragents.config.service_settings import ServerSettings
from cleveragents.server.connections import ServingConfig
from tests.server_bench import ServerBench

__all__ = ["events_in", "served", "stream"]

SECONDS = 120.0


@contextmanager
def served(bench: ServerBench, settings: ServerSettings | None = None) -> Iterator[str]:
    """Yield the application's address; with other limits on connections, if given."""
    settings = settings or bench.container.settings.server
    with socket.create_server(("127.0.0.1", 0)) as listens:
        config = ServingConfig(bench.app, settings, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: server.run(sockets=[listens]), name="served")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listens.getsockname()[1]}"
        finally:
            hub = getattr(bench.app.state, "hub", None)
            if hub is not None:
                hub.loop.call_soon_threadsafe(bench.service.stopping.begin)
                hub.wait_closed()
                bench.app.state.hub = None
            server.should_exit = True
            thread.join(SECONDS)


@contextmanager
def stream(base: str, token: str | None, query: str = "", **headers: str) -> Iterator[httpx.Response]:
    """Open the stream of events."""
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    path = f"{base}/api/events/stream{query}"
    with httpx.stream("GET", path, headers=headers, timeout=SECONDS) as answer:
        yield answer


def events_in(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield its frames as {id, event, data}, with parsed JSON; without comments."""
    frame: dict[str, Any] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name in ("id", "event", "data", "retry"):
            frame[name] = json.loads(value) if name == "data" else value
        elif not line and frame:
            yield frame
            frame = {}
