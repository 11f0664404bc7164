"""Keywords that use the real `agents` executable, each test in a home of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from robot.api.deco import keyword, library

from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.jobs.model.job import NewJob
from tests.fork_server import COMMANDS, keep_nursery, ran
from tests.leaks import Baseline, take_baseline

AGENTS = str(Path(sys.executable).with_name("agents"))
FORKED = [sys.executable, "-m", "cleveragents"]
SECONDS = 300

# Most commands begin as forks, which spares them what they import; those with a terminal, a reader that goes
# away, a signal or others beside them are the executable itself.
keep_nursery([COMMANDS])


@library(scope="TEST")
class CliLibrary:
    """Runs commands and remembers the last one's exit code and output."""

    def __init__(self) -> None:
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._before: Baseline | None = None
        self._environment: dict[str, str] = {}
        self._code = -1
        self._out = ""
        self._err = ""

    # ── The stage ─────────────────────────────────────────────────────────────────────────────────

    @keyword
    def open_a_fresh_home(self) -> None:
        self._before = take_baseline()
        self._home = tempfile.TemporaryDirectory(prefix="agents-home-")
        own = ("CLEVERAGENTS_", "XDG_", "NO_COLOR")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        (self.home / "tmp").mkdir()
        self._environment = {**inherited, "HOME": str(self.home), "TMPDIR": str(self.home / "tmp")}

    @keyword
    def close_the_home_and_find_nothing_left(self) -> None:
        assert self._home is not None
        assert self._before is not None
        self._home.cleanup()
        leaks = self._before.leaks()
        assert not leaks, leaks

    @keyword
    def make_the_home_unwritable(self) -> None:
        """Not a file can be made there, by root neither; what is temporary goes elsewhere."""
        self._environment["HOME"] = "/proc/self"

    @keyword
    def set_variable_of_environment(self, name: str, value: str) -> None:
        self._environment[name] = value

    @keyword
    def write_file(self, name: str, content: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode().decode("unicode_escape").encode("latin-1"))

    @keyword
    def submit_a_job(self) -> str:
        """Through the composition root, as a service would."""
        settings = load_configuration(self._environment, self.home).settings
        with Container(settings) as container:
            return container.jobs.submit(NewJob("demo"), now=container.clock.now()).id

    @keyword
    def tamper_with_the_log(self, statement: str) -> None:
        with sqlite3.connect(self.home / ".local/share/cleveragents/state.db") as connection:
            connection.execute(statement)
        connection.close()

    # ── Acts ──────────────────────────────────────────────────────────────────────────────────────

    @keyword
    def run_agents(self, *arguments: str, stdin: str = "") -> None:
        command = [*FORKED, *arguments]
        ended = ran(command, stdin, timeout=SECONDS, env=self._environment, cwd=self.home)
        self._code, self._out, self._err = ended

    @keyword
    def run_agents_at_once(self, *lines: str) -> None:
        """Each line is a command; all run at the same time, five times each."""
        started = [
            subprocess.Popen(
                [AGENTS, *line.split()], env=self._environment, cwd=self.home, stderr=subprocess.PIPE
            )
            for _ in range(5)
            for line in lines
        ]
        for process in started:
            _, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err

    @keyword
    def run_agents_on_a_terminal(self, *arguments: str) -> None:
        leader, follower = pty.openpty()
        environment = {**self._environment, "TERM": "xterm-256color", "COLUMNS": "120"}
        process = subprocess.Popen(
            [AGENTS, *arguments],
            env=environment,
            cwd=self.home,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        self._out = _read_terminal(leader)
        os.close(leader)
        self._code = process.wait(SECONDS)

    @keyword
    def run_agents_into_a_reader_that_stops(self, *arguments: str) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.Popen(
            [AGENTS, *arguments],
            env=self._environment,
            cwd=self.home,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(writer)
        _, self._err = process.communicate(timeout=SECONDS)
        self._code = process.returncode

    @keyword
    def interrupt_agents_when_it_says(self, word: str, signal_name: str, *arguments: str) -> None:
        process = subprocess.Popen(
            [AGENTS, *arguments],
            env=self._environment,
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        seen = b""  # a read may end within a character
        deadline = time.monotonic() + SECONDS
        while word.encode() not in seen:
            assert select.select([process.stderr], [], [], deadline - time.monotonic())[0], seen
            chunk = os.read(process.stderr.fileno(), 65536)
            assert chunk, seen
            seen += chunk
        process.send_signal(signal.Signals[signal_name])
        out, err = process.communicate(timeout=SECONDS)
        self._code, self._out, self._err = process.returncode, out.decode(), (seen + err).decode()

    # ── Judgements ────────────────────────────────────────────────────────────────────────────────

    @keyword
    def exit_code_should_be(self, code: int) -> None:
        assert self._code == code, f"exit code {self._code}\n{self._out}\n{self._err}"
        assert "Traceback" not in self._err, self._err

    @keyword
    def output_should_be(self, text: str) -> None:
        assert self._out.strip() == text, self._out

    @keyword
    def output_should_contain(self, *texts: str) -> None:
        for text in texts:
            assert text in self._out, f"{text!r} is not in:\n{self._out}"

    @keyword
    def output_should_not_contain(self, text: str) -> None:
        text = text.encode().decode("unicode_escape")
        assert text not in self._out + self._err, self._out + self._err

    @keyword
    def output_should_have_colours(self) -> None:
        assert "\x1b[32m" in self._out, repr(self._out)

    @keyword
    def output_should_have_no_colours(self) -> None:
        assert "\x1b[3" not in self._out, repr(self._out)

    @keyword
    def complaint_should_contain(self, *texts: str) -> None:
        for text in texts:
            assert text in self._err, f"{text!r} is not in:\n{self._err}"

    @keyword
    def complaint_should_be_empty(self) -> None:
        assert self._err == "", self._err

    @keyword
    def json_of_output(self) -> Any:
        return json.loads(self._out)

    @keyword
    def home_should_hold_only(self, *names: str) -> None:
        found = sorted(str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file())
        assert found == sorted(names), found

    @property
    def home(self) -> Path:
        assert self._home is not None
        return Path(self._home.name)


def _read_terminal(leader: int) -> str:
    said = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not chunk:
            break
        said += chunk
    return said.decode()
