"""Git directories of ours, written file by file: `git init` costs a process and brings a user's templates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["GitDirectory", "copy_index", "copy_shared_indexes"]

# What decides how a file's bytes and mode become an object, and nothing that names a program.
_FAITHFUL = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.precomposeunicode",
)
_PLAIN = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class GitDirectory:
    """What is to be in a git directory. `settings` are added to what `faithful` takes from the user's."""

    object_format: str = "sha1"
    faithful: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    head: str = "ref: refs/heads/none"
    refs: Mapping[str, str] = field(default_factory=dict)
    borrowed: Sequence[Path] = ()
    exclude: bytes = b""
    attributes: bytes = b""
    shallow: bytes = b""

    def write(self, directory: Path) -> None:
        """Makes the directory, which does not exist yet."""
        for part in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
            (directory / part).mkdir(parents=True)
        (directory / "HEAD").write_text(f"{self.head}\n", encoding="utf-8", errors="surrogateescape")
        (directory / "config").write_bytes(self._config())
        for name, commit in self.refs.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{commit}\n", encoding="utf-8")
        stores = b"".join(os.fsencode(store) + b"\n" for store in self.borrowed)
        for part, content in (
            ("objects/info/alternates", stores),
            ("info/exclude", self.exclude),
            ("info/attributes", self.attributes),
            ("shallow", self.shallow),
        ):
            if content:
                (directory / part).write_bytes(content)

    def _config(self) -> bytes:
        values = {"core.repositoryformatversion": "0" if self.object_format == "sha1" else "1"}
        if self.object_format != "sha1":
            values["extensions.objectformat"] = self.object_format
        for name in _FAITHFUL:
            value = self.faithful.get(name, "")
            if _PLAIN.fullmatch(value):
                values[name] = value
        values.update(self.settings)
        lines = []
        for name, value in values.items():
            section, _, key = name.partition(".")
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'[{section}]\n\t{key} = "{quoted}"\n')
        return os.fsencode("".join(lines))


def copy_index(source: Path, target: Path) -> bool:
    """Copies an index with its time; False if there is none.

    git trusts an entry only if it is older than the index; a copy that looked younger would hide a file that
    changed in the moment in which the index was written.
    """
    try:
        with source.open("rb") as file:
            status = os.fstat(file.fileno())
            target.write_bytes(file.read())
    except FileNotFoundError:
        return False
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))  # guard: see above
    return True


def copy_shared_indexes(source: Path, target: Path) -> list[Path]:
    """Copies what a split index of the git directory `source` is the difference to, because git looks for it
    in its own directory. Returns what there was to copy."""
    found = list(source.glob("sharedindex.*"))
    for shared in found:
        copy_index(shared, target / shared.name)
    return found
