"""Plays a page through as a reader would: its `bash` and `console` blocks, in order, in a home of its own.

Ids of plans, moments and sums differ from one reader to the next; everything else has to be as shown.
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
# Told where a machine has no bubblewrap; the pages are of one that has it.
_NOT_ISOLATED = re.compile(r"^\{.*\"event\": \"command\.not_isolated\".*\n", re.MULTILINE)
_ISOLATION = re.compile(r"^(isolation +)none:.*$", re.MULTILINE)
_SECONDS = 120
# In debug mode, what takes a busy machine long is told in the midst of what a reader sees.
_NOT_A_READERS = ("CLEVERAGENTS_", "XDG_", "NO_COLOR", "PYTHONASYNCIODEBUG")


@dataclass
class Reader:
    """Not thread-safe: reads one page after the other."""

    home: Path
    directory: Path = field(init=False)
    plans: list[str] = field(default_factory=list)
    """Those that the commands made, in order."""

    def __post_init__(self) -> None:
        self.directory = self.home

    def retold(self, part: str) -> str:
        """The part of a page as it reads if one follows it here. A plan may be called `@1`, `@2` in it."""
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
                # What follows an id and an @ is the number of a correction.
                known = [rf"(?<!\w)@{number + 1}", *(one[-_SHORT:] for one in shown[number : number + 1])]
                typed = re.sub("|".join(known), plan[-_SHORT:], typed)
            said = self._typed(typed)
            lines += [f"$ {typed}", *said.replace(str(self.home), "/home/you").splitlines()]
            self.plans += [plan for plan in _plans_in(said) if plan not in self.plans]
        return "\n".join(["```console", *lines, "```"])

    def _typed(self, command: str) -> str:
        """What it says, stderr included; a `cd` counts for the commands after it."""
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
    """Without what differs from reader to reader."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    # A plan is named by the end of its id where it is typed.
    return re.sub(r"(?<=^\$ agents plan )(\w+) \w{6}\b", r"\1 PLAN", text, flags=re.MULTILINE)


def _commands(body: str) -> Iterator[str]:
    for line in body.splitlines():
        if line.startswith("$ "):
            yield line.removeprefix("$ ")


def _plans_in(text: str) -> list[str]:
    return list(dict.fromkeys(_PLAN.findall(text)))
