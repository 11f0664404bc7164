"""A home whose stored texts are all hostile to terminals, and commands run on a terminal there."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from cleveragents.app.container import Container
from cleveragents.cli import main
from cleveragents.config.loader import load_configuration
from cleveragents.conversations.model import NewConversation, NewTurn, TurnState
from cleveragents.jobs.model.job import NewJob
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, strategizes
from tests.cli_bench import Terminal, git, paint_shop, use_home

__all__ = ["EVIL", "EVIL_LINE", "HostileHome", "ScreenRecorder", "Shown", "hostile_home"]

EVIL = (
    "EVIL\x1b]0;title\x07\x1b]52;c;ZXZpbA==\x1b\\\x1b[8mhidden\x1b[2J\x1b[5;31m\x9b31m\x9d0;t\x9c\x90q\x9c\x85"
    "\rEVIL\b\b\x7f\x0b\u202eright\u2066\u200b\ufeff\u2028\u2029\U000e0041 [bold]\\[link=https://evil]x[/oops]"
)
"""Characters that hide, overwrite or reorder text, set titles or fill the clipboard; and Rich's markup."""

EVIL_LINE = f"{EVIL}\nFORGED line"
"""The same, with a second line that looks like one of the program's."""

_OWN_STYLING = re.compile(
    r"\x1b\[(?!(?:\d+;)*[58](?:;\d+)*m)[\d;]*m|\x1b\[\d*[AJK]|\x1b\[\?(?:7|25)[hl]|\r(?!EVIL)"
)
"""Colours and cursor movements of the live view and of progress bars; none blinks (5) or conceals (8)."""


@dataclass(frozen=True)
class Shown:
    """The terminal output of a command, including the pager, and its exit code."""

    code: int
    text: str

    @property
    def controls(self) -> set[str]:
        """Return control characters other than the program's own styling, line feeds and tabs."""
        left = _OWN_STYLING.sub("", self.text)
        found = {one for one in left if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
        return found - {"\n", "\t"}

    @property
    def forged(self) -> list[str]:
        """Return lines that begin with the text after a line feed in a stored text."""
        return [line for line in _OWN_STYLING.sub("", self.text).split("\n") if line.startswith("FORGED")]


class ScreenRecorder(TextIOWrapper):
    """A text stream that claims to be a terminal, and records its input."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__(BytesIO(), encoding=encoding, errors="backslashreplace", write_through=True)

    def isatty(self) -> bool:
        return True

    def recorded(self) -> str:
        return _bytes_of(self).decode()


class HostileHome:
    """A repository, actors, actions, plans and settings, all with hostile texts."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._patch = patch
        self.plans: dict[str, str] = {}
        self.config = root / "home/.config/cleveragents"

    def on_terminal(self, *arguments: str, typed: str = "") -> Shown:
        """Run a command on a terminal."""
        screen, paged = ScreenRecorder(), self.root / "paged"
        paged.unlink(missing_ok=True)
        code = self._run(arguments, typed, stdout=screen, stderr=screen)
        return Shown(code, screen.recorded() + (paged.read_text() if paged.exists() else ""))

    def piped(self, *arguments: str) -> bytes:
        """Return the output of a command to a pipe."""
        pipe = TextIOWrapper(BytesIO(), encoding="utf-8")
        self._run(arguments, "", stdout=pipe, stderr=ScreenRecorder())
        return _bytes_of(pipe)

    def _run(self, arguments: tuple[str, ...], typed: str, **streams: TextIOWrapper) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["agents", *arguments])
            patch.setattr(sys, "stdin", Terminal(typed))
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            with pytest.raises(SystemExit) as ended:
                main.run()
        return ended.value.code if isinstance(ended.value.code, int) else -1

    def filled(self, argument: str) -> str:
        """Return the argument with names in braces replaced by plan ids and the root."""
        return re.sub(r"\{(\w+)\}", lambda named: {"root": str(self.root), **self.plans}[named[1]], argument)

    def plan(self, name: str, *arguments: str) -> None:
        """Create a plan and remember its id by this name."""
        pipe, screen = TextIOWrapper(BytesIO(), encoding="utf-8"), ScreenRecorder()
        self._run(("run", "--format", "json", *arguments), "", stdout=pipe, stderr=screen)
        told = _bytes_of(pipe)
        assert told, screen.recorded()
        self.plans[name] = json.loads(told)["id"]


def _bytes_of(stream: TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, BytesIO)
    return stream.buffer.getvalue()


