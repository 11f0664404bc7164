"""Sessions of editors: which plans belong to which session, in files that survive restarts.

A session is one small file, replaced as a whole. Editors name sessions by their id, which they may have
stored for months; an id that is not one of ours is never used as a file name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex

from cleveragents.core.errors import RequestRefused

__all__ = ["SessionFiles", "StoredSession"]

_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")
_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session of an editor: its directory, and its plans, oldest first."""

    id: str
    cwd: str
    plans: tuple[str, ...] = ()


class SessionFiles:
    """The stored sessions of one user.

    Any thread and process may use it: a change holds a lock and begins with the stored state. Raises
    `OSError` if a file cannot be written.
    """

    def __init__(self, directory: Path, new_id: Callable[[], str]) -> None:
        self._directory = directory
        self._new_id = new_id

    def create(self, cwd: str) -> StoredSession:
        """Store a new session. Only the newest thousand sessions are kept."""
        session = StoredSession(self._new_id(), cwd)
        with self._locked():
            for old in sorted(self._directory.glob("*.json"), reverse=True)[_MOST_KEPT - 1 :]:
                old.unlink(missing_ok=True)
            self._keep(session)
        return session

    def get(self, session_id: str) -> StoredSession:
        """Return a session. Raises `RequestRefused` if it is unknown."""
        if not _ID.fullmatch(session_id):  # guard: an id of an editor is no path
            raise RequestRefused("there is no such session", "sessionId")
        try:
            stored = json.loads(self._file(session_id).read_text())
            plans = tuple(map(str, stored["plans"]))
            return StoredSession(session_id, str(stored["cwd"]), plans)
        except (OSError, ValueError, LookupError, TypeError):
            raise RequestRefused(f"there is no session {session_id}", "sessionId") from None

    def add_plan(self, session: StoredSession, plan_id: str) -> StoredSession:
        """Store that a plan belongs to the session."""
        with self._locked():
            stored = self._stored(session)
            plans = stored.plans if plan_id in stored.plans else (*stored.plans, plan_id)
            changed = replace(stored, plans=plans)
            self._keep(changed)
        return changed

    def newest(self, limit: int) -> list[StoredSession]:
        """Return the newest sessions that have plans, newest first."""
        found: list[StoredSession] = []
        for file in sorted(self._directory.glob("*.json"), reverse=True):
            try:
                session = self.get(file.stem)
            except RequestRefused:
                continue
            if session.plans:
                found.append(session)
            if len(found) == limit:
                break
        return found

    def _stored(self, session: StoredSession) -> StoredSession:
        """Return the present state; the given one if the file was removed, as one of the oldest."""
        try:
            return self.get(session.id)
        except RequestRefused:
            return session

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._directory / ".lock", flags, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # guard: two processes change a session one after another
            yield

    def _keep(self, session: StoredSession) -> None:
        new = self._directory / f".{session.id}.{token_hex(8)}"
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(asdict(session), file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._file(session.id))
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _file(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.json"
