"""Events of the audit log: list, follow and verify them. Views are masked; positions are cursors."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from cleveragents.api.format import printable_value, timestamp
from cleveragents.api.views import ServerResponse, shown, understood, view, view_of
from cleveragents.core.errors import AuditLogBroken, RequestRefused
from cleveragents.core.text.redaction import known_values, redact

if TYPE_CHECKING:
    from pathlib import Path

    from cleveragents.access.model.user import ProjectScope
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.events.chain import LogRow
    from cleveragents.events.verification import AuditReport
    from cleveragents.storage.database import Database

__all__ = [
    "AnchorView",
    "EventPage",
    "EventView",
    "Events",
    "HttpEvents",
    "LocalEvents",
    "LogFindingView",
    "VerificationView",
    "end_of_log",
    "event_rows",
    "event_view",
    "fields_of_row",
]

_PAGE = 1000
_LOOK_SECONDS = 0.2


@view
class EventView:
    """An event at its position in the audit log."""

    position: int = shown(examples=[1207])
    time: datetime | None = shown("null if the event was changed", examples=["2026-01-01T12:00:00Z"])
    type: str = shown(examples=["plan.moved"])
    subject: str = shown("the id of a plan, job or user", examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])
    facts: dict[str, Any] = shown(
        examples=[{"phase": "execute", "state": "complete", "was": "execute/processing"}]
    )
    event_id: str = shown(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"])
    hash: str = shown("hash that chains the event to the one before")


@view
class EventPage:
    """A page of the log."""

    items: tuple[EventView, ...] = shown()
    next: int | None = shown("`after` of the next page; null at the end")
    warning: str | None = shown(
        "why the log is broken, if this request noticed it; a verification lists all problems",
        examples=[None],
    )


@view
class LogFindingView:
    """A difference between the log and its original content."""

    position: int | None = shown("position of the event; null for a problem of the log's head")
    problem: str = shown()


@view
class AnchorView:
    """The number of events that anchors cover. Anchors are stored outside the machine."""

    target: str = shown(examples=["https://anchors.example/build-1"])
    anchors: int = shown("number of valid anchors", examples=[12])
    events: int = shown("number of events, counted from the first, that anchors cover", examples=[1200])
    time: str | None = shown(
        "time of the anchor that covers the most events; null if no anchor matches",
        examples=["2026-01-01T12:00:00Z"],
    )


@view
class VerificationView:
    """The result of a verification: intact, or the findings."""

    ok: bool = shown()
    events: int = shown(examples=[1207])
    findings: tuple[LogFindingView, ...] = shown()
    anchors: tuple[AnchorView, ...] = shown("one entry for each target of audit.anchor")


class Events(Protocol):
    """The events of the acting user's projects; a server admin sees all of them."""

    def list(
        self,
        *,
        after: int | None = None,
        limit: int = 100,
        event_type: str | None = None,
        subject: str | None = None,
        plan: str | None = None,
    ) -> EventPage:
        """Return the first events after a position, or the latest events if `after` is None, in order.

        With `plan`, return the events of the plan and of its jobs.
        """

    def follow(self, *, after: int | None = None, event_type: str | None = None) -> Iterator[EventView]:
        """Yield events as they happen, after a position or from now on, until the iterator is closed.

        Each event comes exactly once, even across a broken connection and a restart of the server. Raises
        `ServerUnreachable` if the server does not come back, `NotAuthenticated`, `AuditLogBroken`.
        """

    def verify(
        self, *, anchors: Sequence[str] = (), public_keys: Sequence[Path] = (), use_head: bool = True
    ) -> VerificationView:
        """Verify the whole log and return every event that was changed, removed, moved or cut off.

        With the setting `audit.anchor`, or with `anchors` signed by `public_keys`, the log is also compared
        with the anchors outside the machine. In this case, the stored head of the log is used only if
        `use_head` is set. A server uses its own anchors and refuses others (`RequestRefused`). Raises
        `NotAllowed` unless the user is a server admin.
        """


