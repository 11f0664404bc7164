"""`agents serve` as a process posts to a real receiver on loopback, also after it was killed."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cleveragents.api.client import HttpClient
from cleveragents.api.plans.request import PlanRequest
from cleveragents.api.transport import HttpTransport
from tests.client_bench import Served, served

pytestmark = pytest.mark.usefixtures("commands_are_forked")
EDIT = PlanRequest(
    resource="shop",
    action="builtin/replace",
    arguments={"pattern": "colour", "replacement": "color"},
    apply="review",
)
SECONDS = 60.0


class Receiver(ThreadingHTTPServer):
    """Keeps the objects that it accepts; refuses the first `refusals` ones with 503."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.accepted: list[dict[str, Any]] = []
        self.refusals = 0
        self.changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def plans(self, count: int) -> list[str]:
        """Return the plans of the notifications, once there are as many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.accepted) >= count, SECONDS), self.accepted
            return [told["plan"] for told in self.accepted]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.changed:
            refused = self.server.refusals > 0
            self.server.refusals -= refused
            if not refused:
                self.server.accepted.append(body)
            self.server.changed.notify_all()
        self.send_response(503 if refused else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        thread = threading.Thread(target=made.serve_forever, name="receiver")
        thread.start()
        yield made
        made.shutdown()
        thread.join(SECONDS)


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("webhooks")) as made:
        yield made


def test_a_server_process_posts_each_notification_once(bench: Served, receiver: Receiver) -> None:
    receiver.refusals = 1
    bench.stop(signal.SIGTERM)
    bench.options = ("--set", f"notifications.webhook={receiver.url}")
    bench.start()
    with HttpClient(HttpTransport(bench.url, bench.token("operator"))) as client:
        one = client.plans.wait(client.plans.create(EDIT).id, timeout=SECONDS)
        assert receiver.plans(1) == [one.id]
        assert receiver.accepted[0]["type"] == "plan.needs_you"
        assert receiver.accepted[0]["url"] == f"{bench.url}/plans/{one.id}"
        bench.stop(signal.SIGTERM)
        bench.start()
        two = client.plans.wait(client.plans.create(EDIT).id, timeout=SECONDS)
        assert receiver.plans(2) == [one.id, two.id]
