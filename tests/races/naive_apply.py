"""Naive applies that the same tests must catch: files written one by one, a checkout over them, a forced
patch.

Tools in the field use each of these to bring an agent's result into the user's files.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["AppliesPatch", "ChecksOut", "WritesFilesOneByOne"]


class WritesFilesOneByOne:
    """Copies changed files from the sandbox in place: no journal, no merge."""

    def __init__(self, faults: FaultPoints | None = None) -> None:
        self._faults = faults or NoFaults()

    def apply(self, sandbox: Sandbox, tree: str) -> None:
        resource = Path(sandbox.facts.resource)
        for path, change in sorted(sandbox.changes_of(tree).items()):
            self._faults.reach("apply.move.before")
            target = resource / path
            if change.after is None:
                target.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(sandbox.content(change.after.content))
            self._faults.reach("apply.move.after")


class ChecksOut:
    """Replaces the user's index and files by the plan's tree."""

    def apply(self, sandbox: Sandbox, tree: str) -> None:
        resource = Path(sandbox.facts.resource)
        objects = sandbox.repository.directory / "objects"
        subprocess.run(
            ["git", "read-tree", "--reset", "-u", tree],
            cwd=resource,
            env={"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects)},
            check=True,
        )


class AppliesPatch:
    """Forces the plan's diff wherever its context fits, and drops the rest."""

    def apply(self, sandbox: Sandbox, tree: str) -> None:
        patch = sandbox.diff(tree, options=("--binary", "-U0"))
        subprocess.run(
            ["git", "apply", "--reject", "--unidiff-zero", "-C0"],
            cwd=sandbox.facts.resource,
            input=patch,
            capture_output=True,
            check=False,
        )
