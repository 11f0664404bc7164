"""Keystrokes and seconds in a terminal: from a fresh clone to a changed file, and from three waiting plans to
three decisions.

    python -m benchmarks.terminal_journey [--aider PROGRAM] [--opencode PROGRAM]

Each tool runs in tmux, at 110 columns, with the same request and an environment of its own in which the model
is already set up. The next keys are sent when the tool shows the expected text, so the seconds are those of
the tool alone. Models are scripted: CleverAgents reads a script, aider and opencode talk to a server that
speaks OpenAI's protocol. The counts include the request, which has 25 keys with Enter.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleveragents.testing.scripted_server import ScriptedServer

__all__ = ["main"]

_SECONDS = 90.0
_REQUEST = "Add a docstring to paint"
_BEFORE = "def paint(colour):\n"
_AFTER = _BEFORE + '    """Return the painted thing."""\n'
_OURS: list[object] = [
    {
        "when": {"system": "You plan changes"},
        "reply": {
            "text": '{"summary": "One step.", "decisions": [], "steps": '
            '[{"title": "Add a docstring", "instructions": "Add it."}]}'
        },
    },
    {
        "when": {"system": "You review"},
        "reply": {"text": '{"verdict": "accept", "findings": [], "summary": "It is there."}'},
    },
    {
        "when": {"offered": "start_plan", "user": f"person:\\s+{_REQUEST}"},
        "turns": [
            {"calls": [{"tool": "start_plan", "arguments": {"goal": _REQUEST}}]},
            {"text": "I started a plan."},
        ],
    },
    {
        "when": {"offered": "edit"},
        "turns": [
            {
                "calls": [
                    {"tool": "edit", "arguments": {"path": "src/paint.py", "old": _BEFORE, "new": _AFTER}}
                ]
            },
            {"text": "Done."},
        ],
    },
]
_THEIRS: list[object] = [
    {
        "when": {"offered": "edit", "user": "docstring", "turn": 0},
        "reply": {
            "calls": [
                {
                    "tool": "edit",
                    "arguments": {"filePath": "src/paint.py", "oldString": _BEFORE, "newString": _AFTER},
                }
            ]
        },
    },
    {"when": {"tool": "edit"}, "reply": {"text": "Done."}},
    {
        "when": {"system": "SEARCH/REPLACE", "user": "docstring|added these files"},
        "reply": {
            "text": "src/paint.py\n```python\n"
            f"<<<<<<< SEARCH\n{_BEFORE}=======\n{_AFTER}>>>>>>> REPLACE\n```\n"
        },
    },
    {"reply": {"text": "Docstring"}},
]
_PLANS = """
from cleveragents.api.client import connect
from cleveragents.api.plans.request import PlanRequest
with connect(directory=".") as client:
    for word in ("colour", "painted", "return"):
        arguments = {"pattern": word, "replacement": word.upper()}
        request = PlanRequest(action="builtin/replace", arguments=arguments, profile="manual")
        client.plans.wait(client.plans.create(request).id, timeout=120)
