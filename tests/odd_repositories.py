"""Repositories whose files differ from a fresh checkout: one builder for each kind.

Every kind is a directory of files: the bytes in git, and the bytes on disk. Kinds that differ only in their
`.gitattributes` share a repository. `unit/test_odd_repositories.py` runs each repository through the command
line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.apply_bench import Edit, Link, Program, git, write

__all__ = ["CONVERTING", "REPOSITORIES", "Change", "Metadata", "OddRepository", "build", "edited", "metadata"]

Change = Edit | int | tuple[int, bytes]
"""The new state of a file: its content, its permissions, or both."""

LF, CRLF = b"one\ntwo\nthree\n", b"one\r\ntwo\r\nthree\r\n"
MIXED = b"one\r\ntwo\nthree\r\nlast"
LONE_CR = b"one\r\ntwo\nlone\rfour\n"
WIDE = CRLF.decode().encode("utf-16")
GROUP = 4321 if os.geteuid() == 0 else (os.getgroups() or [os.getegid()])[-1]
# Keeps every file as the sandbox shows it, and changes one line of each `*.txt`.
SCRIPT = r"""
said=$(git status --porcelain)
for kind in */; do mkdir -p "seen/$kind" && cp "$kind"*.txt "seen/$kind"; done
echo "$said" >seen/status
LC_ALL=C sed -i -e s/two/TWO/ -e 's/t\x00w\x00o/T\x00W\x00O/' [!s]*/*.txt
"""


def edited(content: bytes) -> bytes:
    """Return a file after the script."""
    wide = ("two".encode("utf-16-le"), "TWO".encode("utf-16-le"))
    return content.replace(b"two", b"TWO").replace(*wide)


@dataclass(frozen=True)
class Kind:
    """Files in a directory: the `committed` ones, and the user's later changes."""

    directory: str
    committed: Mapping[str, Edit]
    on_disk: Mapping[str, Edit] = field(default_factory=dict)
    prepare: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class OddRepository:
    """Kinds in one repository, made with `settings`; those in `later` are made after the commit.

    `changed` is the effect of the script on the files; by default `edited`.
    """

    name: str
    kinds: tuple[Kind, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)
    script: str = SCRIPT
    changed: Mapping[str, Change] | None = None

    def __str__(self) -> str:
        return self.name


def build(repository: OddRepository, root: Path) -> None:
    """Create the repository."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    _set(root, {"user.name": "Ada", "user.email": "ada@example.org", **repository.settings})
    for kind in repository.kinds:
        write(root / kind.directory, kind.committed)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    _set(root, repository.later)
    for kind in repository.kinds:
        write(root / kind.directory, kind.on_disk)
        if kind.prepare is not None:
            kind.prepare(root / kind.directory)


@dataclass(frozen=True)
class Metadata:
    """A file: its kind and permissions, its owner, its extended attributes and its bytes."""

    mode: int
    owner: tuple[int, int]
    attributes: tuple[tuple[str, bytes], ...]
    content: bytes


def metadata(root: Path) -> dict[str, Metadata]:
    """Return every file and directory outside of `.git`."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            names = sorted(os.listxattr(path, follow_symlinks=False))
            found[str(path.relative_to(root))] = Metadata(
                status.st_mode,
                (status.st_uid, status.st_gid),
                tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names),
                _content(path, status.st_mode),
            )
    return found


def _content(path: Path, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return os.fsencode(path.readlink())
    return b"" if stat.S_ISDIR(mode) else path.read_bytes()


def _set(root: Path, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        git(root, "config", name, value)


def _rule(attributes: bytes) -> dict[str, Edit]:
    return {".gitattributes": b"*.txt " + attributes + b"\n"}


def _expand(directory: Path) -> None:
    """Leave `$Id$` as git does after an edit: expanded with the name of an earlier version."""
    write(directory, {"a.txt": b"$Id: %040d $\none\ntwo\n" % 7})
    git(directory, "add", "a.txt")
    git(directory, "commit", "-q", "-m", "second")


def _set_info(directory: Path) -> None:
    write(directory.parent, {".git/info/attributes": b"*.txt text eol=crlf\n"})


def _furnish(directory: Path) -> None:
    """Add extended attributes, another owner and group, setuid, setgid and unusual permissions."""
    for number, name in enumerate(("a.txt", "b.txt", "gone.txt", "run.txt")):
        path = directory / name
        os.setxattr(path, "user.origin", b"here %d" % number)
        os.setxattr(path, "user.empty", b"")
        os.chown(path, 1234 + number if os.geteuid() == 0 else -1, GROUP)
    (directory / "a.txt").chmod(0o2664)
    (directory / "b.txt").chmod(0o4640)
    (directory / "gone.txt").chmod(0o2604)
    (directory / "run.txt").chmod(0o744)
    for number, folder in enumerate((directory / "closed", directory / "closed/x")):
        os.setxattr(folder, "user.origin", b"folder %d" % number)
        os.chown(folder, 1240 + number if os.geteuid() == 0 else -1, GROUP)
    (directory / "closed/x").chmod(0o2750)
    (directory / "shared").mkdir()
    os.chown(directory / "shared", -1, GROUP)
    (directory / "shared").chmod(0o2775)


_AUTO = _rule(b"text=auto")
_LINKS: dict[str, Edit] = {"link": Link("a.txt"), "other": Link("a.txt"), "a.txt": LF}
_NEW_CONTENT = LF.replace(b"two", b"TWO")

CONVERTING = (
    OddRepository(
        "attributes",
        (
            Kind("auto-crlf", {**_AUTO, "a.txt": LF, "b.txt": LF}, {"a.txt": CRLF}),
            Kind("auto-mixed", {**_AUTO, "a.txt": MIXED, "b.txt": LONE_CR}),
            Kind("auto-committed-crlf", {"a.txt": CRLF}, _AUTO),
            Kind("committed-crlf", {"a.txt": CRLF, "b.txt": LF}, _rule(b"text")),
            Kind("crlf", {**_rule(b"eol=crlf"), "a.txt": LF}, {"a.txt": CRLF}),
            Kind("crlf-not-checked-out", {**_rule(b"eol=crlf"), "a.txt": LF, "b.txt": MIXED}),
            Kind("lf", {**_rule(b"eol=lf"), "a.txt": LF}, {"a.txt": CRLF}),
            Kind("ident", {**_rule(b"ident"), "a.txt": b"$Id$\none\n"}, prepare=_expand),
            Kind("edited", {**_AUTO, "a.txt": LF}, {"a.txt": b"zero\r\n" + CRLF}),
            Kind("wide", {**_rule(b"text working-tree-encoding=UTF-16 eol=crlf"), "a.txt": WIDE}),
            Kind(
                "not-wide",
                {".gitattributes": b"*.dat working-tree-encoding=UTF-16\n", "a.txt": LF},
                {"a.dat": b"plain\n"},
            ),
        ),
    ),
    OddRepository(
        "autocrlf=true", (Kind("d", {"a.txt": CRLF, "b.txt": LF}),), settings={"core.autocrlf": "true"}
    ),
    OddRepository(
        "autocrlf=input", (Kind("d", {"a.txt": LF}, {"a.txt": CRLF}),), settings={"core.autocrlf": "input"}
    ),
    OddRepository(
        "core.eol=crlf", (Kind("d", {**_AUTO, "a.txt": LF}, {"a.txt": CRLF}),), settings={"core.eol": "crlf"}
    ),
    OddRepository("info/attributes", (Kind("d", {"a.txt": LF}, {"a.txt": CRLF}, prepare=_set_info),)),
)
REPOSITORIES = (
    *CONVERTING,
    OddRepository(
        "fileMode=false",
        (Kind("", {"plain": LF, "tool": Program(LF), "a.txt": Program(LF)}),),
        later={"core.fileMode": "false"},
        script="chmod +x plain; chmod -x tool; printf new >new; chmod +x new; sed -i s/two/TWO/ a.txt",
        changed={"plain": 0o755, "tool": 0o644, "new": Program(b"new"), "a.txt": Program(_NEW_CONTENT)},
    ),
    OddRepository(
        "symlinks=false, links as files",
        (Kind("", _LINKS, {"link": b"a.txt", "other": b"a.txt"}),),
        later={"core.symlinks": "false"},
        script="ln -sfn b.txt link; rm other; ln -s a.txt new",
        changed={"link": b"b.txt", "other": None, "new": b"a.txt"},
    ),
    OddRepository(
        "symlinks=false, links",
        (Kind("", _LINKS),),
        later={"core.symlinks": "false"},
        script="ln -sfn b.txt link; rm other",
        changed={"link": Link("b.txt"), "other": None},
    ),
    OddRepository(
        "owner, permissions and extended attributes",
        (
            Kind(
                "",
                {"a.txt": LF, "b.txt": LF, "gone.txt": LF, "run.txt": Program(LF), "closed/x/y": LF},
                prepare=_furnish,
            ),
        ),
        script="sed -i s/two/TWO/ a.txt b.txt; rm -r gone.txt closed; chmod -x run.txt; mkdir shared; "
        "echo new >shared/new",
        changed={
            **dict.fromkeys(("gone.txt", "closed", "closed/x", "closed/x/y")),
            "a.txt": _NEW_CONTENT,
            "b.txt": (0o640, _NEW_CONTENT),
            "run.txt": 0o644,
            "shared/new": b"new\n",
        },
    ),
)
