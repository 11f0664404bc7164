"""The demo's sample repository: a few small files under real git, and a user who works in it meanwhile."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cleveragents.infrastructure.git.plumbing import run_git, user_environment

__all__ = ["FILES", "NOTES", "NOTES_TEXT", "SampleRepository"]

FILES = {
    "src/paint.py": '"""Mixes paint."""\n\n\ndef mix(colour, amount):\n    return colour * amount\n',
    "src/shop.py": '"""Sells paint."""\n\nimport paint\n\n\ndef sell(colour):\n    paint.mix(colour, 3)\n',
    "src/version.py": '"""Says what was released."""\n\nNAME = "paint shop"\n\nVERSION = "1.0"\n',
    "README.md": "# Paint shop\n\nAll about paint, version 1.0.\n",
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
        file = self.root / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

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