@contextmanager
def hostile_home(root: Path) -> Iterator[HostileHome]:
    """Return a home for the tests of a module."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        use_home(patch, root / "home", root / "state")
        for name, value in {
            "CLEVERAGENTS_SANDBOX_ISOLATION": "off",
            "COLUMNS": "120",
            "LINES": "24",
            "TERM": "xterm",
            "PAGER": f"sh -c 'cat > {root}/paged'",
        }.items():
            patch.setenv(name, value)
        home = HostileHome(root, patch)
        patch.chdir(paint_shop(root / "shop"))
        _fill(home, patch)
        yield home
    signal.signal(signal.SIGTERM, before)


def _fill(home: HostileHome, patch: pytest.MonkeyPatch) -> None:
    shop = home.root / "shop"
    name = EVIL_LINE.replace("/", "-")[:120]
    (shop / name).write_text(f"colour {EVIL}\n")
    _write(shop / ".mcp.json", mcpServers={"evil": {"command": EVIL_LINE, "args": [EVIL_LINE]}})
    git(shop, "add", "-A")
    git(shop, "commit", "-qm", EVIL)
    patch.setenv("CLEVERAGENTS_MODELS_DEFAULT", _script(home.root / "script.yaml"))
    for kind in ("actors", "actions"):
        (home.config / kind).mkdir(parents=True)
    question = {"type": "human", "question": EVIL_LINE, "output": "reply"}
    asker = {"name": "me/asker", "type": "graph", "entry": "ask", "state": {"reply": {"type": "string"}}}
    _write(home.config / "actors/asker.yaml", **asker, description=EVIL_LINE, nodes={"ask": question})
    _write(home.config / "actors/broken.yaml", name=EVIL_LINE, type=EVIL_LINE)
    steps = {"steps": [{"tool": "command", "name": EVIL_LINE, "with": {"script": EVIL_LINE}}]}
    _write(home.root / "action.yaml", name="me/evil", description=EVIL_LINE, execute=steps)
    command = ("--action", "builtin/command")
    home.plan("goal", EVIL_LINE, "--review")
    home.plan("long", *command, "--review", "--", "sh", "-c", _PRINTS * 12 + _RENAMES, "sh", EVIL_LINE, name)
    failing = f"printf '%s' '{EVIL_LINE}'; exit 1"
    home.plan("ready", *command, "--review", "--check", failing, "--", "sh", "-c", _PRINTS, "sh", EVIL_LINE)
    home.plan("failed", *command, "--", "sh", "-c", 'printf "%s" "$1" >&2; exit 3', "sh", EVIL_LINE)
    home.plan("asking", EVIL_LINE, "--actor", "me/asker")
    asks = _script(home.root / "asks.yaml", answer(call("command", script=EVIL_LINE)))
    home.plan("approval", EVIL_LINE, "--model", asks)
    with Container(load_configuration(os.environ, shop).settings) as container:
        job = NewJob("evil\x1b[8m", {"said": EVIL_LINE}, queue="nobody")
        home.plans["job"] = container.jobs.submit(job, now=container.clock.now()).id
        home.plans["session"] = _session(container, home.root / "shop")


_RENAMES = """mv "$2" "renamed $2";"""
_PRINTS = """printf '%s\\n' "$1" | tee -a copied;"""


def _session(container: Container, repository: Path) -> str:
    """Return the id of a session whose question, answer and error are hostile."""
    store, now = container.conversations.store, container.clock.now()
    talk = store.create(NewConversation("default", str(repository), created_by=EVIL_LINE), now=now)
    owner = container.conversations.owner
    held = store.begin(talk.id, NewTurn(EVIL_LINE, author=EVIL_LINE), owner, now=now)
    store.end(held.held, TurnState.FAILED, answer=EVIL_LINE, error=EVIL_LINE, now=now)
    return talk.id


def _script(path: Path, *more: dict[str, Any]) -> str:
    """Return the name of a model whose texts are all hostile; its agent writes a file, among others."""
    decision = {"question": EVIL_LINE, "choice": EVIL_LINE, "rationale": EVIL_LINE}
    strategy = {
        "summary": EVIL_LINE,
        "decisions": [{**decision, "alternatives": [{"choice": EVIL_LINE, "reason": EVIL_LINE}]}],
        "steps": [{"title": EVIL_LINE, "instructions": EVIL_LINE, "decisions": [1]}],
    }
    wrote = answer(call("write", path="new.txt", content=EVIL_LINE), text=EVIL_LINE)
    rules = [
        strategizes(says(strategy)),
        executes(wrote, *more, says(EVIL_LINE)),
        reviews(accept()),
        {"reply": {"text": EVIL_LINE}},
    ]
    _write(path, version=1, rules=rules)
    return f"scripted/{path}"


def _write(path: Path, **document: Any) -> None:
    path.write_text(json.dumps(document))
