"""Targets for anchors: a file, a URL or a branch of a git remote.

A target is an append-only list of lines. Existing lines never change, so several writers can share a target,
and the order of their anchors does not matter.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from cleveragents.access.model.project import SCHEME, remote_of
from cleveragents.core.errors import AnchorFailed, ConfigurationError, InvalidName, StoreBusy
from cleveragents.events.head import lock_within

if TYPE_CHECKING:
    import httpx

__all__ = ["MAX_BYTES", "AnchorTarget", "FileTarget", "UrlTarget", "open_target"]

MAX_BYTES = 64 * 1024 * 1024
"""The maximum size read from a target: 150,000 anchors."""

_LOCK_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_SECONDS = 60.0
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_NOTHING_THERE = (404, 405)
_BRANCH = "audit-anchors"
_KINDS = "a path, file:///PATH, https://HOST/PATH, or git+URL#BRANCH"


class AnchorTarget(Protocol):
    """An append-only list of lines outside the machine.

    Methods raise `AnchorFailed` if the target is not available.
    """

    @property
    def name(self) -> str:
        """The name of the target for messages, without credentials."""
        ...

    def read(self) -> bytes:
        """Return all lines; empty if there are none yet."""
        ...

    def append(self, line: str) -> None:
        """Append a line durably; concurrent writers are safe."""
        ...


def open_target(text: str, *, mirrors: Path, token_variable: str = "") -> AnchorTarget:
    """Return the target that `text` names. Raises `ConfigurationError` if it names none.

    `mirrors` is the directory for copies of git remotes; `token_variable` names the environment variable with
    the token for a URL.
    """
    if text.startswith(SCHEME):
        from cleveragents.events.anchors.git_target import GitTarget

        try:
            address = remote_of(text if "#" in text else f"{text}#{_BRANCH}")
        except InvalidName as error:
            raise ConfigurationError("audit.anchor", str(error)) from error
        assert address is not None
        return GitTarget(address, mirrors)
    if text.startswith(("https://", "http://")):
        return UrlTarget(_ensured_url(text), _token(token_variable, os.environ))
    path = text.removeprefix("file://")
    if not path or "://" in path or (path != text and not path.startswith("/")):
        raise ConfigurationError("audit.anchor", f"{text!r} names no target; use {_KINDS}")
    return FileTarget(Path(path))


def _ensured_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError as error:
        raise ConfigurationError("audit.anchor", f"not a URL: {error}") from error
    if not host:
        raise ConfigurationError("audit.anchor", "the URL has no host")
    if (
        parts.scheme != "https" and host not in _LOCAL_HOSTS
    ):  # guard: no one on the network path can alter an anchor
        raise ConfigurationError("audit.anchor", f"{host} is not this machine; use https://")
    if "@" in parts.netloc:  # guard: it would be shown and logged
        problem = (
            "the URL contains credentials; set audit.anchor_token_variable to the name of a variable "
            "with a token"
        )
        raise ConfigurationError("audit.anchor", problem)
    return text


def _token(variable: str, environment: Mapping[str, str]) -> str | None:
    if not variable:
        return None
    token = environment.get(variable, "").strip()
    if not token:
        raise ConfigurationError("audit.anchor_token_variable", f"the variable {variable} is not set")
    return token


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A file, for example on a mounted share or with the append-only attribute (`chattr +a`).

    Its directory is not created, so that a share that is not mounted is an error. Any process may append
    concurrently; a lock on the file keeps their lines apart.
    """

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            if self.path.parent.is_dir():
                return b""
            raise AnchorFailed(self.name, f"the directory {self.path.parent} does not exist") from None
        except OSError as error:
            raise AnchorFailed(self.name, error.strerror or str(error)) from error
        _ensure_size(self.name, len(content))
        return content

    def append(self, line: str) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                lock_within(descriptor, _LOCK_SECONDS)
                self._append(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise AnchorFailed(self.name, error.strerror or str(error)) from error
        except StoreBusy as error:
            raise AnchorFailed(self.name, "another process holds the file") from error

    def _append(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        # A truncated line must not damage the next one.
        begin = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
        content = begin + line + b"\n"
        if os.write(descriptor, content) < len(content):
            with suppress(OSError):  # an append-only file keeps the partial line
                os.ftruncate(descriptor, size)
            raise AnchorFailed(self.name, "no space left")
        os.fsync(descriptor)


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """A service that stores posted lines: `POST` adds a line, `GET` returns all of them.

    The token is sent as `Authorization: Bearer`. Redirects are not followed: the token is for this address
    only.
    """

    url: str
    token: str | None = None

    @property
    def name(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    def read(self) -> bytes:
        return self._asked("GET")

    def append(self, line: str) -> None:
        self._asked("POST", f"{line}\n".encode())

    def _asked(self, method: str, content: bytes | None = None) -> bytes:
        import httpx

        headers = {"Content-Type": "application/json"} if content is not None else {}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        parts = urlsplit(self.url)
        local = parts.hostname in _LOCAL_HOSTS
        timeout = httpx.Timeout(_SECONDS, connect=_CONNECT_SECONDS)
        # Plain HTTP needs no certificates, and loading them is slow.
        verify = True if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            with (
                httpx.Client(timeout=timeout, trust_env=not local, verify=verify) as client,
                client.stream(method, self.url, content=content, headers=headers) as response,
            ):
                return self._answer(response)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AnchorFailed(self.name, str(error) or type(error).__name__) from error

    def _answer(self, response: httpx.Response) -> bytes:
        status = response.status_code
        if response.request.method == "GET" and status in _NOTHING_THERE:
            return b""
        if response.is_redirect:
            raise AnchorFailed(self.name, f"status {status}: a redirect; use the address it points to")
        if not response.is_success:
            raise AnchorFailed(self.name, f"status {status}")
        until = time.monotonic() + _SECONDS
        content = bytearray()
        for part in response.iter_bytes():
            content += part
            _ensure_size(self.name, len(content))
            if time.monotonic() > until:
                raise AnchorFailed(self.name, f"the answer took longer than {_SECONDS:.0f} s")
        return bytes(content)


def _ensure_size(name: str, size: int) -> None:
    if size > MAX_BYTES:
        raise AnchorFailed(name, f"the file is larger than {MAX_BYTES // 1024**2} MiB; start a new one")
