"""Ignored files that are to come along into a sandbox: those that the request names.

A repository may propose some in a file `.worktreeinclude`. They are often secrets, so the proposal counts
only if whoever makes the request trusts it, and puts it there.
"""

from __future__ import annotations

import os
from pathlib import Path

from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.storage.files.copying import copy_entry
from cleveragents.storage.files.paths import directory_of

__all__ = ["WORKTREE_INCLUDE", "bring_included", "patterns_in"]

WORKTREE_INCLUDE = ".worktreeinclude"


def patterns_in(content: bytes) -> tuple[str, ...]:
    """What a trusted `.worktreeinclude` wants brought along, in the syntax of .gitignore."""
    return tuple(os.fsdecode(line) for line in content.splitlines())


def bring_included(request: SandboxRequest, place: SandboxPlace) -> tuple[list[str], list[str]]:
    """Copies them as they are; being ignored, they are not recorded. Returns what came, and notes on what did
    not."""
    patterns = os.fsencode("\n".join(request.include))
    if not patterns.strip():
        return [], []
    named = _ignored_and_named(request.resource, place, patterns)
    left = [path for path in named if not _copy(request.resource, place.tree, path)]
    came = sorted({*named} - {*left})
    return came, [f"ignored files that could not be brought along: {', '.join(left)}"] if left else []


def _ignored_and_named(resource: Path, place: SandboxPlace, patterns: bytes) -> list[str]:
    engine = PrivateRepository(place.engine)
    chosen = place.scratch("include")
    chosen.write_bytes(patterns)
    options = ("-z", "--others", "--ignored", f"--exclude-from={chosen}")
    named = engine.git("ls-files", *options, work_tree=resource, index=place.index)
    chosen.unlink()
    # What is merely untracked is not ignored, and would be recorded as if the plan had made it; so would what
    # only the user's rules of now ignore, and not those that the sandbox began with.
    for rules in (resource, place.tree):
        named = engine.git(
            "check-ignore",
            "-z",
            "--stdin",
            work_tree=rules,
            index=place.index,
            feed=named,
            succeeds=(0, 1),
        )
    return [path for path in os.fsdecode(named).split("\0")[:-1] if not path.endswith("/")]


def _copy(resource: Path, tree: Path, path: str) -> bool:
    with directory_of(resource, path) as source, directory_of(tree, path, make=True) as target:
        if source is None or target is None:
            return False
        return not copy_entry(source[0], target[0], source[1])
