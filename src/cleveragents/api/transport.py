"""HTTP requests to a CleverAgents server, with retries and idempotency keys.

Every request can be sent again: a GET changes nothing, and every POST carries an idempotency key. So a
request takes effect exactly once, even if its connection breaks.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from cleveragents.api.views import Page, ServerResponse, understood, view_of
from cleveragents.core.errors import (
    Closed,
    ConfigurationError,
    NotAuthenticated,
    Remedy,
    RequestRefused,
    ServerFailed,
    ServerUnreachable,
    Unavailable,
    remedies_from_json,
)
from cleveragents.core.errors.facts import error_from_facts
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ["BUSY", "HttpTransport", "problem_in"]

BUSY = (429, 502, 503, 504)
"""Statuses of a server that may respond in a moment."""

View = TypeVar("View")

PATIENCE_SECONDS = 30.0
_SHORTEST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_SILENT_SECONDS = 1.0
_ANSWER_SECONDS = 120.0
_STREAM_SECONDS = 60.0
_CONNECT_SECONDS = 10.0
_PAGE = 1000
_SHORTEST_TOKEN = 8
"""Minimum length of a token. A shorter one could occur within ordinary words, and masking would hide them."""
_EXAMPLE = "https://agents.example or http://localhost:8000"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_NOT_AGAIN = ("remote-unreachable", "outcome-unknown")
"""Errors that are not retried: a git remote that the server cannot reach may be away for long, and an unknown
outcome needs a person to look first.
"""
_BROKEN = (502, 504)
"""Statuses of a proxy that lost the server: the request may have taken effect."""
_SPACE = re.compile(r"\s")
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")


class HttpTransport:
    """Requests to one server as one user.

    Retries for `patience_seconds` while the server is down or busy; While it waits, it calls `tell` with a
    message for the user, on the waiting thread.

    Thread safety: any thread may use it, several at once. `without_patience` changes the calling thread only.
    If another thread closes the transport, a thread that waits for the server gets `Closed`.

    Errors: the same classes that the local services raise, rebuilt from the server's answer; `ServerFailed`
    for an answer this version does not know; `ServerUnreachable`, `NotAuthenticated`; `Closed` after
    `close()`. No message contains the token.

    Raises `ConfigurationError` for an invalid address or token.
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
        self._ended = threading.Event()
        self._thread = threading.local()
        self._token = None if token is None else _usable(token)
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        place = _place_of(url)
        local = place.hostname in _LOCAL_HOSTS
        # Redirects are not followed: the token is for this server only.
        try:
            self._http = httpx.Client(
                base_url=f"{url}/api",
                headers=headers,
                timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
                trust_env=not local,
                verify=_trusting_nobody() if local and place.scheme == "http" else True,
            )
        except httpx.InvalidURL:
            raise _no_address(url) from None

    def get(self, path: str, /, **query: Any) -> Any:
        """Return the JSON at the path, as a `ServerResponse`."""
        return _answer(self._asked("GET", path, params=_given(query)))

    def content(self, path: str, /, **query: Any) -> bytes:
        """Return the bytes at the path."""
        return self._asked("GET", path, params=_given(query)).content

    def page(self, kind: type[View], path: str, limit: int, after: str | None, **query: Any) -> Page[View]:
        """Return one page of a list, as views. Sends several requests if the server's pages are smaller."""
        return self.read_page(partial(view_of, kind), path, limit, after, **query)

    def read_page(
        self, read: Callable[[Any], View], path: str, limit: int, after: str | None, **query: Any
    ) -> Page[View]:
        """Return one page of a list, as `page` does; `read` makes a view of an item."""
        items: list[View] = []
        while True:
            found, after = self._piece(path, min(limit - len(items), _PAGE), after, query)
            with understood():
                items += [read(item) for item in found]
            if after is None or len(items) >= limit:
                return Page(items=tuple(items), next=after)

    def _piece(
        self, path: str, limit: int, after: str | None, query: Mapping[str, Any]
    ) -> tuple[list[Any], str | None]:
        """Return the items of one answer, and the `after` for the next request."""
        said: ServerResponse = self.get(path, limit=limit, after=after, **query)
        items, following = said["items"], said["next"]
        with understood(said.status):
            if not isinstance(items, list):
                raise TypeError("the field `items` is not a list")
            if following is not None and (not items or following == after):  # guard: this would never end
                raise ValueError("the server sent the same page of the list twice")
        return items, following

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send the body and return the answer. The server executes the request once, however often it is
        sent.
        """
        key = token_hex(16)  # guard: the same key for every retry
        return _answer(self._sent("POST", path, body or {}, {"Idempotency-Key": key}))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send the body and return the answer."""
        return _answer(self._sent("PATCH", path, body))

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send the body and return the answer. Idempotent."""
        return _answer(self._sent("PUT", path, body))

    def delete(self, path: str, **query: Any) -> None:
        """Delete the object at the path. After a broken connection a missing object counts as success,
        because the first attempt may have deleted it.
        """
        broken: list[Exception] = []
        try:
            self._asked("DELETE", path, broken=broken, params=_given(query))
        except Exception as error:
            if not broken or not self.is_missing(error):
                raise

    @contextmanager
    def streamed(self, path: str, query: Mapping[str, Any]) -> Iterator[Iterator[str]]:
        """Yield the lines of one streamed answer as they arrive. Raises `httpx.TransportError` if the
        connection breaks.
        """
        import httpx

        self._ensure_open()
        timeout = httpx.Timeout(_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        with self._http.stream("GET", path, params=_given(query), timeout=timeout) as response:
            self._answered = True
            if response.status_code >= 400:
                response.read()
                raise self._problem(response)
            yield response.iter_lines()

    def trying(self) -> Iterator[None]:
        """Yield once per attempt, with growing pauses, for `patience_seconds`. Raises `Closed`."""
        self._ensure_open()
        patience = 0.0 if getattr(self._thread, "is_impatient", False) else self._patience
        began = time.monotonic()
        pause = _SHORTEST_PAUSE
        told = False
        yield
        while (waited := time.monotonic() - began) < patience:
            if waited >= _SILENT_SECONDS and not told:
                told = True
                self.tell(f"{self.url} does not respond; waiting up to {patience:.0f} s …")
            self.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            yield

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises `Closed` as soon as the transport is closed."""
        self._ended.wait(seconds)
        self._ensure_open()

    @contextmanager
    def without_patience(self) -> Iterator[None]:
        """Send requests of this thread without retries inside the block, for clean-up after an interrupt."""
        before = getattr(self._thread, "is_impatient", False)
        self._thread.is_impatient = True
        try:
            yield
        finally:
            self._thread.is_impatient = before

    @property
    def answered(self) -> bool:
        """Whether the server has ever responded. A server that never responded is not retried."""
        return self._answered

    def unreachable(self, problem: Exception) -> ServerUnreachable:
        """Return the error for a connection that failed or broke."""
        return ServerUnreachable(self.url, self._masked(_in_words(problem)))

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
        detail = self._masked(str(detail))
        if code == "invalid-request":
            return RequestRefused(detail, None, remedies)
        if status in BUSY:
            return ServerUnreachable(self.url, detail)
        return ServerFailed(detail, code, status, remedies)

    def is_missing(self, error: Exception) -> bool:
        """Return whether the error means that the server has no such object."""
        not_found = isinstance(error, ServerFailed) and error.status == 404
        return not_found or type(error).__name__.startswith("Unknown")

    def is_busy(self, error: Exception) -> bool:
        """Return whether the error means that the server is busy and a retry may succeed."""
        return isinstance(error, Unavailable) and not self._ended.is_set()

    def close(self) -> None:
        """Close all connections. A second call changes nothing."""
        self._ended.set()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        try:
            content = json.dumps(dict(body), ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestRefused(f"the request is not valid JSON: {error}") from None
        return self._asked(
            method, path, content=content, headers={"Content-Type": "application/json", **(headers or {})}
        )

    def _asked(
        self, method: str, path: str, *, broken: list[Exception] | None = None, **options: Any
    ) -> httpx.Response:
        """Return the answer of the server. `broken` collects the failures that leave open whether the request
        took effect.
        """
        import httpx

        if not _is_name(path):  # guard: a typed name must not change the address
            raise RequestRefused(f"{path.removeprefix('/')!r} is not a valid name")
        failed: Exception | None = None
        broke_off = False
        broken = [] if broken is None else broken
        for _ in self.trying():
            try:
                response = self._tried(method, path, options)
            except httpx.TransportError as error:
                failed, broke_off = self.unreachable(error), False
                if not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
                    broken.append(error)
                elif not self._answered:
                    break
                continue
            if response.status_code < 400:
                return _ensure_api(response, self.url)
            code = str(problem_in(response).get("code", ""))
            if code == "request-under-way" and broke_off:  # the broken attempt still holds the key
                break
            failed = self._problem(response)
            broke_off = code == "database-unreachable"
            if response.status_code in _BROKEN:
                broken.append(failed)
            if code in _NOT_AGAIN or (response.status_code not in BUSY and code != "request-under-way"):
                break
        self._ensure_open()
        assert failed is not None
        raise failed from None

    def _tried(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        """Return the answer to one attempt. Raises `httpx.TransportError` if another attempt may succeed."""
        import httpx

        try:
            response = self._http.request(method, quote(path), **options)
        except (httpx.LocalProtocolError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise self.unreachable(error) from None
        except httpx.DecodingError as error:
            problem = f"the server's answer cannot be decoded: {self._masked(str(error))}"
            raise ServerFailed(problem, "answer-not-understood", 200) from None
        except UnicodeEncodeError:
            raise RequestRefused("the request has text that is not valid Unicode") from None
        except RuntimeError:
            self._ensure_open()
            raise
        self._answered = True
        return response

    def _problem(self, response: httpx.Response) -> Exception:
        with understood(response.status_code):
            return self.problem_of(response)

    def _ensure_open(self) -> None:
        if self._ended.is_set():
            raise Closed("the client")

    def _masked(self, text: str) -> str:
        token = self._token or ""
        return redact_text(text, (token,) if len(token) >= _SHORTEST_TOKEN else ())


def _usable(token: str) -> str:
    """Return the token without surrounding space. Raises `ConfigurationError`, without the token in its
    message.
    """
    stripped = token.strip()
    if not stripped:
        raise ConfigurationError("token", "the token is empty; set a token, or omit it")
    if not (stripped.isascii() and stripped.isprintable()):
        raise ConfigurationError("token", "the token has invalid characters; copy it again")
    return stripped


def _place_of(url: str) -> SplitResult:
    """Return the parts of a server's address. Raises `ConfigurationError` if it is invalid."""
    try:
        place = urlsplit(url)
        known = place.scheme in ("http", "https") and place.hostname and place.port != 0
        usable = known and not _SPACE.search(url)
    except ValueError:
        usable = False
    if not usable:
        raise _no_address(url)
    return place


def _no_address(url: str) -> ConfigurationError:
    problem = f"{redact_text(url)!r} is not the address of a server"
    return ConfigurationError("server", f"{problem}; use http:// or https://, for example {_EXAMPLE}")


def _answer(response: httpx.Response) -> ServerResponse:
    with understood(response.status_code):
        said = response.json()
        if not isinstance(said, dict):
            raise TypeError("it is not a JSON object")
    return ServerResponse(said, response.status_code)


def _is_name(path: str) -> bool:
    """Return whether each segment of the path is a name: not empty, not a dot segment, valid text."""
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
    """Return the response. Raises `ServerUnreachable` if another program responds at this address."""
    kind = response.headers.get("content-type", "")
    if response.is_redirect or kind.startswith("text/html"):
        raise ServerUnreachable(url, "another program responds at this address")
    return response


def _trusting_nobody() -> ssl.SSLContext:
    """Return a TLS context without certificates, for plain HTTP to this machine: loading the system's
    certificates takes longer than most requests.
    """
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def problem_in(response: httpx.Response) -> Mapping[str, Any]:
    """Return the problem details of an answer; empty if a proxy or another program answered."""
    try:
        said = response.json()
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
