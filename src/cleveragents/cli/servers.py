"""The server of a command, and the tokens of servers.

`--server` or the settings select a server; without one, commands work on this machine. Tokens are stored in
one file beside the settings, readable only by its owner.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from cleveragents.api.transport import HttpTransport, problem_in
from cleveragents.core.errors import ConfigurationError

if TYPE_CHECKING:
    import httpx

    from cleveragents.cli.session import Session

__all__ = [
    "CommandTransport",
    "forget_token",
    "given_server",
    "keep_token",
    "kept_token",
    "logins_file",
    "normal_url",
    "prefix_in",
    "prefix_of",
    "refused_fields",
    "selected_url",
    "token_for",
]

_DIRECTLY = ("", "local")
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_HEADING = "# Written by `agents login`. These tokens give access to the servers with your permissions.\n"

_FIELDS = {
    "model": "--model",
    "limits.tokens": "--max-tokens",
    "limits.usd": "--max-usd",
    "limits.steps": "--max-steps",
    "limits.seconds": "--timeout",
    "limits": "--max-…",
    "commit": "--commit",
    "replace": "--replace",
    "force": "--yes",
    "discard": "--yes",
    "plan_id": "PLAN",
    "job_id": "JOB",
    "resource": "--resource",
    "goal": "the goal",
    "goals": "the file",
    "action": "--action",
    "arguments": "--arg",
    "actor": "--actor",
    "actor_yaml": "--actor",
    "profile": "--profile",
    "checks": "--check",
    "invariants": "--invariant",
    "max_parallel": "--parallel",
    "to_branch": "--to-branch",
    "reason": "--reason",
    "text": "the answer",
    "guidance": "--guidance",
    "decision": "DECISION",
    "call": "NUMBER",
    "path": "PATH",
    "accept": "PATHS",
    "reject": "PATHS",
    "accept_changesets": "--changeset",
    "reject_changesets": "--changeset",
    "question": "the question",
    "prompt": "--prompt",
    "at": "--at",
    "budget": "--budget",
    "deadline": "--deadline",
    "name": "NAME",
    "project": "--project",
    "remote": "--remote",
    "branch": "--branch",
    "label": "--label",
    "days": "--days",
    "yaml": "the file",
    "after": "--after",
    "limit": "--limit",
    "type": "--type",
    "state": "--state",
}
"""Fields of requests and the options they come from."""

_PLACES = ("body", "query", "path", "header")
_KIND = re.compile(r"^(Input|String|List|Dictionary) should ")
_PATTERN = re.compile(r"String should match pattern '.*'", re.DOTALL)


def given_server(ctx: click.Context) -> str | None:
    """Return the value of `--server`, or None."""
    said = ctx.find_root().params.get("server")
    return said if isinstance(said, str) else None


def selected_url(ctx: click.Context, session: Session) -> str | None:
    """Return the URL of the selected server; None for work on this machine. Raises `ConfigurationError`."""
    said = given_server(ctx)
    if said is None:
        said = session.configuration().settings.server.address
    return None if said in _DIRECTLY else normal_url(said)


def prefix_of(session: Session) -> str:
    """Return the beginning of a command line that uses the same server as this command: `agents`, with
    `--server` if needed.
    """
    return prefix_in(click.get_current_context())


def prefix_in(ctx: click.Context) -> str:
    """Return the prefix as `prefix_of` does. It also works after the command has ended."""
    said = given_server(ctx)
    if said is None or said in _DIRECTLY:
        return "agents"
    try:
        return f"agents --server {normal_url(said)}"
    except ConfigurationError:  # it is reported anyway
        return "agents"


def token_for(session: Session, url: str) -> str | None:
    """Return the token of `agents login`. If there is none and the server runs in this state directory,
    return its first token.
    """
    kept = kept_token(logins_file(os.environ), url)
    return kept or _own_token(Path(session.configuration().settings.state.directory), url)


def _own_token(state_directory: Path, url: str) -> str | None:
    from cleveragents.server.first_token import token_file
    from cleveragents.server.server_file import running_server

    running = running_server(state_directory)
    if running is None or running.url.rstrip("/") != url:  # guard: this token is for the own server only
        return None
    try:
        return token_file(state_directory).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def normal_url(text: str, said_by: str = "--server") -> str:
    """Return the URL of a server in its normal form. Raises `ConfigurationError` if it is not a URL."""
    parts = urlsplit(text.strip())
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise ConfigurationError(said_by, f"{text!r} is not a URL with http:// or https://")
    if parts.username or parts.password:  # guard: passwords in URLs end up in histories and logs
        raise ConfigurationError(said_by, "must not contain a user or password; use `agents login`")
    if parts.query or parts.fragment:
        raise ConfigurationError(said_by, "must end with the name, port or path of the server")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/').removesuffix('/api')}"


def logins_file(environment: Mapping[str, str]) -> Path:
    """Return the file of the tokens."""
    from cleveragents.config.loader import user_file_path

    return user_file_path(environment).with_name("servers.toml")


def kept_token(file: Path, url: str) -> str | None:
    """Return the token for the server. Raises `ConfigurationError` if the file is damaged or other users can
    read it.
    """
    return _read(file).get(url)


def keep_token(file: Path, url: str, token: str) -> None:
    """Store the token of the server, in place of an earlier one."""
    _change(file, lambda known: {**known, url: token})


def forget_token(file: Path, url: str) -> bool:
    """Remove the token of the server; return whether there was one."""
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
        raise ConfigurationError(str(file), "is not a file")
    with os.fdopen(descriptor, "rb") as opened:
        if os.fstat(descriptor).st_mode & 0o077:  # guard: a token that other users can read is refused
            raise ConfigurationError(str(file), "other users can read it: chmod 600")
        try:
            known = tomllib.load(opened)["servers"]
            return {str(url): str(one["token"]) for url, one in known.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(str(file), f"is damaged; remove it and log in ({error})") from error


def _change(file: Path, changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Replace the content of the file. Concurrent changes wait for each other; a reader finds the old file or
    the new one.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(file.with_name(".servers.lock"), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
    with os.fdopen(lock):
        fcntl.flock(lock, fcntl.LOCK_EX)  # guard: two logins at the same time are both stored
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
    # For the characters of URLs and tokens, a JSON string is also a TOML string.
    tables = [f"\n[servers.{json.dumps(url)}]\ntoken = {json.dumps(known[url])}\n" for url in sorted(known)]
    return f"{_HEADING}{''.join(tables)}" if tables else f"{_HEADING}\n[servers]\n"


class CommandTransport(HttpTransport):
    """A transport whose errors name options of the command line instead of fields of a request."""

    def problem_of(self, response: httpx.Response) -> Exception:
        said = problem_in(response)
        told = refused_fields(said.get("errors")) if said.get("code") == "invalid-request" else None
        return super().problem_of(response) if told is None else click.UsageError(told)


def refused_fields(errors: Any) -> str | None:
    """Return the problems of a request, option by option; None if the server does not name them."""
    if not isinstance(errors, Sequence) or isinstance(errors, str) or not errors:
        return None
    return "; ".join(_told(one) for one in errors if isinstance(one, Mapping)) or None


def _told(one: Mapping[str, Any]) -> str:
    steps = [str(step) for step in one.get("where", ())]
    inner = steps[1:] if steps and steps[0] in _PLACES else steps
    while inner and inner[-1].isdecimal():  # the place in a list
        inner = inner[:-1]
    path = ".".join(inner)
    field = _FIELDS.get(path) or _FIELDS.get(inner[-1] if inner else "") or path or "the request"
    said = _PATTERN.sub("has an invalid format", str(one.get("problem", "")))
    problem = _KIND.sub("should ", said).removeprefix("Value error, ")
    return f"{field}: {problem[:1].lower()}{problem[1:]}"
