"""Runs the `bash` and `console` blocks of a page in order, like a reader, in a separate home.

Plan ids, times and sums differ from one reader to the next; everything else must be as shown.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Reader", "alike"]

_FENCE = re.compile(r"^```(bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PLAN = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
_SHORT = 6
_VARYING = (
    (_PLAN, "PLAN"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ( \((now|[^)]*ago)\))?"), "MOMENT"),
    (re.compile(r"\$\d+\.\d+"), "SUM"),
    (re.compile(r"[\d,]+ tokens"), "TOKENS"),
)
# Printed on machines without bubblewrap; the pages show one with it.
_NOT_ISOLATED = re.compile(r"^note: .*isolat.*\n", re.MULTILINE)
_ISOLATION = re.compile(r"^(isolation +)none:.*$", re.MULTILINE)
_SECONDS = 120
# In debug mode, slow callbacks of a busy machine are logged between the lines that a reader sees.
_NOT_A_READERS = ("CLEVERAGENTS_", "XDG_", "NO_COLOR", "PYTHONASYNCIODEBUG")


@dataclass
class Reader:
    """A reader of pages, one after the other. Not thread-safe."""

    home: Path
    directory: Path = field(init=False)
    plans: list[str] = field(default_factory=list)
    """The plans created by the commands, in order."""

    def __post_init__(self) -> None:
        self.directory = self.home

    def retold(self, part: str) -> str:
        """Return a part of a page with the actual output. It may refer to plans as `@1`, `@2`."""
        shown = _plans_in(part)
        return _FENCE.sub(lambda found: self._block(found, shown), part)

    def _block(self, found: re.Match[str], shown: list[str]) -> str:
        language, body = found.groups()
        if language == "bash":
            said = self._typed(body)
            assert said == "", said
            return found[0]
        lines = []
        for typed in _commands(body):
            for number, plan in enumerate(self.plans):
                # The number of a correction follows an id and an @.
                known = [rf"(?<!\w)@{number + 1}", *(one[-_SHORT:] for one in shown[number : number + 1])]
                typed = re.sub("|".join(known), plan[-_SHORT:], typed)
            said = self._typed(typed)
            lines += [f"$ {typed}", *said.replace(str(self.home), "/home/you").splitlines()]
            self.plans += [plan for plan in _plans_in(said) if plan not in self.plans]
        return "\n".join(["```console", *lines, "```"])

    def _typed(self, command: str) -> str:
        """Return its output, including stderr; a `cd` affects later commands."""
        where = self.home / ".directory"
        own = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_A_READERS)}
        own |= {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"}
        ended = subprocess.run(
            ["bash", "-c", f"{command}\npwd > {where}"],
            cwd=self.directory,
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        self.directory = Path(where.read_text().strip())
        return _ISOLATION.sub(r"\1bubblewrap", _NOT_ISOLATED.sub("", ended.stdout))


def alike(text: str) -> str:
    """Return the text without everything that differs between readers."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    # Commands refer to a plan by the end of its id.
    return re.sub(r"(?<=^\$ agents plan )(\w+) \w{6}\b", r"\1 PLAN", text, flags=re.MULTILINE)


def _commands(body: str) -> Iterator[str]:
    for line in body.splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


def _plans_in(text: str) -> list[str]:
    return list(dict.fromkeys(_PLAN.findall(text)))