"""

Step = tuple[str, str, tuple[str, ...]]
"""A text that the screen must show; then a text to type, and keys to press, with their names in tmux."""


@dataclass(frozen=True)
class _Terminal:
    """A shell in tmux, in a clone of a repository."""

    place: Path
    environment: dict[str, str]

    def tmux(self, *words: str) -> str:
        command = ["tmux", "-S", str(self.place / "tmux"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _wait_for(self, text: str) -> None:
        try:
            _wait(lambda: self.shows(text))
        except TimeoutError:
            print(f"{text!r} is not shown:\n{self.tmux('capture-pane', '-p', '-t', 'journey')}", flush=True)
            raise

    def shows(self, text: str) -> bool:
        return text in self.tmux("capture-pane", "-p", "-t", "journey")

    def play(self, steps: Sequence[Step], done: Callable[[], bool]) -> tuple[int, float]:
        """Send the keys of each step when its text is shown. Return their number and the seconds until
        `done`.
        """
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        shell = shlex.join(["env", *variables, "PS1=$ ", "bash", "--norc", "-i"])
        size = ("-x", "110", "-y", "36", "-s", "journey", "-c", str(self.place / "clone"))
        self.tmux("-f", os.devnull, "new-session", "-d", *size, shell)
        try:
            self._wait_for("$")
            began, keys = time.monotonic(), 0
            for text, typed, pressed in steps:
                self._wait_for(text)
                self.tmux("send-keys", "-t", "journey", "-l", typed)
                self.tmux("send-keys", "-t", "journey", *pressed)
                keys += len(typed) + len(pressed)
            _wait(done)
            return keys, time.monotonic() - began
        finally:
            self.tmux("kill-server")


def _wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


def _terminal(place: Path, **variables: str) -> _Terminal:
    """Return a terminal with a home of its own and a fresh clone."""
    clone = place / "clone"
    (clone / "src").mkdir(parents=True)
    (clone / "src" / "paint.py").write_text(f"{_BEFORE}    return f'painted {{colour}}'\n", encoding="utf-8")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm1"],
    ):
        subprocess.run(["git", *words], cwd=clone, check=True)
    (place / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.org\n", encoding="utf-8")
    own = {"HOME": str(place), "XDG_DATA_HOME": f"{place}/data", "XDG_CONFIG_HOME": f"{place}/config"}
    return _Terminal(place, {"PATH": f"{place}/bin:{os.environ['PATH']}", **own, **variables})


def _changed(place: Path) -> bool:
    return (place / "clone" / "src" / "paint.py").read_text(encoding="utf-8").startswith(_AFTER)


def _program(place: Path, name: str, *command: str) -> None:
    (place / "bin").mkdir(exist_ok=True)
    path = place / "bin" / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _agents(place: Path) -> None:
    script = place / "script.json"
    paths = os.environ.get("PYTHONPATH", "")
    model = {"CLEVERAGENTS_MODELS_DEFAULT": f"scripted/{script}", "PYTHONPATH": paths}
    terminal = _terminal(place, **model)
    script.write_text(json.dumps({"version": 1, "rules": _OURS}), encoding="utf-8")
    _program(place, "agents", sys.executable, "-m", "cleveragents")
    steps: list[Step] = [
        ("$", "agents", ("Enter",)),
        ("No plans yet", _REQUEST, ("Enter",)),
        ("Ready for review", "", ("F2", "Enter")),
        ("A Apply", "", ("A",)),
        ("y Apply", "", ("y",)),
    ]
    _report("agents, first applied change", *terminal.play(steps, lambda: _changed(place)))
    subprocess.run([sys.executable, "-c", _PLANS], cwd=place / "clone", env=terminal.environment, check=True)
    decide: list[Step] = [
        ("a Approve", "", ("a",)),
        ("y Approve once", "", ("y",)),
        ("queued", "", ("Escape",)),
    ]
    steps = [("$", "agents", ("Enter",)), ("Needs you · 3", "", ("F2", "Enter")), *decide]
    steps += [("Needs you · 2", "", ("Enter",)), *decide, ("Needs you · 1", "", ("Enter",)), *decide[:2]]
    _report("agents, three decisions", *terminal.play(steps, lambda: terminal.shows("queued")))


def _aider(place: Path, program: str, server: str) -> None:
    variables = {"OPENAI_API_BASE": server, "OPENAI_API_KEY": "none", "AIDER_MODEL": "openai/gpt-4.1-mini"}
    quiet = {"AIDER_CHECK_UPDATE": "false", "AIDER_ANALYTICS_DISABLE": "true", "AIDER_EDIT_FORMAT": "diff"}
    quiet |= {"AIDER_SHOW_RELEASE_NOTES": "false"}
    terminal = _terminal(place, **variables, **quiet)
    _program(place, "aider", program)
    steps: list[Step] = [
        ("$", "aider", ("Enter",)),
        ("Add .aider* to .gitignore", "", ("Enter",)),
        ("Repo-map", _REQUEST, ("Enter",)),
        ("Add file to the chat?", "", ("Enter",)),
    ]
    _report("aider, first applied change", *terminal.play(steps, lambda: _changed(place)))


def _opencode(place: Path, program: str, server: str) -> None:
    terminal = _terminal(place)
    _program(place, "opencode", program)
    options = {"baseURL": server, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {"name": "m"}}}
    settings = {"autoupdate": False, "model": "scripted/m", "provider": {"scripted": provider}}
    (place / "config" / "opencode").mkdir(parents=True)
    (place / "config" / "opencode" / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
    steps: list[Step] = [("$", "opencode", ("Enter",)), ("ctrl+p commands", _REQUEST, ("Enter",))]
    _report("opencode, first applied change", *terminal.play(steps, lambda: _changed(place)))


def _report(name: str, keys: int, seconds: float) -> None:
    print(f"{name}: {keys} keys, {seconds:.1f} s", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.terminal_journey", description=__doc__)
    parser.add_argument("--aider", metavar="PROGRAM")
    parser.add_argument("--opencode", metavar="PROGRAM")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home = Path(name)
        _agents(home / "agents")
        script = home / "peers.json"
        script.write_text(json.dumps({"version": 1, "rules": _THEIRS}), encoding="utf-8")
        with ScriptedServer.from_file(script) as server:
            if chosen.aider:
                _aider(home / "aider", chosen.aider, server.base_url)
            if chosen.opencode:
                _opencode(home / "opencode", chosen.opencode, server.base_url)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
