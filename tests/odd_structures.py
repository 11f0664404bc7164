"""Repositories with an unusual structure: the plan's changes, the user's changes, and the result.

`unit/test_odd_structures.py` applies and undoes each through the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.apply_bench import git, write

__all__ = ["LINES", "STRUCTURES", "Directory", "Structure"]

LINES = b"".join(b"line %d\n" % number for number in range(1, 21))


def changed(*lines: int, by: str) -> bytes:
    """Return `LINES` with these lines changed."""
    numbered = enumerate(LINES.splitlines(keepends=True), 1)
    return b"".join(b"by the %s\n" % by.encode() if number in lines else line for number, line in numbered)


BOTH = changed(1, by="plan").replace(b"line 20\n", b"by the user\n")


def _nothing(root: Path) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Directory:
    """An expected directory."""


@dataclass(frozen=True)
class Structure:
    """One repository.

    `build` adds to a repository with one commit; the plan runs `command` in a shell; `meanwhile` is the
    user's change before the plan is applied. `applied` are the files after that, with None for a deleted
    file; all other files are unchanged. `refused` is the message of a refused apply instead. `said` is part
    of the output of the plan or the apply, and `shown` of the JSON of `plan show`.
    """

    build: Callable[[Path], None] = _nothing
    command: str = "sed -i 's/^line 1$/by the plan/' a"
    meanwhile: Callable[[Path], None] = _nothing
    applied: Mapping[str, bytes | Directory | None] = field(default_factory=dict)
    refused: str = ""
    said: tuple[str, ...] = ()
    shown: Mapping[str, object] = field(default_factory=dict)


def _moves_untracked(root: Path) -> None:
    write(root, {"a": None, "copy": changed(20, by="user")})


def _renames(root: Path) -> None:
    git(root, "mv", "a", "renamed")
    write(root, {"renamed": changed(20, by="user"), "notes": b"untracked\n"})


def _edits(root: Path) -> None:
    write(root, {"a": changed(20, by="user")})


RENAMES = {
    "an untracked file that resembles the deleted one": Structure(
        meanwhile=_moves_untracked,
        refused="apply follows only renames of tracked files",
    ),
    "a tracked file that was renamed": Structure(
        meanwhile=_renames,
        applied={"renamed": BOTH},
        said=("followed a rename: a → renamed\n",),
        shown={"renames": [{"old": "a", "new": "renamed"}]},
    ),
    "a file that the plan renamed": Structure(
        command="git mv a moved && sed -i 's/^line 1$/by the plan/' moved",
        meanwhile=_edits,
        applied={"a": None, "moved": BOTH},
        said=("followed a rename: a → moved\n",),
        shown={"renames": [{"old": "a", "new": "moved"}]},
    ),
}


def _hides(mark: str) -> Callable[[Path], None]:
    """Make an edit that the index hides from git."""

    def hide(root: Path) -> None:
        git(root, "update-index", mark, "a")
        write(root, {"a": changed(20, by="user")})

    return hide


def _sparse(root: Path) -> None:
    """Make a checkout without the directory `out`."""
    write(root, {"in/x": LINES, "out/y": LINES})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "two directories")
    git(root, "sparse-checkout", "set", "in")


HIDDEN = {
    **{
        f"a file that was edited under {mark} before the plan began": Structure(
            build=_hides(mark), applied={"a": BOTH}
        )
        for mark in ("--assume-unchanged", "--skip-worktree")
    },
    "a file in a sparse checkout": Structure(
        build=_sparse,
        command="sed -i 's/^line 1$/by the plan/' in/x && test -e out/y",
        applied={"in/x": changed(1, by="plan")},
        said=("files outside your sparse checkout are copied from the index",),
    ),
    "a file that a sparse checkout leaves out": Structure(
        build=_sparse,
        command="sed -i 's/^line 1$/by the plan/' out/y",
        refused="out/y: the file is outside your sparse checkout\n"
        "check it out (`git sparse-checkout add out`)",
    ),
}

LINK = "1" * 40
MODULES = b'[submodule "sub"]\n\tpath = sub\n\turl = ../sub\n'


def _submodule(root: Path) -> None:
    """Add a submodule that is not checked out."""
    write(root, {".gitmodules": MODULES})
    (root / "sub").mkdir()
    git(root, "add", ".gitmodules")
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{LINK},sub")
    git(root, "commit", "-q", "-m", "a submodule")


def _checks_out(root: Path) -> None:
    """Add work in the submodule that exists nowhere else."""
    git(root / "sub", "init", "-q")
    write(root, {"sub/work": b"nowhere else\n"})


SUBMODULES = {
    "a submodule that the plan removes": Structure(
        build=_submodule,
        command="git rm -q sub && test ! -e sub",
        applied={"sub": None, ".gitmodules": b""},
    ),
    "a submodule that is checked out, and that the plan removes": Structure(
        build=_submodule,
        command="rm -r sub .gitmodules",
        meanwhile=_checks_out,
        refused="sub: the path is a submodule\n"
        "the submodule is checked out; run `git submodule deinit sub`, then apply again",
    ),
    "a submodule that the plan takes from .gitmodules only": Structure(
        build=_submodule,
        command="rm .gitmodules",
        refused="sub: the path is a submodule\n.gitmodules no longer names the submodule",
    ),
    "a submodule whose directory the plan removes": Structure(
        build=_submodule,
        command="rm -r sub; sed -i 's/^line 1$/by the plan/' a",
        applied={"a": changed(1, by="plan")},
        said=("not applied: sub was removed, but .gitmodules still names it",),
    ),
    "a submodule that the plan adds to .gitmodules": Structure(
        build=_submodule,
        command="git config -f .gitmodules submodule.new.path new && mkdir new",
        refused="new: the path is a submodule\n"
        ".gitmodules names the submodule, but a plan cannot add submodules",
    ),
}
NESTED = {
    "a repository that the plan made": Structure(
        command="git init -q lib/x && echo 1 > lib/x/f && mkdir worktree && echo gitdir: lib > worktree/.git",
        applied={"lib": Directory(), "lib/x": Directory(), "lib/x/f": b"1\n"},
        said=("not applied because a result cannot contain git repositories: lib/x/.git, worktree/.git",),
        shown={"nested_repositories": ["lib/x", "worktree"], "ignored": []},
    ),
}

STRUCTURES: dict[str, Structure] = {**RENAMES, **HIDDEN, **SUBMODULES, **NESTED}
