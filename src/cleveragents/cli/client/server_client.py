"""Asks a server over HTTP, and is patient with one that is started anew.

Whatever is asked may be asked again: reading changes nothing, and every POST has a key by which the server
knows it. So a connection that is cut off in the middle makes nothing twice and loses nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import click

from cleveragents.cli.client.problems import BUSY, ServerSaid, problem_of, said_code
from cleveragents.cli.output import progress
from cleveragents.core.errors import CleverAgentsError, ServerUnreachable

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ["ServerClient"]

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


class ServerClient:
    """One server, as one user. Not thread-safe: use it on the thread that runs the command.

    Errors: `ServerUnreachable`, `NotAuthenticated`, and `ServerSaid` for all else that the server refuses.
    The token is in no message. `prefix` is how a command begins that goes the same way.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        prefix: str = "agents",
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        import httpx

        self.url = url
        self.tell: Callable[[str], None] = progress
        """Whom to say that the server is waited for; who draws on the terminal says where."""
        self.prefix = prefix
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

    def get(self, path: str, **query: Any) -> Any:
        """What is there, as JSON."""
        return _in_words_of_commands(self._asked("GET", path, params=_given(query)).json())

    def content(self, path: str, **query: Any) -> bytes:
        """What is there, to the byte."""
        return self._asked("GET", path, params=_given(query)).content

    def pages(self, path: str, *, at_most: int | None = None, **query: Any) -> Iterator[dict[str, Any]]:
        """All of a list, or its first so many, piece by piece."""
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

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer; however often it has to be asked, it is done once."""
        key = token_hex(16)  # guard: the same one each time that this is asked
        answer = self._asked("POST", path, json=dict(body or {}), headers={"Idempotency-Key": key})
        return _in_words_of_commands(answer.json())

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer."""
        return self._asked("PATCH", path, json=dict(body)).json()

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer. Sent again it changes nothing more."""
        return self._asked("PUT", path, json=dict(body)).json()

    def delete(self, path: str, **query: Any) -> None:
        """It is gone; also where it was gone when this was asked a second time."""
        tries: list[None] = []
        try:
            self._asked("DELETE", path, tries=tries, params=_given(query))
        except ServerSaid as said:
            if said.status != 404 or len(tries) == 1:
                raise

    @contextmanager
    def streamed(self, path: str, query: Mapping[str, Any]) -> Iterator[Iterator[str]]:
        """Lines as they come, from one connection; `httpx.TransportError` when that is cut."""
        import httpx

        timeout = httpx.Timeout(_STREAM_SECONDS, connect=_CONNECT_SECONDS)
        with self._http.stream("GET", path, params=_given(query), timeout=timeout) as response:
            self._answered = True
            if response.status_code >= 400:
                response.read()
                raise problem_of(response, self.url, self.prefix)
            yield response.iter_lines()

    def trying(self) -> Iterator[None]:
        """Comes back after a pause, until patience is at its end; then the caller raises what it has."""
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
        """For the end of a command that somebody interrupts: what is asked meanwhile is asked once."""
        patience, self._patience = self._patience, 0.0
        try:
            yield
        finally:
            self._patience = patience

    @property
    def answered(self) -> bool:
        """Whether there is a server; one that never answered is not waited for."""
        return self._answered

    def unreachable(self, problem: Exception) -> ServerUnreachable:
        """The error for a connection that cannot be made, or is cut."""
        return ServerUnreachable(self.url, _in_words(problem))

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
            raise click.UsageError(f"{path.removeprefix('/')!r} names nothing on a server")
        failed: CleverAgentsError | ServerSaid | None = None
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
            code = said_code(response)
            if code == "request-under-way" and broke_off:  # nobody is at it: what broke off keeps the key
                break
            failed = problem_of(response, self.url, self.prefix)
            broke_off = code == "database-unreachable"
            if code in _NOT_AGAIN or (response.status_code not in BUSY and code != "request-under-way"):
                break
        assert failed is not None
        raise failed from None


def _is_name(path: str) -> bool:
    """Whether each part of it is a name; none is empty, or of bytes that are no text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return not {"", ".", ".."} & set(path.removeprefix("/").split("/"))


def _in_words(problem: Exception) -> str:
    said = str(problem) or type(problem).__name__
    if "WRONG_VERSION_NUMBER" in said:
        return "it is reached by http://, not by https://"
    return _NUMBER.sub("", said)


def _ensure_api(response: httpx.Response, url: str) -> httpx.Response:
    """`ServerUnreachable` where something else than our API answers."""
    kind = response.headers.get("content-type", "")
    if response.is_redirect or kind.startswith("text/html"):
        raise ServerUnreachable(url, "something else than the API of CleverAgents answers there")
    return response


def _trusting_nobody() -> ssl.SSLContext:
    """For who never meets TLS: to read whom the world trusts takes longer than most questions."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _in_words_of_commands(answer: Any) -> Any:
    """What the server says in words of requests, and the command line has words of its own for, in those."""
    if not isinstance(answer, dict):
        return answer
    # A job says why it was refused once more, as requests are refused.
    twice = ("command_line", "problem") if "payload" in answer else ("command_line",)
    told = {name: value for name, value in answer.items() if name not in twice}
    words = answer.get("command_line")
    told |= words if isinstance(words, dict) else {}
    for name in ("items", "sub_plans"):
        if isinstance(told.get(name), list):
            told[name] = [_in_words_of_commands(one) for one in told[name]]
    return told
