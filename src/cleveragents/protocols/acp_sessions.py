"""Sessions of editors: which plans belong to which session, in files that survive restarts.

A session is one small file, replaced as a whole. Editors name sessions by their id, which they may have
stored for months; an id that is not one of ours is never used as a file name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

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

    Not thread-safe for one session: its turns run one after another. Two processes that write the same
    session leave the state of one of them; the plans themselves are stored elsewhere and never lost.
    """

    def __init__(self, directory: Path, new_id: Callable[[], str]) -> None:
        self._directory = directory
        self._new_id = new_id

    def create(self, cwd: str) -> StoredSession:
        """Store a new session. Only the newest thousand sessions are kept."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(self._directory.glob("*.json"), reverse=True)[_MOST_KEPT - 1 :]:
            old.unlink(missing_ok=True)
        session = StoredSession(self._new_id(), cwd)
        self._keep(session)
        return session

    def get(self, session_id: str) -> StoredSession:
        """Return a session. Raises `RequestRefused` if it is unknown."""
        if not _ID.fullmatch(session_id):  # guard: an id of an editor is no path
            raise RequestRefused("there is no such session", "sessionId")
        try:
            stored = json.loads(self._file(session_id).read_text())
            return StoredSession(session_id, str(stored["cwd"]), tuple(map(str, stored["plans"])))
        except (OSError, ValueError, LookupError, TypeError):
            raise RequestRefused(f"there is no session {session_id}", "sessionId") from None

    def add_plan(self, session: StoredSession, plan_id: str) -> StoredSession:
        """Store that a plan belongs to the session."""
        changed = replace(session, plans=(*session.plans, plan_id))
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

    def _keep(self, session: StoredSession) -> None:
        new = self._directory / f".{session.id}.new"
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(session), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file(session.id))

    def _file(self, session_id: str) -> Path:
        return self._directory / f"{session_id}.json"
