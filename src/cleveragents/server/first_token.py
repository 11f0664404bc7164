"""The first token of a server, with which an admin logs in to issue other tokens."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.core.errors import AlreadyThere, ConfigurationError

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["FirstToken", "adopt_token", "any_token_exists", "ensure_first_token", "token_file"]

ADMIN = "admin"
_LARGEST = 1024


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The file of the first token.

    `secret` is the token itself, set only by the call that created the token. Show it once, and only on a
    terminal. `lets_in`: the token in the file is valid.
    """

    file: Path
    secret: str | None
    lets_in: bool


def token_file(state_directory: Path) -> Path:
    """Return the file of the first token, readable only by its owner."""
    return state_directory / "server-token"


def any_token_exists(container: Container) -> bool:
    """Return whether any user has a token."""
    users = container.users
    return any(
        token.kind is TokenKind.PROGRAM for user in users.list() for token in users.tokens_of(user.name)
    )


def ensure_first_token(container: Container) -> FirstToken:
    """Create an admin and a token if no user has one yet.

    If a token file of an earlier database exists, its token is registered, so that programs which read the
    file keep their access. Raises `ConfigurationError`, `InvalidName`.
    """
    file = token_file(container.state_directory)
    if any_token_exists(container):
        return _kept(container, file)
    if file.exists():
        if not container.users.list():  # guard: a revoked token stays revoked
            adopt_token(container, file)
        return _kept(container, file)
    now = container.clock.now()
    name = _an_admin(container)
    token, secret = container.users.issue(name, TokenKind.PROGRAM, "created by the server", now=now)
    if not _write(file, secret):  # another server started at the same time
        container.users.revoke(token.id, now=now)
        return _kept(container, file)
    return FirstToken(file, secret, lets_in=True)


def adopt_token(container: Container, file: Path) -> None:
    """Register the token in `file` as the token of an admin. Raises `ConfigurationError`, `InvalidName`."""
    secret = _read(file)
    now = container.clock.now()
    if container.users.known_by(secret, TokenKind.PROGRAM, now=now) is not None:
        return
    name = _an_admin(container)
    try:
        container.users.issue(name, TokenKind.PROGRAM, f"from {file.name}", now=now, secret=secret)
    except AlreadyThere:  # another server started at the same time
        if container.users.known_by(secret, TokenKind.PROGRAM, now=now) is None:
            raise


def _kept(container: Container, file: Path) -> FirstToken:
    try:
        secret = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return FirstToken(file, None, lets_in=False)
    known = container.users.known_by(secret, TokenKind.PROGRAM, now=container.clock.now())
    return FirstToken(file, None, lets_in=known is not None)


def _an_admin(container: Container) -> str:
    found = next((user.name for user in container.users.list() if user.role is Role.ADMIN), None)
    if found is not None:
        return found
    try:
        return container.users.add(ADMIN, Role.ADMIN, now=container.clock.now()).name
    except AlreadyThere:  # added by another server, or with another role
        return container.users.set_role(ADMIN, Role.ADMIN, now=container.clock.now()).name


def _read(file: Path) -> str:
    try:
        with file.open(encoding="ascii") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:  # guard: a token must be secret
                raise ConfigurationError(str(file), "other users can read it: run chmod 600")
            return opened.read(_LARGEST).strip()
    except OSError as error:
        raise ConfigurationError(str(file), f"cannot read the token ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(file), "is not a token; it contains non-ASCII characters") from error


def _write(file: Path, secret: str) -> bool:
    """Write the file completely. Return False if it exists."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f".server-token.{token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as opened:
        opened.write(secret + "\n")
    try:
        os.link(draft, file)  # unlike a rename, a link never replaces a file
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True
