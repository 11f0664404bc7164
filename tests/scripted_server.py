"""A server that answers as a test scripts it, and clients of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cleveragents.api.client import HttpClient
from cleveragents.api.transport import HttpTransport

__all__ = [
    "MOMENT",
    "SECRET",
    "Asked",
    "Reply",
    "Scripted",
    "always",
    "answering",
    "client_of",
    "job_row",
    "plan_account",
    "plan_row",
]

SECRET = "agents_sk_0123456789abcdef"
MOMENT = "2026-11-15T12:00:00Z"
Reply = tuple[int, Any]
Asked = Callable[[str, str, dict[str, list[str]]], Reply | None]


class Scripted(ThreadingHTTPServer):
    """Answers each request with `answer`; None breaks the connection."""

    answer: Asked
    daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def _reply(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        place = urlsplit(self.path)
        said = self.server.answer(self.command, place.path.removeprefix("/api"), parse_qs(place.query))
        if said is None:
            self.close_connection = True
            return
        status, body = said
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self._reply()

    def do_POST(self) -> None:
        self._reply()

    def do_PUT(self) -> None:
        self._reply()

    def do_PATCH(self) -> None:
        self._reply()

    def do_DELETE(self) -> None:
        self._reply()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def answering(answer: Asked) -> Iterator[Scripted]:
    server = Scripted(("127.0.0.1", 0), Handler)
    server.answer = answer
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def client_of(answer: Asked, seconds: float = 5.0) -> Iterator[HttpClient]:
    with (
        answering(answer) as server,
        HttpClient(HttpTransport(server.url, SECRET, patience_seconds=seconds)) as made,
    ):
        yield made


def always(status: int, body: Any) -> Asked:
    return lambda *_: (status, body)


def plan_row(**more: Any) -> dict[str, Any]:
    """Return a plan in the format of a list of a 0.1.0 server."""
    return {
        "id": "01A",
        "goal": "g",
        "action": "builtin/goal",
        "phase": "execute",
        "state": "complete",
        "resource": "/srv",
        "project": None,
        "resource_name": None,
        "created": MOMENT,
        "updated": MOMENT,
        "waiting_for": None,
        "error": None,
        "request": {},
        "job": None,
        "parent": None,
        "root": "01A",
        "depth": 0,
        "isolation": None,
        "needs": None,
        "meaning": "",
        "sub_plans": 0,
        "sub_plans_done": 0,
        "sub_plans_left_out": 0,
        **more,
    }


def plan_account(**more: Any) -> dict[str, Any]:
    """Return a plan in the format of a single plan of a 0.1.0 server."""
    said = plan_row(**more)
    del said["sub_plans_left_out"]
    empty = (
        *("can", "next_steps", "notes", "changes", "ignored", "nested_repositories", "renames", "left_out"),
        *("checks", "sub_plans", "parts_left_out", "conflicts", "corrections", "calls"),
    )
    none = ("sandbox", "review_problem", "out_of_reach", "in_the_way", "branch")
    return {**said, **{name: [] for name in empty}, **dict.fromkeys(none), "files_changed": 0, "spending": {}}


def job_row(state: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "01J",
        "kind": "apply",
        "state": state,
        "attempt": 0,
        "max_attempts": 1,
        "priority": 0,
        "worker": None,
        "created": MOMENT,
        "updated": MOMENT,
        "not_before": MOMENT,
        "cancel_reason": None,
        "error": None,
        "key": None,
        "payload": None,
        "result": None,
        "problem": None,
        **more,
    }
