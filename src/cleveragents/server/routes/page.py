"""Routes of the web page: one document for every address, and its static files.

All files are read once at the start; no other file can be requested. Their addresses contain the digest of
all files, so a browser may cache each file for ever, and a page never mixes files of two versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cleveragents.server.middleware.wire import header, is_api

__all__ = ["INDEX", "PAGES", "PageFile", "PageFiles", "install", "page_files", "root"]

INDEX = "index.html"
PAGES = (
    "/",
    "/plans/{plan_id}",
    "/sessions",
    "/sessions/{conversation_id}",
    "/new",
    "/context",
    "/costs",
    "/events",
    "/jobs",
    "/projects",
    "/users",
    "/login",
    "/docs",
)
"""Addresses of the page. They need no token, because all data comes from the API."""

root = APIRouter(include_in_schema=False)

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
_ASK_AGAIN = "no-cache"
_FOR_EVER = "public, max-age=31536000, immutable"


def get_page(request: Request) -> Response:
    """Return the page, for any of its addresses."""
    return _answer(request, page_files().index, _ASK_AGAIN)


for _path in PAGES:
    root.add_api_route(_path, get_page, methods=["GET", "HEAD"])


@root.api_route("/static/{path:path}", methods=["GET", "HEAD"])
def get_file(path: str, request: Request) -> Response:
    """Return a file of the page. If the address contains the digest, browsers may cache the file for ever."""
    known = page_files()
    digest, _, rest = path.partition("/")
    dated = digest == known.digest
    found = known.by_path.get(rest if dated else path)
    if found is None:  # guard: only files of the page are served
        raise HTTPException(404, "no such file of the page")
    return _answer(request, found, _FOR_EVER if dated else _ASK_AGAIN)


def install(app: FastAPI) -> None:
    """Answer unknown addresses in a browser with the page and status 404. Programs get a problem."""
    problem = app.router.default

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_visit(scope):
            await problem(scope, receive, send)
            return
        answer = Response(page_files().index.content, 404, {"Cache-Control": _ASK_AGAIN}, _TYPES["html"])
        await answer(scope, receive, send)

    app.router.default = nowhere


def _is_visit(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "GET" or is_api(scope):
        return False
    return "text/html" in (header(scope, b"accept") or "")


def _answer(request: Request, file: PageFile, caching: str) -> Response:
    headers = {"ETag": file.etag, "Cache-Control": caching}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file with its headers."""

    content: bytes
    media_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class PageFiles:
    """All files by their path below static/, and their common digest."""

    digest: str
    by_path: Mapping[str, PageFile]

    @property
    def index(self) -> PageFile:
        """Return the document with the digest in all addresses.

        The document preloads all modules, so that a browser does not discover them one by one.
        """
        return self.by_path[INDEX]


@cache
def page_files() -> PageFiles:
    """Return the files installed with this package."""
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
