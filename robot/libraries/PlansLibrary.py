"""Keywords that use the real `agents` executable in a repository of each test's own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil
from robot.api.deco import keyword, library

from tests.conditions import wait_until
from tests.fork_server import COMMANDS, keep_nursery, ran
from tests.leaks import Baseline, take_baseline

AGENTS = str(Path(sys.executable).with_name("agents"))
FORKED = [sys.executable, "-m", "cleveragents"]
SECONDS = 300
FILES = {
    "poem.txt": "one\ntwo\nthree\n",
    "long.txt": "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
    "paint.py": "colour = 1\n",
    "README.md": "The colour of it.\n",
}

# What is waited for begins as a fork, which spares it what it imports; what is watched, has a terminal or is
# killed is the executable itself.
keep_nursery([COMMANDS])


@library(scope="TEST")
class PlansLibrary:
    """Runs commands in the repository; remembers the last one's exit code and output, and its plan."""

    def __init__(self) -> None:
        self._place: tempfile.TemporaryDirectory[str] | None = None
        self._before: Baseline | None = None
        self._environment: dict[str, str] = {}
        self._code = -1
        self._out = ""
        self._err = ""
        self._plan = ""
        self._started: subprocess.Popen[str] | None = None
        self._tree: list[psutil.Process] = []

    # ── The stage ─────────────────────────────────────────────────────────────────────────────────

    @keyword
    def open_a_repository(self) -> None:
        self._before = take_baseline()
        self._place = tempfile.TemporaryDirectory(prefix="agents-plans-")
        own = ("CLEVERAGENTS_", "XDG_", "NO_COLOR")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        self._environment = {**inherited, "HOME": self._place.name}
        self.root.mkdir()
        for name, text in FILES.items():
            (self.root / name).write_text(text)
        self._git("init", "-q", "-b", "main")
        self._git("config", "user.name", "me")
        self._git("config", "user.email", "me@example.org")
        self._git("add", "-A")
        self._git("commit", "-qm", "first")

    @keyword
    def close_the_repository_and_find_nothing_left(self) -> None:
        assert self._place is not None
        assert self._before is not None
        if self._started is not None and self._started.poll() is None:
            self._started.kill()
            self._started.communicate(timeout=SECONDS)
        self._place.cleanup()
        leaks = self._before.leaks()
        assert not leaks, leaks

    @keyword
    def edit(self, name: str, text: str) -> None:
        (self.root / name).write_text(_unescaped(text))

    @keyword
    def replacing(self, old: str, new: str) -> list[str]:
        action = ["run", "--action", "builtin/replace"]
        return [*action, "--arg", f"pattern={old}", "--arg", f"replacement={new}"]

    # ── Acts ──────────────────────────────────────────────────────────────────────────────────────

    @keyword
    def run_agents(self, *arguments: str) -> None:
        command = [*FORKED, *arguments]
        self._code, self._out, self._err = ran(command, timeout=SECONDS, env=self._environment, cwd=self.root)
        if arguments[0] == "run":
            self._plan = self._out.split()[1]

    @keyword
    def run_agents_on_the_plan(self, command: str, *arguments: str) -> None:
        # Its last letters name it as well.
        self.run_agents("plan", command, self._plan[-10:], *arguments)

    @keyword
    def the_plan(self) -> str:
        return self._plan

    @keyword
    def start_agents_until_it_says(self, word: str, *arguments: str) -> None:
        self._started = subprocess.Popen(
            [AGENTS, *arguments],
            env=self._environment,
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._started.stderr is not None
        self._err = ""
        while f"\n  {word}" not in self._err:
            line = self._started.stderr.readline()
            assert line, self._err
            self._err += line
        self._plan = self._err.split()[1].rstrip(":")
        self._tree = psutil.Process(self._started.pid).children(recursive=True)
        assert self._tree

    @keyword
    def interrupt_started_agents(self, signal_name: str) -> None:
        assert self._started is not None
        self._started.send_signal(signal.Signals[signal_name])

    @keyword
    def started_agents_should_end_with(self, code: int, *texts: str) -> None:
        assert self._started is not None
        _, err = self._started.communicate(timeout=SECONDS)
        said = self._err if self._err.startswith("plan ") else ""
        assert self._started.returncode == code, f"{self._started.returncode}\n{said}\n{err}"
        for text in texts:
            assert text in err, err

    @keyword
    def type_into_agents(self, first: str, answer: str, second: str, other: str, *arguments: str) -> None:
        """On a terminal of its own: each answer is one key, pressed when its question stands there."""
        leader, follower = pty.openpty()
        environment = {**self._environment, "TERM": "xterm-256color", "COLUMNS": "80"}
        process = subprocess.Popen(
            [AGENTS, *arguments],
            env=environment,
            cwd=self.root,
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        self._out = ""
        for question, typed in ((first, answer), (second, other)):
            self._out += _read_until(leader, question)
            # Until the terminal reports single keys, it drops what is typed.
            wait_until(lambda: not termios.tcgetattr(leader)[3] & termios.ICANON, seconds=SECONDS)
            os.write(leader, typed.encode())
        self._out += _read_until(leader, None)
        os.close(leader)
        self._code, self._err = process.wait(SECONDS), ""

    # ── Judgements ────────────────────────────────────────────────────────────────────────────────

    @keyword
    def exit_code_should_be(self, code: int) -> None:
        assert self._code == code, f"exit code {self._code}\n{self._out}\n{self._err}"
        assert "Traceback" not in self._err, self._err

    @keyword
    def output_should_contain(self, *texts: str) -> None:
        for text in texts:
            assert text in self._out, f"{text!r} is not in:\n{self._out}"

    @keyword
    def complaint_should_contain(self, *texts: str) -> None:
        for text in texts:
            assert text in self._err, f"{text!r} is not in:\n{self._err}"

    @keyword
    def file_should_say(self, name: str, text: str) -> None:
        assert (self.root / name).read_text() == _unescaped(text), (self.root / name).read_text()

    @keyword
    def file_should_contain(self, name: str, *texts: str) -> None:
        for text in texts:
            assert _unescaped(text) in (self.root / name).read_text(), (self.root / name).read_text()

    @keyword
    def status_should_be(self, text: str) -> None:
        assert self._git("status", "--short").rstrip("\n") == _unescaped(text), self._git("status", "--short")

    @keyword
    def last_commit_should_say(self, *texts: str) -> None:
        for text in texts:
            assert text in self._git("log", "-1", "--format=%B"), self._git("log", "-1")

    @keyword
    def diff_should_be_a_patch_that_git_takes(self) -> None:
        subprocess.run(["git", "apply", "--check"], input=self._out, text=True, cwd=self.root, check=True)

    @keyword
    def plan_should_stand_at(self, standing: str) -> None:
        self.run_agents("plan", "show", self._plan, "--format", "json")
        shown = json.loads(self._out)
        assert f"{shown['phase']}/{shown['state']}" == standing, shown

    @keyword
    def no_process_of_it_should_be_left(self) -> None:
        alive = [p for p in self._tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        assert not alive, alive

    @property
    def root(self) -> Path:
        assert self._place is not None
        return Path(self._place.name) / "repository"

    def _git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def _unescaped(text: str) -> str:
    return text.encode().decode("unicode_escape")


def _read_until(leader: int, words: str | None) -> str:
    """What the terminal shows, until these words; without any, until the program ends."""
    seen = b""  # a read may end within a character
    give_up = time.monotonic() + SECONDS
    while words is None or words.encode() not in seen:
        assert select.select([leader], [], [], max(0.0, give_up - time.monotonic()))[0], seen
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # how Linux says that the other side is closed
            chunk = b""
        if not chunk:
            assert words is None, seen
            break
        seen += chunk
    return seen.decode()
