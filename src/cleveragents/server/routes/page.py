"""The page: one document for every address of it, and the files that it is made of."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cleveragents.server.middleware.wire import header, is_api
from cleveragents.server.web.files import PageFile, page_files

__all__ = ["PAGES", "install", "root"]

PAGES = (
    "/",
    "/plans/{plan_id}",
    "/new",
    "/context",
    "/events",
    "/jobs",
    "/projects",
    "/users",
    "/login",
    "/docs",
)
"""Where the page is. What a view shows it reads from the API, so anybody may have the page itself."""

root = APIRouter(include_in_schema=False)

_ASK_AGAIN = "no-cache"
_HTML = "text/html; charset=utf-8"
_FOR_EVER = "public, max-age=31536000, immutable"


def get_page(request: Request) -> Response:
    """The page, whichever view its address means."""
    return _answer(request, page_files().index, _ASK_AGAIN)


for _path in PAGES:
    root.add_api_route(_path, get_page, methods=["GET", "HEAD"])


@root.api_route("/static/{path:path}", methods=["GET", "HEAD"])
def get_file(path: str, request: Request) -> Response:
    """A file of the page. One whose address names the digest of them all never changes."""
    known = page_files()
    digest, _, rest = path.partition("/")
    dated = digest == known.digest
    found = known.by_path.get(rest if dated else path)
    if found is None:  # guard: nothing but the page's files
        raise HTTPException(404, "the page has no such file")
    return _answer(request, found, _FOR_EVER if dated else _ASK_AGAIN)


def install(app: FastAPI) -> None:
    """Has whoever opens an address without a route in a browser get the page, which says that there is
    nothing; with the status that says the truth. Programs get a problem, as everywhere."""
    problem = app.router.default

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_visit(scope):
            await problem(scope, receive, send)
            return
        answer = Response(page_files().index.content, 404, {"Cache-Control": _ASK_AGAIN}, _HTML)
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
