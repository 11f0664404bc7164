"""Random histories to merge, reproducible from a seed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from subprocess import run

__all__ = ["Files", "History", "history", "written"]

Files = dict[str, tuple[str, bytes]]
"""The files of a tree: mode and content, by path."""

History = tuple[Files, Files, Files]
"""A base, and two changed versions of it."""

_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "zeta",
    "eta",
    "theta",
    "iota",
    "kappa",
    "lambda",
    "mu",
]
_PLACES = ["", "src/", "src/deep/", "docs/", "späte dinge/", "lib/"]
_NAMES = ["one", "two", "three", "vier ü", "five", "sechs", "x~y", "日本"]


def _text(random: Random) -> bytes:
    end = random.choice(["\n", "\n", "\n", "\r\n"])
    lines = [f"{random.choice(_WORDS)} {number}" for number in range(random.randint(4, 24))]
    return end.join([*lines, ""]).encode()


def _binary(random: Random) -> bytes:
    return b"\0" + random.randbytes(random.randint(4, 60))


def _base(random: Random) -> Files:
    files: Files = {}
    for _ in range(random.randint(6, 14)):
        path = random.choice(_PLACES) + random.choice(_NAMES)
        kind = random.random()
        if kind < 0.8:
            files[path] = (random.choice(["100644", "100644", "100755"]), _text(random))
        elif kind < 0.92:
            files[path] = ("100644", _binary(random))
        else:
            files[path] = ("120000", random.choice(_NAMES).encode())
    return files


def _edited(random: Random, content: bytes) -> bytes:
    if b"\0" in content:
        return _binary(random)
    lines = content.splitlines(keepends=True) or [b"\n"]
    end = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(lines) + 1)
        new = f"{random.choice(_WORDS)} {random.choice(_WORDS)}".encode() + end
        lines[at : at + random.choice([0, 1, 1, 2])] = random.choice([[new], [new], []])
    return b"".join(lines)


def _is_free(files: Files, path: str) -> bool:
    """Return whether a file may be at this path: none is there, below or above it."""
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return not any(one in files for one in above) and not any(one.startswith(f"{path}/") for one in files)


def _change(random: Random, files: Files) -> None:
    """Make one random change to the files."""
    if files:
        path = random.choice(sorted(files))
        change = random.choice([_lines, _lines, _lines, _moved, _directory_moved, _gone, *_SELDOM])
        change(random, files, path)


def _lines(random: Random, files: Files, path: str) -> None:
    mode, content = files[path]
    if mode != "120000":
        files[path] = (mode, _edited(random, content))


def _gone(random: Random, files: Files, path: str) -> None:
    del files[path]


def _mode(random: Random, files: Files, path: str) -> None:
    mode, content = files[path]
    if mode != "120000":
        files[path] = ("100644" if mode == "100755" else "100755", content)


def _type(random: Random, files: Files, path: str) -> None:
    files[path] = ("120000", b"else") if files[path][0] != "120000" else ("100644", b"a file now\n")


def _directory_made(random: Random, files: Files, path: str) -> None:
    """Replace a file by a directory that contains it."""
    files[f"{path}/{random.choice(_NAMES)}"] = files.pop(path)


def _file_made(random: Random, files: Files, path: str) -> None:
    """Replace a directory by a file."""
    place = path.rpartition("/")[0] or path
    kept = files[path]
    for one in [one for one in files if one.startswith(f"{place}/")]:
        del files[one]
    files[place] = kept


def _moved(random: Random, files: Files, path: str) -> None:
    mode, content = files.pop(path)
    target = random.choice(_PLACES) + random.choice(_NAMES)
    if mode != "120000" and random.random() < 0.5:
        content = _edited(random, content)
    files[target if _is_free(files, target) else path] = (mode, content)


def _directory_moved(random: Random, files: Files, path: str) -> None:
    places = sorted({path.rpartition("/")[0] for path in files if "/" in path})
    if not places:
        return
    old, new = random.choice(places), random.choice(["moved", "src/new", "lib"])
    for one in [one for one in files if one.startswith(f"{old}/")]:
        target = new + one.removeprefix(old)
        if _is_free(files, target):
            files[target] = files.pop(one)


def _added(random: Random, files: Files, path: str) -> None:
    target = random.choice(_PLACES) + random.choice(_NAMES)
    if _is_free(files, target):
        files[target] = ("100644", _text(random))


_SELDOM = [_mode, _type, _directory_made, _file_made, _added]


def history(seed: int) -> History:
    """Return the history of this seed."""
    random = Random(seed)
    base = _base(random)
    sides = (dict(base), dict(base))
    for side in sides:
        for _ in range(random.randint(1, 5)):
            _change(random, side)
    return base, *sides


def written(repository: Path, histories: Iterable[History]) -> list[tuple[str, str, str]]:
    """Return the commits of each history: the base, and both sides on top of it.

    One process writes them all.
    """
    stream: list[bytes] = []
    count = 0
    for base, *sides in histories:
        count += 1
        root = f":{3 * count}"
        stream.append(_commit(3 * count, base, None))
        stream += [_commit(3 * count + more, side, root) for more, side in enumerate(sides, start=1)]
    marks = repository / ".git" / "marks"
    command = ["git", "fast-import", "--quiet", "--force", f"--export-marks={marks}"]
    run(command, cwd=repository, input=b"".join(stream), check=True)
    named = dict(line.split(" ") for line in marks.read_text().splitlines())
    return [
        (named[f":{3 * number}"], named[f":{3 * number + 1}"], named[f":{3 * number + 2}"])
        for number in range(1, count + 1)
    ]


def _commit(mark: int, files: Files, parent: str | None) -> bytes:
    lines = [f"commit refs/heads/made\nmark :{mark}\ncommitter A <a@b.c> 0 +0000\ndata 0\n".encode()]
    lines.append(f"from {parent}\ndeleteall\n".encode() if parent else b"deleteall\n")
    for path, (mode, content) in files.items():
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'M {mode} inline "{quoted}"\ndata {len(content)}\n'.encode() + content + b"\n")
    # Without a parent it would continue from the previous commit on that branch.
    reset = b"" if parent else b"reset refs/heads/made\n\n"
    return reset + b"".join(lines) + b"\n"
