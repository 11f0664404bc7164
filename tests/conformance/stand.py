"""A server under test: `agents serve` on a state of its own, with a resource, a user and a scripted model.

The suites cannot authenticate, so they talk to a forwarder that adds the token of the user. It changes
nothing else, except for the scenario of the A2A suite, which is named in the id of a message: it becomes part
of the goal, and a task that needs input gets an actor that asks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.cli_bench import paint_shop
from tests.reserved_ports import held_ports
from tests.unisolated import ALLOW_UNISOLATED

__all__ = ["Stand", "stand"]

SECONDS = 120
ROOT = Path(__file__).parents[2]
SCRIPT = """\
version: 1
facts: {context_tokens: 32000, output_tokens: 4096}
rules:
  - when: {system: "You plan changes"}
    reply:
      text: |
        {"summary": "One step.", "decisions": [],
         "steps": [{"title": "Paint", "instructions": "Write the colour of the day."}]}
  - when: {offered: start_plan}
    turns:
      - calls: [{tool: start_plan, arguments: {goal: "Write the colour of the day"}}]
      - text: "I started a plan."
  - when: {offered: write}
    turns:
      - calls: [{tool: write, arguments: {path: today.txt, content: "green\\n"}}]
      - text: "Done."
  - reply: {text: '{"verdict": "accept", "findings": [], "summary": "It is green."}'}
"""
ACTOR = """\
name: conformance/asks
type: graph
state: {colour: {description: the colour of the day}}
entry: ask
nodes:
  ask: {type: human, question: "Which colour?", output: colour, next: write}
  write: {type: tool, tool: write, with: {path: today.txt, content: "${colour}"}}
"""


@dataclass(frozen=True)
class Stand:
    """The repository, the environment of the user, and the address that needs no token."""

    repository: Path
    environment: dict[str, str]
    url: str

    def agents(self, *words: str) -> str:
        """Run a command and return its output."""
        command = [sys.executable, "-m", "cleveragents", *words]
        done = subprocess.run(
            command, cwd=self.repository, env=self.environment, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
        return done.stdout


@contextmanager
def stand(*, serves: bool = True, **variables: str) -> Iterator[Stand]:
    """Yield a running server, with these environment variables; without `serves`, only a repository and a
    state.
    """
    with tempfile.TemporaryDirectory(prefix="agents-conformance-") as name, held_ports() as [port]:
        place = Path(name)
        repository = paint_shop(place / "shop")
        (place / "script.yaml").write_text(SCRIPT)
        actors = place / ".config" / "cleveragents" / "actors"
        actors.mkdir(parents=True)
        (actors / "asks.yaml").write_text(ACTOR)
        own = ("CLEVERAGENTS_", "XDG_", "NO_COLOR")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        environment = {
            **inherited,
            **ALLOW_UNISOLATED,
            **variables,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))),
            "HOME": name,
            "CLEVERAGENTS_STATE_DIRECTORY": str(place / "state"),
            "CLEVERAGENTS_PLAN_PROFILE": "review",
            "CLEVERAGENTS_MODELS_DEFAULT": f"scripted/{place / 'script.yaml'}",
            "CLEVERAGENTS_SERVER_REQUESTS_PER_MINUTE": "100000",
        }
        ready = Stand(repository, environment, f"http://127.0.0.1:{port}")
        if not serves:
            yield ready
            return
        ready.agents("project", "add", "conformance")
        ready.agents("resource", "add", "shop", "--project", "conformance", "--path", str(repository))
        ready.agents("user", "add", "suite", "--role", "admin")
        token = ready.agents("user", "token", "suite").split()[-1]
        with _server(ready, port), _forwarder(port, token) as url:
            yield Stand(repository, environment, url)


@contextmanager
def _server(ready: Stand, port: int) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "tests.conformance.serve",
        "serve",
        "--port",
        str(port),
        "--workers",
        "2",
    ]
    server = subprocess.Popen(command, cwd=ready.repository, env=ready.environment)
    try:
        ends = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < ends
                assert server.poll() is None
                time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(SECONDS)


@contextmanager
def _forwarder(port: int, token: str) -> Iterator[str]:
    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.startswith("/a2a"):
                body = _with_scenario(body)
            headers = {
                name: value for name, value in self.headers.items() if name.lower() != "content-length"
            }
            headers |= {"Authorization": f"Bearer {token}"}
            there = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
            try:
                there.request(self.command, self.path, body, headers)
                self._pass_on(there)
            finally:
                there.close()
            self.close_connection = True

        def _pass_on(self, there: HTTPConnection) -> None:
            answer = there.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            with suppress(HTTPException, OSError):  # the suite or the server has left the stream
                while piece := answer.read1(65_536):
                    self.wfile.write(piece)
                    self.wfile.flush()

        do_GET = do_POST = do_DELETE = do_PUT = do_OPTIONS = do_HEAD = handle_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _with_scenario(body: bytes) -> bytes:
    """Add the id of a message, which names the scenario, to the text of a new task, and the actor."""
    try:
        said = json.loads(body)
        message = said["params"]["message"]
        if not message.get("taskId"):
            message["parts"][0]["text"] += f" ({message['messageId']})"
            if message["messageId"].startswith("tck-input-required"):
                message["metadata"] = {"actor": "conformance/asks"}
    except (ValueError, LookupError, TypeError, AttributeError):
        return body
    return json.dumps(said).encode()
