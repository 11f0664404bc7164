"""Events and output over HTTP: listed, verified, streamed, masked, and only for who may see them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import httpx
import msgspec
import pytest

from cleveragents.access.model.user import TokenKind
from cleveragents.api.events import fields_of_row
from cleveragents.api.format import timestamp
from cleveragents.config.service_settings import AuditSettings
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.text.redaction import KnownSecrets, redact
from cleveragents.events.chain import LogRow
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.server.streams import stream as stream_module
from cleveragents.storage.outbox import append_to_outbox
from tests.live_server import SECONDS, events_in, served, stream
from tests.server_bench import ServerBench, server_bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server")) as opened:
        yield opened


@pytest.fixture(scope="module")
def base(bench: ServerBench) -> Iterator[str]:
    with served(bench) as address:
        yield address


def happen(bench: ServerBench, subject: str, **facts: str) -> None:
    container = bench.container
    event = DomainEvent(
        EventType.PLAN_MOVED, subject, container.identifiers.new(), container.clock.now(), dict(facts)
    )
    container.database.write(lambda connection: append_to_outbox(connection, event))


def plan(bench: ServerBench) -> Plan:
    return bench.container.plan_parts.plans.create(
        PlanDraft("g", "a/b", "/r"), now=bench.container.clock.now()
    )


def end(bench: ServerBench) -> int:
    (last,) = bench.admin.get("/api/events", params={"limit": 1}).json()["items"]
    return int(last["position"])


def test_events_are_listed_after_a_position_or_from_the_end(bench: ServerBench) -> None:
    start = end(bench)
    for number in range(5):
        happen(bench, f"s{number}")
    latest = bench.admin.get("/api/events", params={"limit": 2}).json()
    assert [item["subject"] for item in latest["items"]] == ["s3", "s4"]
    assert latest["next"] is None
    first = bench.admin.get("/api/events", params={"after": start, "limit": 3}).json()
    assert [item["subject"] for item in first["items"]] == ["s0", "s1", "s2"]
    assert first["next"] == start + 3
    rest = bench.admin.get("/api/events", params={"after": first["next"], "limit": 3}).json()
    assert [item["subject"] for item in rest["items"]] == ["s3", "s4"]
    assert rest["next"] is None


def test_events_are_listed_by_type_and_subject(bench: ServerBench) -> None:
    happen(bench, "only")
    asked = {"subject": "only", "type": "plan.moved"}
    assert len(bench.admin.get("/api/events", params=asked).json()["items"]) == 1
    assert bench.admin.get("/api/events", params=asked | {"type": "job.failed"}).json()["items"] == []
    assert bench.admin.get("/api/events", params=asked | {"subject": "a\0b"}).json()["items"] == []
    mine = bench.admin.get("/api/events", params={"type": "user.added", "after": 0}).json()["items"]
    assert [item["facts"]["name"] for item in mine] == ["viewer", "operator", "admin"]


def test_a_row_has_the_same_json_as_its_record(bench: ServerBench) -> None:
    happen(bench, "s", note="password=hunter2hunter2", path="a\ud800b".encode("utf-8", "replace").decode())
    position = end(bench)
    (record,) = bench.container.audit.read(after=position - 1)
    (row,) = bench.admin.get("/api/events", params={"after": position - 1}).json()["items"]
    event = record.event
    assert row == {
        "position": record.position,
        "time": timestamp(event.occurred_at),
        "type": event.event_type.value,
        "subject": event.subject,
        "facts": json.loads(json.dumps(redact(event.payload), default=dict)),
        "event_id": event.event_id,
        "hash": record.hash,
    }
    assert "hunter2" not in json.dumps(row)


def test_the_mask_cache_does_not_mix_up_equal_values() -> None:
    def facts(payload: str) -> object:
        row = LogRow(1, "id", "t", "s", "2026-01-01T00:00:00+00:00", payload, "h", "h")
        return fields_of_row(row)["facts"]

    assert facts('{"n": 1, "of": true}') == {"n": 1, "of": True}
    assert json.dumps(facts('{"n": true, "of": 1}')) == '{"n": true, "of": 1}'
    assert facts('{"secret": 1, "path": null}') == {"secret": "***", "path": None}
    assert facts('["token=abcdefgh1234"]') == ["token=***"]
    secret = "a-word-that-is-kept"
    assert facts(f'{{"said": "{secret}"}}') == {"said": secret}
    secrets = KnownSecrets()
    secrets.add(secret)
    assert facts(f'{{"said": "{secret}"}}') == {"said": "***"}
    assert facts(f'{{"said": "{"x " * 50}{secret}"}}') == {"said": f"{'x ' * 50}***"}
    secrets.forget()
    secrets.add("another-word-that-is-kept")
    assert facts('{"said": "another-word-that-is-kept"}') == {"said": "***"}


def test_a_row_that_was_tampered_with_can_still_be_looked_at(bench: ServerBench) -> None:
    row = LogRow(1, "id", "from.the-future", "s", "yesterday", "{not json", "h", "h")
    assert fields_of_row(row)["facts"] == {}
    assert fields_of_row(row)["time"] == "yesterday"


def test_the_log_is_verified(bench: ServerBench) -> None:
    report = bench.admin.get("/api/events/verification").json()
    assert report == {"ok": True, "events": end(bench), "findings": [], "anchors": []}


def test_the_log_is_verified_with_the_anchor_of_the_settings(
    bench: ServerBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, container = tmp_path / "outside.jsonl", bench.container
    audit = AuditSettings(anchor=str(target))
    monkeypatch.setattr(container, "settings", msgspec.structs.replace(container.settings, audit=audit))
    written = container.anchors.write()
    assert written is not None
    report = bench.admin.get("/api/events/verification").json()
    covered = {"target": str(target), "anchors": 1, "events": end(bench), "time": written.anchor.time}
    assert (report["ok"], report["anchors"]) == (True, [covered])
    target.unlink()
    report = bench.admin.get("/api/events/verification").json()
    assert (report["ok"], len(report["findings"])) == (False, 1)
    target.mkdir()
    assert bench.admin.get("/api/events/verification").status_code == 503


@pytest.mark.parametrize("path", ["/api/events", "/api/events/verification", "/api/plans/X/output"])
def test_without_a_token_no_event_is_visible(bench: ServerBench, path: str) -> None:
    assert bench.stranger.get(path).status_code == 401
    assert bench.stranger.get(path, params={"token": bench.tokens["admin"]}).status_code == 401


def test_a_stream_needs_a_token_and_never_takes_it_from_the_address(bench: ServerBench, base: str) -> None:
    with stream(base, None, f"?token={bench.tokens['admin']}") as answer:
        assert answer.status_code == 401
    with stream(base, "agents_sk_wrong") as answer:
        assert answer.status_code == 401


def test_a_stream_goes_on_with_what_happens(bench: ServerBench, base: str) -> None:
    start = end(bench)
    happen(bench, "before")
    with stream(base, bench.tokens["admin"], f"?after={start}") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        frames = events_in(answer)
        opening = next(frames)
        assert opening == {"retry": "1000", "id": str(start)}
        first = next(frames)
        assert (first["id"], first["event"], first["data"]["subject"]) == (
            str(start + 1),
            "plan.moved",
            "before",
        )
        happen(bench, "meanwhile", secret="hunter2hunter2")
        second = next(frames)
        assert second["data"]["facts"] == {"secret": "***"}
        listed = bench.admin.get("/api/events", params={"after": start}).json()["items"]
        assert [first["data"], second["data"]] == listed


def test_a_browser_streams_with_its_cookie(bench: ServerBench, base: str) -> None:
    browser = bench.browser("admin")
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    with stream(base, None, "?after=0", Cookie=cookie) as answer:
        assert answer.status_code == 200
        assert [frame["id"] for frame in islice(events_in(answer), 3)] == ["0", "1", "2"]


def test_the_last_event_id_overrides_after(bench: ServerBench, base: str) -> None:
    happen(bench, "x")
    last = end(bench)
    headers = {"Last-Event-ID": str(last - 1)}
    with stream(base, bench.tokens["admin"], "?after=0", **headers) as answer:
        assert [frame["id"] for frame in islice(events_in(answer), 2)] == [str(last - 1), str(last)]
    with stream(base, bench.tokens["admin"], **{"Last-Event-ID": "x"}) as answer:
        assert answer.status_code == 422
    with stream(base, bench.tokens["admin"], "?after=-1") as answer:
        assert answer.status_code == 422
    with stream(base, bench.tokens["admin"], "?output=../etc") as answer:
        assert answer.status_code == 422


def test_output_of_a_plan_is_streamed_and_listed(bench: ServerBench, base: str) -> None:
    output = SqlPlanOutput(bench.container.database)
    one, now = plan(bench), bench.container.clock.now()
    output.append(one.id, [("progress", "step 1\n"), ("output", "token=abcdefgh123456\n")], now=now)
    with stream(base, bench.tokens["admin"], f"?output={one.id}:1") as answer:
        frames = (frame for frame in events_in(answer) if frame.get("event") == "output")
        told = {"plan_id": one.id, "number": 2, "kind": "output", "text": "token=***\n"}
        told |= {"time": timestamp(now)}
        assert next(frames) == {"event": "output", "data": told}
        output.append(one.id, [("model", "thinking")], now=now)
        assert next(frames)["data"]["number"] == 3
    listed = bench.admin.get(f"/api/plans/{one.id}/output").json()
    assert [item["text"] for item in listed["items"]] == ["step 1\n", "token=***\n", "thinking"]
    page = bench.admin.get(f"/api/plans/{one.id}/output", params={"after": 1, "limit": 1}).json()
    assert ([item["number"] for item in page["items"]], page["next"]) == ([2], 2)


def test_a_client_that_goes_away_is_forgotten(bench: ServerBench, base: str) -> None:
    def clients() -> int:
        answer = httpx.get(f"{base}/metrics", headers=dict(bench.admin.headers), timeout=SECONDS)
        (number,) = re.findall(r"^cleveragents_stream_clients (\d+)", answer.text, re.MULTILINE)
        return int(number)

    for _ in range(5):
        with stream(base, bench.tokens["admin"], "?after=0") as answer:
            assert next(events_in(answer))
    with stream(base, bench.tokens["admin"], "?after=0") as answer:
        frames = events_in(answer)
        assert next(frames)
        assert clients() >= 1
    deadline = bench.container.clock.monotonic() + SECONDS
    while clients() > 0:
        assert bench.container.clock.monotonic() < deadline


def test_a_token_that_is_taken_away_ends_the_stream(
    bench: ServerBench, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "_CHECK_SECONDS", 0.0)
    users, now = bench.container.users, bench.container.clock.now()
    token, secret = users.issue("admin", TokenKind.PROGRAM, "short-lived", now=now)
    with stream(base, secret) as answer:
        frames = events_in(answer)
        next(frames)
        happen(bench, "seen")
        assert next(frames)["data"]["subject"] == "seen"
        users.revoke(token.id, now=now)
        happen(bench, "the last")
        last = list(frames)[-1]
        assert (last["event"], last["data"]["code"]) == ("problem", "not-authenticated")


def test_the_state_that_a_stream_tells_is_the_state_that_is_kept(bench: ServerBench, base: str) -> None:
    """OpenHands/OpenHands#5817: an interface said stopped while the agent ran. Every move is told by the
    transaction that makes it, so a client that dropped in the middle knows what the store knows."""
    from cleveragents.plans.model.plan import Phase, PlanState

    plans, one = bench.container.plan_parts.plans, plan(bench)
    start = end(bench)
    moves = [
        (Phase.STRATEGIZE, PlanState.QUEUED),
        (Phase.STRATEGIZE, PlanState.PROCESSING),
        (Phase.STRATEGIZE, PlanState.CANCELLED),
    ]
    told: list[tuple[str, str]] = []
    last = start
    for move in moves:
        # Each move happens while no client is connected.
        one = plans.move(one, move, now=bench.container.clock.now())
        with stream(base, bench.tokens["admin"], f"?after={start}", **{"Last-Event-ID": str(last)}) as answer:
            frames = events_in(answer)
            next(frames)
            frame = next(frames)
            last = int(frame["id"])
            told.append((frame["data"]["facts"]["phase"], frame["data"]["facts"]["state"]))
            now = plans.get(one.id)
            assert told[-1] == (now.phase.value, now.state.value)
    assert told == [(phase.value, state.value) for phase, state in moves]


def test_a_server_that_stops_ends_its_streams(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server_bench(tmp_path_factory.mktemp("stopped")) as other, served(other) as base:
        with stream(base, other.tokens["admin"], "?after=0") as answer:
            frames = events_in(answer)
            next(frames)
            hub = other.app.state.hub
            hub.loop.call_soon_threadsafe(other.service.stopping.begin)
            assert len(list(frames)) == 6  # what there was, and then the end
        answer = httpx.get(f"{base}/api/events/stream", headers=dict(other.viewer.headers), timeout=SECONDS)
        assert answer.status_code == 503
