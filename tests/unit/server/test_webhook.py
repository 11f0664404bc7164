"""Notifications over a webhook: each is delivered, whatever the receiver and the server do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
from sqlalchemy import Delete, Update, delete, select, update

from cleveragents.config.service_settings import NotificationSettings
from cleveragents.events.chain import LogRow
from cleveragents.server.webhook import WebhookNotifier
from cleveragents.storage.service_tables import deliveries
from cleveragents.storage.sql_delivery_store import SqlDeliveryStore
from tests.server_plan_bench import PlanServer, plan_server


class Receiver:
    """Answers with the given statuses or errors, then with 200; keeps what it accepted."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = [*answers]
        self.accepted: list[Mapping[str, Any]] = []

    def __call__(self, body: Mapping[str, Any]) -> int:
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        if answer < 300:
            self.accepted.append(body)
        return answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("webhook")) as made:
        yield made


@pytest.fixture(autouse=True)
def from_now_on(server: PlanServer) -> None:
    changed(server, delete(deliveries))
    first = notifier(server, Receiver())
    first.step()
    first.release()


def notifier(server: PlanServer, receiver: Callable[[Mapping[str, Any]], int]) -> WebhookNotifier:
    return WebhookNotifier(server.bench.container, "https://agents.example/", receiver)


def changed(server: PlanServer, statement: Delete | Update) -> None:
    server.bench.container.database.write(lambda connection: connection.execute(statement))


def killed(server: PlanServer) -> None:
    """The process that sends is gone, and its lease has run out."""
    changed(server, update(deliveries).values(leased_until=0))


def done(server: PlanServer, script: str = "echo x > new.txt", **more: Any) -> str:
    plan = server.rested(server.command(script, **{"apply": "review", **more}))
    server.bench.container.audit.sequence_pending()
    return str(plan["id"])


def test_a_plan_that_needs_a_person_is_reported_once(server: PlanServer) -> None:
    receiver = Receiver()
    plan_id = done(server, goal="Write a file")
    notifier(server, receiver).step()
    killed(server)
    notifier(server, receiver).step()  # also after a restart
    (told,) = receiver.accepted
    assert {name: told[name] for name in ("type", "plan", "title", "status", "needs", "url")} == {
        "type": "plan.needs_you",
        "plan": plan_id,
        "title": "Write a file",
        "status": "ready",
        "needs": "review",
        "url": f"https://agents.example/plans/{plan_id}",
    }


def test_the_end_of_a_plan_is_reported(server: PlanServer) -> None:
    receiver = Receiver()
    done(server, "true")
    failed = done(server, "exit 3")
    notifier(server, receiver).step()
    assert [(one["type"], one["status"]) for one in receiver.accepted] == [
        ("plan.ended", "unchanged"),
        ("plan.ended", "failed"),
    ]
    assert receiver.accepted[1]["plan"] == failed


def test_nothing_is_lost_while_the_receiver_is_down(server: PlanServer) -> None:
    receiver = Receiver(httpx.ConnectError("refused"), 503, 429, httpx.InvalidURL("bad"), UnicodeError("bad"))
    one, two = done(server), done(server)
    sender = notifier(server, receiver)
    pauses = [sender.step() for _ in range(5)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert receiver.accepted == []
    killed(server)
    notifier(server, receiver).step()  # another process goes on where the first one was killed
    assert [told["plan"] for told in receiver.accepted] == [one, two]


def test_a_notification_that_is_refused_for_good_does_not_hold_back_the_next(server: PlanServer) -> None:
    receiver = Receiver(400)
    done(server)
    later = done(server)
    notifier(server, receiver).step()
    assert [told["plan"] for told in receiver.accepted] == [later]


def test_a_delivery_that_was_not_recorded_is_repeated_with_the_same_id(
    server: PlanServer,
) -> None:
    receiver = Receiver()
    done(server)
    with server.bench.container.database.read() as connection:
        before = connection.execute(select(deliveries.c.position)).scalar_one()
    notifier(server, receiver).step()
    # As after a kill between the delivery and its record.
    changed(server, update(deliveries).values(position=before, leased_until=0))
    notifier(server, receiver).step()
    assert len(receiver.accepted) == 2
    assert receiver.accepted[0] == receiver.accepted[1]


def test_secrets_are_masked(server: PlanServer) -> None:
    secret = "sk-proj-" + "Zq9T" * 10
    receiver = Receiver()
    done(server, goal=f"Use {secret}")
    notifier(server, receiver).step()
    assert secret not in str(receiver.accepted)


def test_of_two_servers_on_one_database_one_sends(server: PlanServer) -> None:
    """The other server looks while a delivery is in progress: a position that is only read and written would
    make it send the same notification.
    """
    receiver = Receiver()
    other = notifier(server, receiver)

    def send(body: Mapping[str, Any]) -> int:
        other.step()
        return receiver(body)

    sender = notifier(server, send)
    one, two = done(server), done(server)
    sender.step()
    other.step()
    assert [told["plan"] for told in receiver.accepted] == [one, two]
    sender.release()
    later = done(server)
    other.step()
    sender.step()
    assert [told["plan"] for told in receiver.accepted] == [one, two, later]


def test_a_server_that_lost_its_lease_during_a_delivery_records_nothing(server: PlanServer) -> None:
    receiver = Receiver()
    other = notifier(server, receiver)

    def slow(body: Mapping[str, Any]) -> int:
        killed(server)  # it takes longer than the lease
        other.step()
        return 503

    sender = notifier(server, slow)
    one, two = done(server), done(server)
    sender.step()
    sender.step()
    assert [told["plan"] for told in receiver.accepted] == [one, two]


def test_a_suspended_server_neither_repeats_nor_moves_back(
    server: PlanServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server sends all and releases the lease between the first look of the sender and its first
    delivery. Without a comparison of the positions, the sender repeats what was sent.
    """
    receiver = Receiver()
    other, sender = notifier(server, receiver), notifier(server, receiver)
    plans = [done(server), done(server)]
    body_of, rows = sender._body, []

    def suspended(row: LogRow) -> Mapping[str, object] | None:
        if not rows:
            killed(server)
            other.step()
            other.release()
        rows.append(row)
        return body_of(row)

    monkeypatch.setattr(sender, "_body", suspended)
    sender.step()
    assert [told["plan"] for told in receiver.accepted] == plans
    sender.step()
    assert [told["plan"] for told in receiver.accepted] == plans


def test_a_position_never_moves_back(server: PlanServer) -> None:
    container = server.bench.container
    store, now = SqlDeliveryStore(container.database), container.clock.now()
    assert store.claim("receiver", "owner", start=5, now=now) == 5
    assert store.keep("receiver", "owner", 7, now=now)
    assert not store.keep("receiver", "owner", 6, now=now)
    assert store.claim("receiver", "owner", start=0, now=now) == 7
    assert store.keep("receiver", "owner", 7, now=now), "the same position renews the lease"


def test_old_events_are_not_reported_at_the_first_start(server: PlanServer) -> None:
    done(server)
    changed(server, delete(deliveries))
    receiver = Receiver()
    notifier(server, receiver).step()
    assert receiver.accepted == []


@pytest.mark.parametrize("url", ["ftp://x", "file:///etc/passwd", "example.com/hook"])
def test_a_webhook_must_be_a_web_address(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        NotificationSettings(webhook=url)


@pytest.mark.parametrize("url", ["http://a..b/", f"https://{'a' * 64}.example/"])
def test_a_webhook_must_have_a_valid_host(url: str) -> None:
    with pytest.raises(ValueError, match="valid host"):
        NotificationSettings(webhook=url)
