"""Notifications over a webhook: one POST when a plan needs a person, and one when it ends.

The audit log is the queue. A thread of the server follows the log from a position that it stores in the
database after each delivery. So no notification is lost by a restart, a kill or a receiver that is down: it
is sent again until the receiver accepts it. Of several servers on one database, only the holder of a lease
sends. After a kill in the middle of a delivery, a notification may arrive twice, with the same `id`.

The URL comes from the configuration of the server alone. Redirects are not followed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import structlog

from cleveragents.api.client import LocalClient
from cleveragents.api.events import end_of_log, event_rows
from cleveragents.core.errors import UnknownPlan
from cleveragents.core.event import EventType
from cleveragents.jobs.service_thread import ServiceThread
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus
from cleveragents.storage.sql_delivery_store import SqlDeliveryStore

if TYPE_CHECKING:
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.app.container import Container
    from cleveragents.events.chain import LogRow

__all__ = ["WebhookNotifier", "webhook_notifications"]

_PAGE = 200
_POLL_SECONDS = 1.0
_SEND_SECONDS = 10.0
_LONGEST_RETRY_SECONDS = 300.0
_CLOSE_SECONDS = _SEND_SECONDS + 5.0
_RETRIED = (408, 425, 429)
_STATES = {
    state.value
    for state in (
        PlanState.WAITING,
        PlanState.COMPLETE,
        PlanState.ERRORED,
        PlanState.CONSTRAINED,
        PlanState.APPLIED,
        PlanState.CANCELLED,
    )
}
_ENDED = (PlanStatus.UNCHANGED, PlanStatus.APPLIED, PlanStatus.FAILED, PlanStatus.CANCELLED)

Send = Callable[[Mapping[str, object]], int]
"""Posts a JSON object and returns the status. Raises `httpx.HTTPError`, `httpx.InvalidURL`, `ValueError`."""

log = structlog.get_logger(__name__)


@contextmanager
def webhook_notifications(container: Container, address: str) -> Iterator[None]:
    """Send notifications while the block runs, if a webhook is configured. Plans are linked below `address`,
    or below `server.address`.
    """
    webhook = container.settings.notifications.webhook
    if not webhook:
        yield
        return
    with httpx.Client(timeout=_SEND_SECONDS, follow_redirects=False) as http:

        def send(body: Mapping[str, object]) -> int:
            return http.post(webhook, json=body).status_code

        notifier = WebhookNotifier(container, container.settings.server.address or address, send)
        thread = ServiceThread("webhook", notifier.step, pause_seconds=_POLL_SECONDS)
        thread.start()
        try:
            yield
        finally:
            thread.stop()
            if thread.join(_CLOSE_SECONDS):
                notifier.release()


class WebhookNotifier:
    """Sends the notifications of new events, in order, while no other notifier sends to the same webhook. Not
    thread-safe: one thread calls `step`.

    Cancel safety: a notification whose delivery was not recorded is sent again by the next process.
    """

    def __init__(self, container: Container, address: str, send: Send) -> None:
        self._container = container
        self._client = LocalClient(container)
        self._address = address.rstrip("/")
        self._send = send
        self._failures = 0
        self._deliveries = SqlDeliveryStore(container.database)
        # The path of a webhook is often its secret, so its digest names it.
        webhook = container.settings.notifications.webhook
        self._receiver = sha256(webhook.encode()).hexdigest()[:32]
        self._owner = container.identifiers.new()

    def step(self) -> float:
        """Send the notifications of new events. Return the pause before the next step, in seconds."""
        position = self._claimed()
        if position is None:  # guard: another server sends these notifications
            return _POLL_SECONDS
        rows = event_rows(self._container.database, after=position, limit=_PAGE)
        for row in rows:
            body = self._body(row)
            if body is None:
                continue
            # Renewed before each delivery, which may take long
            if self._claimed() != position:  # guard: another server may have sent it during a suspension
                return _POLL_SECONDS
            if not self._delivered(body):
                self._failures += 1
                return float(min(_LONGEST_RETRY_SECONDS, 2.0 ** min(self._failures - 1, 20)))
            self._failures = 0
            if not self._keep(row.position):
                return _POLL_SECONDS
            position = row.position
        if rows:
            self._keep(rows[-1].position)
        return 0.0 if len(rows) == _PAGE else _POLL_SECONDS

    def release(self) -> None:
        """Let another server send from now on."""
        self._deliveries.release(self._receiver, self._owner)

    def _delivered(self, body: Mapping[str, object]) -> bool:
        """Send a notification. Return whether it is settled: accepted, or refused for good."""
        try:
            status = self._send(body)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # httpx checks a URL only when it connects; a host may be no valid name (`UnicodeError`).
            self._complain(body, type(error).__name__)
            return False
        if status < 300:
            return True
        self._complain(body, f"status {status}")
        # One notification that the receiver never takes must not hold back all others
        return status < 500 and status not in _RETRIED

    def _complain(self, body: Mapping[str, object], problem: str) -> None:
        if self._failures == 0:
            # Only the host: the path of a webhook is often its secret.
            host = urlsplit(self._container.settings.notifications.webhook).hostname
            log.warning("webhook.not_delivered", host=host, plan_id=body["plan"], problem=problem)

    def _body(self, row: LogRow) -> Mapping[str, object] | None:
        """Return the notification of an event; None if there is none."""
        if row.event_type != EventType.PLAN_MOVED.value:
            return None
        facts = json.loads(row.payload)
        if facts.get("state") not in _STATES:
            return None
        try:
            plan = self._client.plans.summary(row.subject)
        except UnknownPlan:  # deleted meanwhile
            return None
        # A plan that moved on is reported by its later event.
        stands = (plan.phase.value, plan.state.value) == (facts.get("phase"), facts["state"])
        kind = _kind(plan) if stands else None
        if kind is None:
            return None
        return {
            "id": row.event_id,
            "type": kind,
            "plan": plan.id,
            "title": plan.title,
            "status": plan.status.value,
            "needs": plan.needs,
            "project": plan.project,
            "url": f"{self._address}/plans/{plan.id}",
        }

    def _claimed(self) -> int | None:
        """Return the position of the last settled event; None if another server sends. The first start begins
        at the end of the log.
        """
        start, now = end_of_log(self._container.database), self._container.clock.now()
        return self._deliveries.claim(self._receiver, self._owner, start=start, now=now)

    def _keep(self, position: int) -> bool:
        now = self._container.clock.now()
        return self._deliveries.keep(self._receiver, self._owner, position, now=now)


def _kind(plan: PlanSummary) -> str | None:
    """Return the type of the notification for the current status of a plan; None if there is none. The end of
    a sub-plan is not reported, because its parent reports the result.
    """
    if plan.needs is not None and plan.status is not PlanStatus.FAILED:
        return "plan.needs_you"
    if plan.status in _ENDED and plan.parent is None:
        return "plan.ended"
    return None
