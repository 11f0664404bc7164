"""Events of the audit log, through every client."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from cleveragents.api.client import Client
from cleveragents.api.events import EventView
from cleveragents.api.views import as_json
from cleveragents.core.errors import NotAllowed, RequestRefused
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.storage.outbox import append_to_outbox
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer


def happen(server: PlanServer, subject: str, event_type: EventType = EventType.PLAN_MOVED) -> None:
    container = server.bench.container
    event = DomainEvent(event_type, subject, container.identifiers.new(), container.clock.now(), {"n": 1})
    container.database.write(lambda connection: append_to_outbox(connection, event))


def ended_plan(server: PlanServer) -> str:
    """Return a plan of which no further event comes: its job has ended, which is an event, too."""
    plan = server.rested(server.command("true"))
    server.done({"id": plan["job"]})
    return str(plan["id"])


def end(client: Client) -> int:
    (last,) = client.events.list(limit=1).items
    return last.position


def test_events_are_listed_after_a_position_or_from_the_end(server: PlanServer, client: Client) -> None:
    plan, start = ended_plan(server), end(client)
    for _ in range(5):
        happen(server, plan)
    latest = client.events.list(limit=2)
    assert [one.position for one in latest.items] == [start + 4, start + 5]
    assert (latest.next, latest.warning) == (None, None)
    first = client.events.list(after=start, limit=3)
    assert ([one.position for one in first.items], first.next) == (
        [start + 1, start + 2, start + 3],
        start + 3,
    )
    rest = client.events.list(after=first.next, limit=3)
    assert ([one.position for one in rest.items], rest.next) == ([start + 4, start + 5], None)
    assert [as_json(one) for one in rest.items] == server.get("/events", after=start + 3)["items"]
    long = client.events.list(limit=100_000)
    assert long.items[-2:] == latest.items
    assert client.events.list(after=0, limit=100_000) == long


def test_events_are_listed_by_type_subject_and_plan(server: PlanServer, client: Client) -> None:
    plan = server.rested(server.command("true"))
    (created,) = client.events.list(plan=plan["id"], event_type="plan.created").items
    assert created.subject == plan["id"]
    subjects = {one.subject for one in client.events.list(plan=plan["id"], after=0, limit=1000).items}
    assert subjects == {plan["id"], plan["job"]}
    assert client.events.list(subject="nobody").items == ()
    assert client.events.list(subject="a\0b").items == ()


def test_events_are_followed_each_once(server: PlanServer, client: Client) -> None:
    plan, start = ended_plan(server), end(client)
    happen(server, plan)
    follow = client.events.follow(after=start)
    assert next(follow).position == start + 1
    happen(server, "nobody")  # of no project: for server admins
    happen(server, plan, EventType.PLAN_CORRECTED)
    happen(server, plan)
    found = list(islice(follow, 2))
    assert [one.position for one in found] == [start + 3, start + 4]
    assert found == list(client.events.list(after=start + 1).items)
    follow.close()
    only = client.events.follow(after=start, event_type="plan.corrected")
    assert next(only) == found[0]
    only.close()


def test_events_without_a_project_are_for_server_admins(
    server: PlanServer, client: Client, client_of: ClientOf
) -> None:
    happen(server, "nobody")
    assert client.events.list(subject="nobody").items == ()
    assert client.events.list(event_type="user.added", after=0).items == ()
    admin = client_of("admin")
    event: EventView = admin.events.list(subject="nobody").items[-1]
    assert event.facts == {"n": 1}
    added = admin.events.list(event_type="user.added", after=0).items
    assert [one.facts["name"] for one in added] == ["viewer", "operator", "admin"]


def test_the_log_is_verified_for_a_server_admin(
    server: PlanServer, client: Client, client_of: ClientOf
) -> None:
    with pytest.raises(NotAllowed) as caught:
        client.events.verify()
    assert caught.value.name == "operator"
    admin = client_of("admin")
    report = admin.events.verify()
    assert (report.ok, report.events, report.findings, report.anchors) == (True, end(admin), (), ())


def test_an_anchor_of_the_callers_is_for_the_owner_of_the_log(client: Client, tmp_path: Path) -> None:
    with pytest.raises((NotAllowed, RequestRefused)):
        client.events.verify(anchors=[str(tmp_path / "anchors.jsonl")])
