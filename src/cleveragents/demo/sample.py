"""The demo's sample repository: a few small files under real git, and a user who works in it meanwhile."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cleveragents.git.plumbing import run_git, user_environment

__all__ = ["CATALOGUE", "FILES", "LINES", "NOTES", "NOTES_TEXT", "SampleRepository"]

CATALOGUE = "catalogue.txt"
LINES = 16
"""That the slow program writes, one after the other."""

# What is done twice shows: each line is added.
_CATALOGUE = f"""# One line for each colour.
for number in $(seq {LINES}); do
    echo "colour $number" >> {CATALOGUE}
    sleep 0.1
done
"""
# Nobody heeds a SIGTERM; the inner shell has left the session, and whoever started it is gone.
_SIMULATE = """# Simulates until it is told to stop, and does not listen.
trap '' TERM INT HUP
(setsid sh -c "trap '' TERM INT HUP; while :; do sleep 1; done" &)
while :; do sleep 1; done
"""
_PRICES = """# What paint costs: `total red 2 green 1` is the price of 2 and 1 litres.
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
_RECEIPT = """# What the customer takes home: `receipt red 2 green 1` has a line for each colour.
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
"""What the user has written and not committed."""

NOTES_TEXT = "remember the brushes\n"

_AUTHOR = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@dataclass(frozen=True, slots=True)
class SampleRepository:
    """The repository at `root`, as its user uses it."""

    root: Path

    def make(self) -> None:
        """One commit, and a file that is not committed."""
        self.root.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        for path, text in FILES.items():
            self.write(path, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=The paint shop opens")
        self.write(NOTES, NOTES_TEXT)

    def git(self, *arguments: str) -> str:
        """What git says to the user. `GitFailed`."""
        environment = user_environment() | _AUTHOR
        return run_git(*arguments, environment=environment, directory=self.root).decode()

    def text(self, path: str) -> str | None:
        """What is in the file; None if there is none."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """As an editor does it."""
        (self.root / path).write_text(text, encoding="utf-8")

    def fingerprint(self) -> str:
        """Of every file that the user sees."""
        digest = hashlib.sha256()
        for file in sorted(self.root.rglob("*")):
            path = file.relative_to(self.root)
            if path.parts[0] != ".git" and file.is_file():
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{path}\0{file.stat().st_mode:o}\0{content}\0".encode())
        return digest.hexdigest()

    def refs(self) -> str:
        """Every branch, tag and stash, and whatever else points into the history, with the index."""
        head = self.git("rev-parse", "--symbolic-full-name", "HEAD")
        return head + self.git("for-each-ref") + self.git("ls-files", "--stage")
