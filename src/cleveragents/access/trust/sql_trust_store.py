"""Trust in a database: one row per trusted file and content."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from sqlalchemy import BindParameter, Connection, bindparam, delete, select

from cleveragents.access.trust.repository_files import (
    RepositoryFile,
    TrustedContent,
    TrustSurvey,
    read_inside,
    repository_paths,
)
from cleveragents.core.clock import Clock, SystemClock
from cleveragents.core.errors import ConfigurationError
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.storage.columns import is_storable, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.tables import trusts

__all__ = ["SqlTrustStore"]

_PATHS: BindParameter[str] = bindparam("paths", expanding=True)
_KNOWN = select(trusts.c.path, trusts.c.digest).where(trusts.c.path.in_(_PATHS))
_ALL = select(trusts).order_by(trusts.c.path, trusts.c.trusted_at)
_FORGET = delete(trusts).where(trusts.c.path.in_(_PATHS))


class SqlTrustStore:
    """Trust by path and content: a file that changed or moved needs trust again. Stateless except for the
    database, so any thread may share it.

    `remote_of` returns the remote of a checkout: trust applies to all checkouts of that remote, on every
    machine, as long as the content is the same.
    """

    def __init__(
        self,
        database: Database,
        identifiers: IdentifierSource,
        clock: Clock | None = None,
        remote_of: Callable[[Path], str | None] = lambda root: None,
    ) -> None:
        self._database = database
        self._identifiers = identifiers
        self._clock = clock or SystemClock()
        self._remote_of = remote_of

    def look(self, root: Path, relative: str) -> RepositoryFile | None:
        """Return the file with its current content, and whether this content is trusted; None if the file
        does not exist.

        Raises `ConfigurationError` for a file that leads out of the root, is not regular or is too large.
        """
        content = read_inside(root, relative)
        if content is None:
            return None
        return self._judged(root, [(relative, content)])[0]

    def survey(self, root: Path) -> TrustSurvey:
        """Return all files below the root that need trust."""
        paths, refused = repository_paths(root)
        read: list[tuple[str, bytes]] = []
        for path in paths:
            try:
                content = read_inside(root, path)
            except ConfigurationError as error:
                refused.append((path, error.problem))
                continue
            if content is not None:
                read.append((path, content))
        return TrustSurvey(root, tuple(self._judged(root, read)), tuple(refused))

    def give(self, root: Path, files: Sequence[RepositoryFile]) -> Sequence[str]:
        """Trust these contents as they were read: a file that changed since is not trusted.

        Return the paths that were not trusted before. The trust and its event are stored in one transaction.
        """
        now = self._clock.now()
        rows = [
            {"path": self._key(root, file.path), "digest": file.digest, "trusted_at": microseconds(now)}
            for file in files
        ]
        event_id = self._identifiers.new()

        def unit(connection: Connection) -> list[str]:
            fresh: list[str] = []
            new = insert_into(trusts, connection.dialect.name)
            insert = new.on_conflict_do_nothing().returning(trusts.c.path)
            for file, row in zip(files, rows, strict=True):
                if connection.execute(insert, row).first() is not None:
                    fresh.append(file.path)
            if fresh:  # guard: no event without a change
                facts = _facts(file for file in files if file.path in fresh)
                subject = _kept(self._place(root))
                append_to_outbox(
                    connection, DomainEvent(EventType.TRUST_GIVEN, subject, event_id, now, facts)
                )
            return fresh

        return self._database.write(unit)

    def list(self) -> Sequence[TrustedContent]:
        """Return all trusted contents by path."""
        with self._database.read() as connection:
            rows = connection.execute(_ALL).all()
        return [TrustedContent(_path(row.path), row.digest, moment(row.trusted_at)) for row in rows]

    def revoke(self, path: Path) -> Sequence[str]:
        """Revoke the trust in all files at or below that path; return the files that were trusted."""
        # A missing file can be revoked too; a link matches by its own name and by its target.
        wanted = (Path(self._place(path)), Path(os.path.realpath(path.parent)) / path.name)
        now, event_id = self._clock.now(), self._identifiers.new()

        def unit(connection: Connection) -> list[str]:
            kept = connection.execute(select(trusts.c.path).distinct()).scalars()
            gone = sorted(key for key in kept if any(Path(_path(key)).is_relative_to(at) for at in wanted))
            if gone:
                connection.execute(_FORGET, {"paths": gone})
                event = DomainEvent(
                    EventType.TRUST_REVOKED, _kept(str(wanted[0])), event_id, now, {"paths": gone}
                )
                append_to_outbox(connection, event)
            return [_path(key) for key in gone]

        return self._database.write(unit)

    def _place(self, root: Path) -> str:
        real = os.path.realpath(root)
        return self._remote_of(Path(real)) or real

    def _key(self, root: Path, relative: str) -> str:
        return _kept(f"{self._place(root).rstrip('/')}/{relative}")

    def _judged(self, root: Path, read: Sequence[tuple[str, bytes]]) -> Sequence[RepositoryFile]:
        keys = [self._key(root, path) for path, _ in read]
        with self._database.read() as connection:
            known = {(row.path, row.digest) for row in connection.execute(_KNOWN, {"paths": keys})}
        judged: list[RepositoryFile] = []
        for key, (path, content) in zip(keys, read, strict=True):
            digest = sha256(content).hexdigest()
            judged.append(RepositoryFile(path, digest, content, (key, digest) in known))
        return judged


def _facts(files: Iterable[RepositoryFile]) -> dict[str, JsonValue]:
    return {"files": [{"path": _kept(file.path), "digest": file.digest} for file in files]}


def _kept(path: str) -> str:
    """Return the path in a form that every database can store. A path that is not valid Unicode becomes JSON,
    which begins with a quote.
    """
    return path if is_storable(path) else json.dumps(path)


def _path(kept: str) -> str:
    if not kept.startswith('"'):
        return kept
    path: str = json.loads(kept)
    return path
