"""Runs ASV on a source tree with this interpreter and reads its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "revision", "run"]

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".asv"


def revision(name: str) -> str | None:
    """Return the commit that `name` refers to; None if there is none."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def run(source: Path, commit: str, words: list[str]) -> dict[str, float]:
    """Return results by benchmark name, or `name(parameters)`; those matching `words`, or all."""
    HOME.mkdir(exist_ok=True)
    # ASV keeps a description of the machine in the home directory; this one stays in the tree.
    environment = {
        **os.environ,
        "HOME": str(HOME),
        # ASV drops PYTHONPATH and passes this variable on.
        "ASV_PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
    }
    asv = [sys.executable, "-m", "asv"]
    subprocess.run([*asv, "machine", "--yes"], cwd=ROOT, env=environment, check=True, capture_output=True)
    selection = [option for word in words for option in ("--bench", word)]
    command = [*asv, "run", f"--python={sys.executable}", "--set-commit-hash", commit, "--show-stderr"]
    subprocess.run([*command, *selection], cwd=ROOT, env=environment, check=True)
    return _results(commit)


def _results(commit: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for path in (HOME / "results").glob(f"*/{commit[:8]}-*.json"):
        for name, row in json.loads(path.read_text(encoding="utf-8"))["results"].items():
            values, parameters = row[0], row[1]
            for value, label in zip(values or [], _labels(parameters), strict=False):
                if value is not None:
                    found[name + label] = value
    return found


def _labels(parameters: list[list[str]]) -> list[str]:
    if not parameters:
        return [""]
    labels = [""]
    for choices in parameters:
        labels = [f"{label}({choice})" for label in labels for choice in choices]
    return labels
