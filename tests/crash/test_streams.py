"""A server that is killed in the middle of a stream is restarted, and its clients miss nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.server.first_token import ensure_first_token
from cleveragents.server.server_file import running_server
from cleveragents.storage.outbox import append_to_outbox
from tests.fork_server import Forked
from tests.live_server import events_in, stream
from tests.ready_database import ready_database

SECONDS = 240.0
EVENTS_PER_SERVER = 40
SERVERS = 2


@contextmanager
def serving(state: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a server process and yield its address; kill it afterwards."""
    environment = {**os.environ, "HOME": str(state.parent), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}
    command = [sys.executable, "-m", "cleveragents", "serve", "--port", "0", "--workers", "0"]
    with (
        (state.parent / "serve.log").open("ab") as log,
        Forked(command, env=environment, cwd=state.parent, stdout=log, stderr=log) as process,
    ):
        try:
            give_up = time.monotonic() + SECONDS
            while (found := running_server(state)) is None or found.pid != process.pid:
                assert time.monotonic() < give_up
                assert process.poll() is None
                threading.Event().wait(0.02)
            yield found.url, process
        finally:
            process.kill()


class Client:
    """Reads the stream and reconnects after each end, with the last event it saw."""

    def __init__(self, token: str, log: Path) -> None:
        self.token = token
        self.log = log
        self.addresses: list[str] = []
        self.positions: list[int] = []
        self.subjects: list[str] = []
        self.changed = threading.Condition()
        self.connections = 0
        self.over = False

    def run(self) -> None:
        while not self.over:
            with self.changed:
                assert self.changed.wait_for(lambda: self.addresses, SECONDS)
                address = self.addresses.pop()
            with suppress(httpx.HTTPError):
                self.read(address)

    def read(self, address: str) -> None:
        last = {"Last-Event-ID": str(self.positions[-1])} if self.positions else {}
        with stream(address, self.token, "?after=0", **last) as answer:
            if answer.status_code == 503:  # busy; try again
                self.goes_to(address)
                return
            assert answer.status_code == 200, (answer.read(), self.log.read_text()[-5000:])
            self.connections += 1
            for frame in events_in(answer):
                if "data" in frame:
                    with self.changed:
                        self.positions.append(int(frame["id"]))
                        self.subjects.append(frame["data"]["subject"])
                        self.changed.notify_all()
                if self.over:
                    return

    def goes_to(self, address: str) -> None:
        with self.changed:
            self.addresses.append(address)
            self.changed.notify_all()

    def wait_for(self, subject: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: subject in self.subjects, SECONDS), self.subjects[-3:]


def happen(container: Container, subject: str) -> None:
    now, event_id = container.clock.now(), container.identifiers.new()
    event = DomainEvent(EventType.PLAN_MOVED, subject, event_id, now, {"n": subject})
    container.database.write(lambda connection: append_to_outbox(connection, event))


@pytest.mark.timeout(1800)
def test_a_client_of_a_restarted_server_misses_nothing(tmp_path: Path) -> None:
    """OpenHands/software-agent-sdk#3983: events during a disconnection were never replayed. Here the server
    itself dies while events happen, and the next one continues at the client's position.
    """
    state = tmp_path / "state"
    ready_database(state / "state.db")
    environment = {"HOME": str(tmp_path), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}
    with Container(load_configuration(environment, tmp_path, []).settings) as container:
        token = ensure_first_token(container).secret
        client = Client(token, tmp_path / "serve.log")
        thread = threading.Thread(target=client.run)
        thread.start()
        total = 0
        for _ in range(SERVERS):
            with serving(state) as (address, process):
                client.goes_to(address)
                for number in range(EVENTS_PER_SERVER):
                    happen(container, f"e{total}")
                    total += 1
                    if number == EVENTS_PER_SERVER // 2:
                        client.wait_for(f"e{total - 1}")
                # The last ones are in flight, and may or may not be sent.
                process.kill()
                process.wait(SECONDS)
            happen(container, f"e{total}")  # while there is no server
            total += 1
        with serving(state) as (address, _):
            client.goes_to(address)
            client.wait_for(f"e{total - 1}")
            client.over = True
            happen(container, "goodbye")
            thread.join(SECONDS)
        told = [subject for subject in client.subjects if subject.startswith("e")]
        assert told == [f"e{number}" for number in range(total)]
        assert client.positions == list(range(1, len(client.positions) + 1))
        assert client.connections >= SERVERS + 1
        assert json.dumps(client.subjects).count("goodbye") == 1
        container.audit.sequence_pending()
        assert container.audit.verify().ok
