"""HTTP requests to a CleverAgents server, with retries and idempotency keys.

Every request can be sent again: a GET changes nothing, and every POST carries an idempotency key.
A connection that breaks in the middle of a request repeats nothing and loses nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlsplit

from cleveragents.api.views import Page, view_of
from cleveragents.core.errors import (
    NotAuthenticated,
    RequestRefused,
    ServerFailed,
    ServerUnreachable,
    Unavailable,
)
from cleveragents.core.errors.facts import error_from_facts
from cleveragents.core.errors.remedy import Remedy, remedies_from_json

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ["BUSY", "HttpTransport", "problem_in"]

BUSY = (429, 502, 503, 504)
"""Statuses of a server that may answer in a moment."""

View = TypeVar("View")

PATIENCE_SECONDS = 30.0
_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_SILENT_SECONDS = 1.0
_ANSWER_SECONDS = 120.0
_STREAM_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_PAGE = 1000
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_NOT_AGAIN = ("remote-unreachable", "outcome-unknown")
"""A git remote that the server cannot reach is not the server, and may be away for long. What may have been
done is looked at by somebody first."""
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


class HttpTransport:
    """Requests to one server as one user. Not thread-safe: use it on the thread that created it.

    Retries for `patience_seconds` while the server is down or busy; `tell` reports that wait to a person.

    Errors: the same classes that the local services raise, rebuilt from the server's answer;
    `ServerFailed` for an answer this version does not know; `ServerUnreachable`, `NotAuthenticated`.
    No message contains the token.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        tell: Callable[[str], None] = lambda _: None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        import httpx

        self.url = url
        self.tell = tell
        self._patience = patience_seconds
        self._answered = False
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        place = urlsplit(url)
        local = place.hostname in _LOCAL_HOSTS
        # A redirect is not followed: the token is for this server and for no other.
        self._http = httpx.Client(
            base_url=f"{url}/api",
            headers=headers,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=not local,
            verify=_trusting_nobody() if local and place.scheme == "http" else True,
        )

    def get(self, path: str, /, **query: Any) -> Any:
        """Return the JSON at the path."""
        return self._asked("GET", path, params=_given(query)).json()

    def content(self, path: str, /, **query: Any) -> bytes:
        """Return the bytes at the path."""
        return self._asked("GET", path, params=_given(query)).content

    def pages(self, path: str, *, at_most: int | None = None, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the items of a paged list, all of them or the first `at_most`."""
        left = at_most
        after = query.pop("after", None)
        while left is None or left > 0:
            limit = _PAGE if left is None else min(left, _PAGE)
            piece = self.get(path, limit=limit, after=after, **query)
            yield from piece["items"]
            after = piece["next"]
            if after is None:
                return
            left = None if left is None else left - len(piece["items"])

    def page(self, kind: type[View], path: str, limit: int, after: str | None, **query: Any) -> Page[View]:
        """Return one page of a list, as views; several requests where the server's pages are smaller."""
        items: list[View] = []
        while True:
            asked = min(limit - len(items), _PAGE)
            piece = self.get(path, limit=asked, after=after, **query)
            items += [view_of(kind, item) for item in piece["items"]]
            after = piece["next"]
            if after is None or len(items) >= limit:
                return Page(items=tuple(items), next=after)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send the body and return the answer. The server carries it out once, however often it is sent."""
        key = token_hex(16)  # guard: the same key for every retry
        return self._asked("POST", path, json=dict(body or {}), headers={"Idempotency-Key": key}).json()

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send the body and return the answer."""
        return self._asked("PATCH", path, json=dict(body)).json()

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send the body and return the answer. Idempotent."""
        return self._asked("PUT", path, json=dict(body)).json()

    def delete(self, path: str, **query: Any) -> None:
        """Delete what is at the path. A retry that finds nothing there succeeds."""
        tries: list[None] = []
        try:
            self._asked("DELETE", path, tries=tries, params=_given(query))
        except Exception as error:
            if len(tries) == 1 or not self.is_missing(error):
                raise

    @contextmanager
    def streamed(self, path: str, query: Mapping[str, Any]) -> Iterator[Iterator[str]]:
        """Yield lines of one streamed answer as they arrive; `httpx.TransportError` when it breaks."""
        import httpx

        timeout = httpx.Timeout(_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        with self._http.stream("GET", path, params=_given(query), timeout=timeout) as response:
            self._answered = True
            if response.status_code >= 400:
                response.read()
                raise self.problem_of(response)
            yield response.iter_lines()

    def trying(self) -> Iterator[None]:
        """Yield once per attempt, with growing pauses, until the patience is used up."""
        began = time.monotonic()
        pause = _SHORTEST_PAUSE
        told = False
        yield
        while (waited := time.monotonic() - began) < self._patience:
            if waited >= _SILENT_SECONDS and not told:
                told = True
                self.tell(f"{self.url} does not answer; waiting for it, {self._patience:.0f} s at most …")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            yield

    @contextmanager
    def without_patience(self) -> Iterator[None]:
        """Send requests once inside the block: for clean-up after an interrupt."""
        patience, self._patience = self._patience, 0.0
        try:
            yield
        finally:
            self._patience = patience

    @property
    def answered(self) -> bool:
        """Whether the server has answered before. One that never did is not retried."""
        return self._answered

    def unreachable(self, problem: Exception) -> ServerUnreachable:
        """Return the error for a connection that failed or broke."""
        return ServerUnreachable(self.url, _in_words(problem))

    def problem_of(self, response: httpx.Response) -> Exception:
        """Return the error of an answer with status 400 or above, whose body has been read."""
        said, status = problem_in(response), response.status_code
        code = str(said.get("code", ""))
        if status == 401:
            login = Remedy("login", options={"url": self.url}, text="Log in")
            return NotAuthenticated(f"log in to {self.url}", (login,))
        facts, remedies = said.get("facts"), remedies_from_json(said.get("remedies", ()))
        known = error_from_facts(code, facts, remedies) if isinstance(facts, dict) else None
        if known is not None:
            return known
        detail = said.get("detail") or f"the server at {self.url} answered {status} {response.reason_phrase}"
        if code == "invalid-request":
            return RequestRefused(str(detail), None, remedies)
        if status in BUSY:
            return ServerUnreachable(self.url, str(detail))
        return ServerFailed(str(detail), code, status, remedies)

    def is_missing(self, error: Exception) -> bool:
        """Whether the server has nothing of that name."""
        not_found = isinstance(error, ServerFailed) and error.status == 404
        return not_found or type(error).__name__.startswith("Unknown")

    def is_busy(self, error: Exception) -> bool:
        """Whether the server may answer in a moment."""
        return isinstance(error, Unavailable)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asked(
        self, method: str, path: str, *, tries: list[None] | None = None, **options: Any
    ) -> httpx.Response:
        import httpx

        if not _is_name(path):  # guard: a name that was typed leads nowhere else
            raise RequestRefused(f"{path.removeprefix('/')!r} is not a name of anything on a server")
        failed: Exception | None = None
        broke_off = False
        for _ in self.trying():
            if tries is not None:
                tries.append(None)
            try:
                response = self._http.request(method, quote(path), **options)
            except httpx.TransportError as error:
                failed, broke_off = self.unreachable(error), False
                if not self._answered and isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
                    break
                continue
            except httpx.InvalidURL as error:
                raise self.unreachable(error) from None
            self._answered = True
            if response.status_code < 400:
                return _ensure_api(response, self.url)
            code = str(problem_in(response).get("code", ""))
            if code == "request-under-way" and broke_off:  # nobody is at it: what broke off keeps the key
                break
            failed = self.problem_of(response)
            broke_off = code == "database-unreachable"
            if code in _NOT_AGAIN or (response.status_code not in BUSY and code != "request-under-way"):
                break
        assert failed is not None
        raise failed from None


def _is_name(path: str) -> bool:
    """Whether each segment of the path is a name: not empty, not a dot segment, valid text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return not {"", ".", ".."} & set(path.removeprefix("/").split("/"))


def _in_words(problem: Exception) -> str:
    said = str(problem) or type(problem).__name__
    if "WRONG_VERSION_NUMBER" in said:
        return "the server speaks http://, not https://"
    return _NUMBER.sub("", said)


def _ensure_api(response: httpx.Response, url: str) -> httpx.Response:
    """`ServerUnreachable` if another program answers at this address."""
    kind = response.headers.get("content-type", "")
    if response.is_redirect or kind.startswith("text/html"):
        raise ServerUnreachable(url, "something else than the API of CleverAgents answers there")
    return response


def _trusting_nobody() -> ssl.SSLContext:
    """Return an empty TLS context: loading the system's certificates takes longer than most requests."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def problem_in(response: httpx.Response) -> Mapping[str, Any]:
    """Return the problem details of an answer; empty if a proxy or another program answered."""
    try:
        said = response.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