class LocalEvents:
    """The audit log in the database of this process. Any thread may use it.

    `sleep` raises `Closed` when the client is closed.
    """

    def __init__(self, access: Access, sleep: Callable[[float], None] = time.sleep) -> None:
        self._access = access
        self._sleep = sleep

    def list(
        self,
        *,
        after: int | None = None,
        limit: int = 100,
        event_type: str | None = None,
        subject: str | None = None,
        plan: str | None = None,
    ) -> EventPage:
        from cleveragents.api.jobs import job_ids_of

        container, warning = self._access.container, None
        try:
            container.audit.sequence_pending()
        except AuditLogBroken as broken:
            # A broken log can still be read, but not trusted.
            warning = str(broken)
        if any("\0" in text for text in (event_type or "", subject or "")):  # no database stores such a text
            return EventPage(items=(), next=None, warning=warning)
        rows = event_rows(
            container.database,
            after=after,
            limit=limit + 1,
            type_name=event_type,
            subject=subject,
            subjects=None if plan is None else (plan, *job_ids_of(container.database, plan)),
            scope=self._access.scope,
        )
        more = after is not None and len(rows) > limit
        items = tuple(map(_view_of_row, rows[-limit:] if after is None else rows[:limit]))
        return EventPage(items=items, next=items[-1].position if more else None, warning=warning)

    def follow(self, *, after: int | None = None, event_type: str | None = None) -> Iterator[EventView]:
        container = self._access.container
        database, audit = container.database, container.audit
        audit.sequence_pending()
        position = end_of_log(database) if after is None else after
        while True:
            end = end_of_log(database)  # read first: the query then finds all events up to it
            rows = event_rows(
                database, after=position, limit=_PAGE, type_name=event_type, scope=self._access.scope
            )
            yield from map(_view_of_row, rows)
            if len(rows) == _PAGE:
                position = rows[-1].position
            else:
                position = max(position, end, rows[-1].position if rows else 0)
                self._sleep(0 if rows else _LOOK_SECONDS)
            audit.sequence_pending()

    def verify(
        self, *, anchors: Sequence[str] = (), public_keys: Sequence[Path] = (), use_head: bool = True
    ) -> VerificationView:
        self._access.ensure_server_admin()
        container = self._access.container
        compared = anchors or container.settings.audit.anchor
        read = container.anchors.read(anchors, public_keys) if compared else []
        return _verification(container.audit.verify(read, use_head=use_head))


