"""The sample repository of the demo: a few small files under git, its user, and the goals."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.core.json_value import freeze, thaw
from cleveragents.git.plumbing import run_git, user_environment
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = [
    "CATALOGUE",
    "CHECK",
    "FILES",
    "GOALS",
    "LIMITS",
    "LINES",
    "NOTES",
    "NOTES_TEXT",
    "SampleRepository",
    "plan_for",
    "write_script",
]


CATALOGUE = "catalogue.txt"

LINES = 16
"""Number of lines that the slow program writes."""
# Lines are appended, so that a repeated run shows.
_CATALOGUE = f"""# One line for each colour.
for number in $(seq {LINES}); do
    echo "colour $number" >> {CATALOGUE}
    sleep 0.1
done
"""
# All of these ignore SIGTERM; the inner shell has left the session, and its parent has ended.
_SIMULATE = """# Simulates without end, and ignores signals to stop.
trap '' TERM INT HUP
(setsid sh -c "trap '' TERM INT HUP; while :; do sleep 1; done" &)
while :; do sleep 1; done
"""

_PRICES = """# The price of paint: `total red 2 green 1` is the price of 2 and 1 litres.
price() {
    case $1 in
        red) echo 12 ;;
        green) echo 9 ;;
        blue) echo 15 ;;
    esac
}

total() {
    sum=0
    while [ $# -gt 0 ]; do
        sum=$((sum + $(price "$1") * $2))
        shift 2
    done
    echo $sum
}
"""

_RECEIPT = """# The receipt of a customer: `receipt red 2 green 1` has a line for each colour.
. ./prices.sh

receipt() {
    while [ $# -gt 0 ]; do
        echo "$2 l $1: $(($(price "$1") * $2))"
        shift 2
    done
}
"""

_TEST = """# Runs all tests: `expect LAST-LINE COMMAND …` is one.
expect() {
    wanted=$1
    shift
    found=$("$@" | tail -n 1)
    [ "$found" = "$wanted" ] && return
    echo "$*: $found, not $wanted"
    exit 1
}

for file in test_*.sh; do
    . "./$file"
done
"""

_README = """# Paint shop

All about paint.

## Opening hours

From 9 to 5.

Closed on Sundays.
"""
FILES = {
    "prices.sh": _PRICES,
    "receipt.sh": _RECEIPT,
    "test.sh": _TEST,
    "test_prices.sh": ". ./prices.sh\nexpect 33 total red 2 green 1\n",
    "catalogue.sh": _CATALOGUE,
    "simulate.sh": _SIMULATE,
    "README.md": _README,
}

NOTES = "notes.txt"
"""Uncommitted notes of the user."""
NOTES_TEXT = "remember the brushes\n"
_AUTHOR = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}

GOALS: Mapping[str, str] = {
    "discount": "Take 10 % off orders of 100 and more",
    "tax": "Add 19 % tax to every total",
    "receipt": "Show the sum at the end of a receipt",
    "catalogue": "Write the catalogue of all colours",
    "simulation": "Find out how long the paint lasts",
    "welcome": "Welcome customers in the README",
}

LIMITS = BudgetLimits(picodollars=PICODOLLARS // 10, tokens=100_000, steps=30, seconds=120.0)
"""The budget of each plan: ten cents."""
CHECK = "sh test.sh"
_SCRIPT = "model.yaml"


@dataclass(frozen=True, slots=True)
class SampleRepository:
    """The repository at `root`, with the actions of its user."""

    root: Path

    def make(self) -> None:
        """Create the repository with one commit and an uncommitted file."""
        self.root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        for path, text in FILES.items():
            self.write(path, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=The paint shop opens")
        self.write(NOTES, NOTES_TEXT)

    def git(self, *arguments: str) -> str:
        """Run git as the user and return its output. Raises `GitFailed`."""
        environment = user_environment() | _AUTHOR
        return run_git(*arguments, environment=environment, directory=self.root).decode()

    def text(self, path: str) -> str | None:
        """Return the content of a file; None if it does not exist."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a file, as an editor does."""
        (self.root / path).write_text(text, encoding="utf-8")

    def fingerprint(self) -> str:
        """Return a digest of all files that the user sees."""
        digest = hashlib.sha256()
        for file in sorted(self.root.rglob("*")):
            path = file.relative_to(self.root)
            if path.parts[0] != ".git" and file.is_file():
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{path}\0{file.stat().st_mode:o}\0{content}\0".encode())
        return digest.hexdigest()

    def refs(self) -> str:
        """Return all refs (branches, tags, stash) and the index."""
        head = self.git("rev-parse", "--symbolic-full-name", "HEAD")
        return head + self.git("for-each-ref") + self.git("ls-files", "--stage")


def write_script(directory: Path) -> Path:
    """Write the script of the model to a file in `directory`, and return its path."""
    script = directory / _SCRIPT
    script.write_bytes(files("cleveragents.demo").joinpath(_SCRIPT).read_bytes())
    return script


def plan_for(container: Container, goal: str, root: Path, script: Path) -> PlanDraft:
    """Return the plan of `agents run GOAL --model scripted/SCRIPT --check 'sh test.sh' --max-usd 0.10 …`."""
    from cleveragents.plans.ports.plans import PlanDraft

    parts = container.plan_parts
    action = parts.find_action("builtin/goal", str(root))
    request = freeze(
        {
            "arguments": thaw(action.parse((f"goal={goal}",), ())),
            "checks": [CHECK],
            "profile": parts.default_profile,
            "from_head": False,
            "include": [],
            "directory": "",
            "model": f"scripted/{script}",
            "actor": None,
            "limits": thaw(LIMITS.to_json()),
        }
    )
    assert isinstance(request, Mapping)
    return PlanDraft(goal, action.name, str(root), request)
