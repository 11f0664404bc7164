"""The page's files, read once and known by name: what is not among them cannot be asked for.

All files together have one digest, which is part of their addresses: a browser may keep each for ever,
and a page never mixes files of two versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

__all__ = ["INDEX", "PageFile", "PageFiles", "page_files"]

INDEX = "index.html"

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_DIGITS = 16
_PLACE = b"/static/"
_CLASSIC = "js/early.js"


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, as it is sent."""

    content: bytes
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class PageFiles:
    """All files by their path below static/, and the digest of them all."""

    digest: str
    by_path: Mapping[str, PageFile]

    @property
    def index(self) -> PageFile:
        """The page itself, which names its files with the digest in their addresses; all modules at once, so
        that a browser need not find them one by one."""
        return self.by_path[INDEX]


@cache
def page_files() -> PageFiles:
    """The files that were installed with this package."""
    found = dict(sorted(_below(files("cleveragents.server.web") / "static", "")))
    whole = sha256()
    for path, content in found.items():
        whole.update(f"{path}\0{len(content)}\0".encode())
        whole.update(content)
    digest = whole.hexdigest()[:_DIGITS]
    scripts = [path for path in found if path.endswith(".js") and path != _CLASSIC]
    hints = "".join(f'<link rel="modulepreload" href="/static/{path}" />' for path in scripts)
    page = found[INDEX].replace(b"</head>", f"{hints}</head>".encode())
    found[INDEX] = page.replace(_PLACE, f"{_PLACE.decode()}{digest}/".encode())
    return PageFiles(digest, MappingProxyType({path: _sent(path, found[path]) for path in found}))


def _below(directory: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            yield f"{prefix}{entry.name}", entry.read_bytes()


def _sent(path: str, content: bytes) -> PageFile:
    media_type = _TYPES[path.rpartition(".")[2]]
    return PageFile(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')