class HttpEvents:
    """The audit log of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self,
        *,
        after: int | None = None,
        limit: int = 100,
        event_type: str | None = None,
        subject: str | None = None,
        plan: str | None = None,
    ) -> EventPage:
        wanted = {"type": event_type, "subject": subject, "plan": plan}
        if after is None and limit <= _PAGE:
            return _page(self._http.get("/events", limit=limit, **wanted))
        # The latest events are found from the beginning: a server returns 1,000 at a time.
        latest, start = after is None, after or 0
        kept: deque[EventView] = deque(maxlen=limit)
        while True:
            asked = _PAGE if latest else min(limit - len(kept), _PAGE)
            page = _page(self._http.get("/events", limit=asked, after=start, **wanted))
            kept.extend(page.items)
            if page.next is None or (not latest and len(kept) >= limit):
                return EventPage(items=tuple(kept), next=page.next, warning=page.warning)
            with understood():
                if page.next <= start:  # guard: this would never end
                    raise ValueError("the server sent the same page of events twice")
            start = page.next

    def follow(self, *, after: int | None = None, event_type: str | None = None) -> Iterator[EventView]:
        from cleveragents.api.event_stream import Follower

        with understood():
            for frame in Follower(self._http, after).frames():
                if frame.kind not in ("", "output") and event_type in (None, frame.kind):
                    yield event_view(frame.data)

    def verify(
        self, *, anchors: Sequence[str] = (), public_keys: Sequence[Path] = (), use_head: bool = True
    ) -> VerificationView:
        if anchors or public_keys or not use_head:
            raise RequestRefused("the server compares the log with its own audit.anchor", "anchors")
        report = self._http.get("/events/verification")
        report.setdefault("anchors", ())  # a server of 0.1.0 has none
        return view_of(VerificationView, report)


def _page(said: ServerResponse) -> EventPage:
    with understood(said.status):
        items = tuple(event_view(item) for item in said["items"])
    return EventPage(items=items, next=said["next"], warning=said.get("warning"))


def event_view(said: Mapping[str, Any]) -> EventView:
    try:
        moment = None if said["time"] is None else datetime.fromisoformat(said["time"])
    except ValueError:  # tampered with
        moment = None
    facts = said["facts"] if isinstance(said["facts"], dict) else {}
    return EventView(
        position=said["position"],
        time=moment,
        type=said["type"],
        subject=said["subject"],
        facts=facts,
        event_id=said["event_id"],
        hash=said["hash"],
    )


def _view_of_row(row: LogRow) -> EventView:
    said = printable_value(fields_of_row(row))
    assert isinstance(said, dict)
    return event_view(said)


def _verification(report: AuditReport) -> VerificationView:
    return VerificationView(
        ok=report.ok,
        events=report.rows,
        findings=tuple(
            LogFindingView(position=found.position, problem=found.problem) for found in report.findings
        ),
        anchors=tuple(
            AnchorView(target=each.source, anchors=each.anchors, events=each.events, time=each.time)
            for each in report.coverage
        ),
    )


def fields_of_row(row: LogRow) -> dict[str, object]:
    """Return the JSON of a stored event. The type of the event may be unknown to this version."""
    try:
        moment = timestamp(datetime.fromisoformat(row.occurred_at))
        facts = _masked(json.loads(row.payload))
    except ValueError:  # tampered with: `verify` reports it, and reading continues
        moment, facts = row.occurred_at, {}
    return {
        "position": row.position,
        "time": moment,
        "type": row.event_type,
        "subject": row.subject,
        "facts": facts,
        "event_id": row.event_id,
        "hash": row.hash,
    }


def _masked(payload: object) -> object:
    """Mask a value as `redact` does. Short values repeat often and are cached."""
    if not isinstance(payload, dict):
        return redact(payload)
    known = hash(known_values())  # not the values: the cache outlives their owner
    masked: dict[str, object] = {}
    for name, value in payload.items():
        if value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) <= 40):
            masked |= _masked_item(name, type(value).__name__, value, known)
        else:
            masked |= _items(name, value)
    return masked


@lru_cache(maxsize=4096)
def _masked_item(name: str, kind: str, value: str | int | None, known: int) -> dict[str, object]:
    # `kind`, because 1 and True are equal.
    return _items(name, value)


def _items(name: str, value: object) -> dict[str, object]:
    found = redact({name: value})
    assert isinstance(found, dict)
    return found


def end_of_log(database: Database) -> int:
    """Return the position of the last event; 0 for an empty log."""
    from sqlalchemy import func, select

    from cleveragents.storage.tables import events

    with database.read() as connection:
        return connection.execute(select(func.max(events.c.position))).scalar() or 0


def event_rows(
    database: Database,
    *,
    after: int | None,
    limit: int,
    type_name: str | None = None,
    subject: str | None = None,
    subjects: Collection[str] | None = None,
    scope: ProjectScope = None,
) -> Sequence[LogRow]:
    """Return the first `limit` matching events after a position, or the last `limit` matching events if
    `after` is None, in order.
    """
    from sqlalchemy import select

    from cleveragents.access.store.sql_project_store import project_of_event
    from cleveragents.events.sequencer import log_rows
    from cleveragents.storage.tables import events

    query = select(events).limit(limit)
    if scope is not None:
        query = query.where(project_of_event(database.dialect).in_(scope))
    if type_name is not None:
        query = query.where(events.c.event_type == type_name)
    if subject is not None:
        query = query.where(events.c.subject == subject)
    if subjects is not None:
        query = query.where(events.c.subject.in_(subjects))
    if after is not None:
        query = query.where(events.c.position > after).order_by(events.c.position)
    else:
        query = query.order_by(events.c.position.desc())
    with database.read() as connection:
        rows = log_rows(connection, query)
    return rows if after is not None else rows[::-1]
