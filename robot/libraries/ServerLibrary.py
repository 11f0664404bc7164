"""Keywords that start a real server, and ask it with the real `agents` executable from a home elsewhere."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from robot.api.deco import keyword, library

from tests.cli_bench import paint_shop
from tests.fork_server import COMMANDS, keep_nursery, ran
from tests.leaks import Baseline, take_baseline
from tests.reserved_ports import held_ports

AGENTS = str(Path(sys.executable).with_name("agents"))
FORKED = [sys.executable, "-m", "cleveragents"]
SECONDS = 300

# What the user runs begins as a fork, which spares it what it imports; the server is the executable itself.
keep_nursery([COMMANDS])


@library(scope="TEST")
class ServerLibrary:
    """A server on a state of its own, and a user elsewhere who has a token."""

    def __init__(self) -> None:
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._before: Baseline | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._held = ExitStack()
        self._code = -1
        self._out = ""
        self._err = ""

    @keyword
    def open_a_repository(self) -> None:
        self._before = take_baseline()
        self._place = tempfile.TemporaryDirectory(prefix="agents-server-")
        for name in ("server", "user"):
            (self.place / name).mkdir()
        paint_shop(self.place / "shop")

    @keyword
    def start_a_server(self) -> None:
        [self._port] = self._held.enter_context(held_ports())
        self._server = subprocess.Popen(
            [AGENTS, "serve", "--port", str(self._port)],
            env=self._environment("server"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends = time.monotonic() + SECONDS
        while not self._answers():
            assert time.monotonic() < ends
            time.sleep(0.1)

    @keyword
    def stop_the_server_and_find_nothing_left(self) -> None:
        assert self._place is not None
        assert self._before is not None
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(SECONDS)
        self._held.close()
        self._place.cleanup()
        leaks = self._before.leaks()
        assert not leaks, leaks

    @keyword
    def run_on_the_server(self, *arguments: str) -> None:
        """As whoever sits at the server's machine."""
        self._run("server", [*arguments])

    @keyword
    def log_in_with_the_token(self) -> None:
        """What the last command printed is typed into the login."""
        self._run("user", ["login", self.url, "-"], self._out)

    @keyword
    def run_through_the_server(self, *arguments: str) -> None:
        """As a user elsewhere."""
        self._run("user", ["--server", self.url, *arguments])

    @keyword
    def the_plan(self) -> str:
        """That the last command made, as its first line names it."""
        return self._err.split()[1].rstrip(":")

    @keyword
    def exit_code_should_be(self, code: int) -> None:
        assert self._code == code, f"{self._code}: {self._err}"

    @keyword
    def output_should_contain(self, *texts: str) -> None:
        assert all(text in self._out for text in texts), self._out

    @keyword
    def complaint_should_contain(self, *texts: str) -> None:
        assert all(text in self._err for text in texts), self._err

    @keyword
    def file_should_say(self, name: str, content: str) -> None:
        assert (self.place / "shop" / name).read_text().strip() == content

    @property
    def place(self) -> Path:
        assert self._place is not None
        return Path(self._place.name)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _environment(self, who: str) -> dict[str, str]:
        own = ("CLEVERAGENTS_", "XDG_", "NO_COLOR")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        return {**inherited, "HOME": str(self.place / who)}

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        return True

    def _run(self, who: str, arguments: list[str], typed: str = "") -> None:
        place = self.place / "shop"
        self._code, self._out, self._err = ran(
            [*FORKED, *arguments], typed, timeout=SECONDS, env=self._environment(who), cwd=place
        )
