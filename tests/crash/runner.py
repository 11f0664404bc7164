"""A program that runs each order in a process of its own, which is killed at a given point."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fork_server import Forked

__all__ = ["Runner", "running"]

_ROOT = Path(__file__).parents[2]


class Runner:
    """Runs orders in homes, which are copies of a template."""

    def __init__(self, process: Forked, template: Path | None) -> None:
        self._process = process
        self._template = template

    def home(self, path: Path) -> Path:
        """Create a home at `path`: a repository and a database."""
        assert self._template is not None
        shutil.copytree(self._template, path, symlinks=True)
        return path

    def run(self, home: Path, **order: object) -> int:
        """Return the exit code of the process that carried out the order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"home": str(home), **order}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


@contextmanager
def running(program: str, template: Path | None = None) -> Iterator[Runner]:
    """Start a program of `tests.crash.programs`."""
    process = Forked(
        [sys.executable, "-m", f"tests.crash.programs.{program}"],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{_ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield Runner(process, template)
    process.communicate(timeout=240)
