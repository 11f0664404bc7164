"""The tokens of servers that the user logged in to: one file beside the settings, for its owner alone."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

from cleveragents.config.loading import user_file_path
from cleveragents.core.errors import ConfigurationError

__all__ = ["forget_token", "keep_token", "kept_token", "logins_file", "normal_url"]

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_HEADING = "# Written by `agents login`. Whoever reads this can ask these servers in your name.\n"


def logins_file(environment: Mapping[str, str]) -> Path:
    """Where they are kept."""
    return user_file_path(environment).with_name("servers.toml")


def normal_url(text: str, said_by: str = "--server") -> str:
    """The server's address as it is kept and shown. `ConfigurationError` unless it is one."""
    parts = urlsplit(text.strip())
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise ConfigurationError(said_by, f"{text!r} is no URL that begins with http:// or https://")
    if parts.username or parts.password:  # guard: what is in a URL ends up in histories and logs
        raise ConfigurationError(said_by, "should hold no user or password; `agents login` keeps tokens")
    if parts.query or parts.fragment:
        raise ConfigurationError(said_by, "should end with the server's name, port or path")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/').removesuffix('/api')}"


def kept_token(file: Path, url: str) -> str | None:
    """The token for that server. `ConfigurationError` where the file cannot be read, or others can."""
    return _read(file).get(url)


def keep_token(file: Path, url: str, token: str) -> None:
    """The token is kept; one that was kept before is replaced."""
    _change(file, lambda known: {**known, url: token})


def forget_token(file: Path, url: str) -> bool:
    """Whether one was kept; it is not any more."""
    if url not in _read(file):
        return False
    _change(file, lambda known: {name: token for name, token in known.items() if name != url})
    return True


def _read(file: Path) -> dict[str, str]:
    try:
        descriptor = os.open(file, os.O_RDONLY | _FLAGS)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(str(file), f"cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigurationError(str(file), "is no file")
    with os.fdopen(descriptor, "rb") as opened:
        if os.fstat(descriptor).st_mode & 0o077:  # guard: a token that others can read is none
            raise ConfigurationError(str(file), "others can read it: chmod 600")
        try:
            known = tomllib.load(opened)["servers"]
            return {str(url): str(one["token"]) for url, one in known.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(str(file), f"is damaged; remove it and log in ({error})") from error


def _change(file: Path, changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Whoever changes it at the same time waits; who reads finds it whole."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(file.with_name(".servers.lock"), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    with os.fdopen(lock):
        fcntl.flock(lock, fcntl.LOCK_EX)  # guard: of two logins at once, both are kept
        text = _written(changed(_read(file)))
        draft = file.with_name(f".servers.{token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(descriptor)
            draft.replace(file)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def _written(known: Mapping[str, str]) -> str:
    # A string of JSON is one of TOML, too, for what a URL and a token are made of.
    tables = [f"\n[servers.{json.dumps(url)}]\ntoken = {json.dumps(known[url])}\n" for url in sorted(known)]
    return f"{_HEADING}{''.join(tables)}" if tables else f"{_HEADING}\n[servers]\n"
