"""Files in requests to the server: checked, bounded, and stored with their turn only."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from cleveragents.config.logging import configure_logging
from cleveragents.storage.tables import METADATA
from tests.attached_files import PNG
from tests.server_plan_bench import PlanServer, plan_server

FAILS = {"reply": {"fault": {"status": 401, "message": "no"}}}
MARK = b"a-mark-inside-of-the-picture"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("server"), log__format="json") as made:
        yield made


@pytest.fixture
def turns(server: PlanServer) -> str:
    body = {"resource": "shop", "model": server.script(FAILS)}
    made = server.bench.operator.post("/api/conversations", json=body)
    return f"/api/conversations/{made.json()['id']}/turns"


def file(content: bytes, name: str = "a.png") -> dict[str, str]:
    return {"name": name, "content": b64encode(content).decode()}


@pytest.mark.parametrize(
    ("attachments", "problem"),
    [
        ([file(b"/etc/passwd")], "is no PNG, JPEG, GIF or WebP image and no PDF"),
        ([{"name": "a.png", "content": "/etc/passwd"}], "not base64"),
        ([{"name": "a.png", "content": "é"}], "not base64"),
        ([{"name": "a.png", "path": "/etc/passwd"}], "path"),
        ([file(PNG, "x" * 256)], "255"),
        ([file(PNG)] * 6, "5"),
        ([file(PNG + bytes(5_100_000))] * 2, "10,000,000 bytes together"),
    ],
)
def test_attachments_are_checked_by_the_server(
    server: PlanServer, turns: str, attachments: list[dict[str, Any]], problem: str
) -> None:
    answer = server.bench.operator.post(turns, json={"text": "What?", "attachments": attachments})
    assert (answer.status_code in (413, 422), problem in answer.text) == (True, True), answer.text
    assert len(answer.text) < 2_000, "a refusal does not repeat the file"
    assert server.bench.operator.get(turns).json()["items"] == []


def test_only_a_turn_may_be_larger_than_other_bodies(server: PlanServer, turns: str) -> None:
    large = {"text": "What?", "attachments": [file(PNG + bytes(9_900_000))]}
    assert server.bench.operator.post("/api/conversations", json=large).status_code == 413
    refused = server.bench.operator.post(turns, json={**large, "text": "x" * 1_200_000})
    assert (refused.status_code, "bytes of attachments" in refused.text) == (413, True)
    assert server.bench.stranger.post(turns, json=large).status_code == 401
    assert server.bench.client("viewer").post(turns, json=large).status_code == 403
    assert server.bench.operator.post(turns, json=large).status_code == 201


def test_the_content_is_in_no_log_and_event(server: PlanServer, capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging(server.bench.container.settings)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    operator = server.bench.operator
    body = {"resource": "shop", "model": server.script(FAILS)}
    talk = operator.post("/api/conversations", json=body).json()["id"]
    shown = PNG + MARK
    sent = operator.post(
        f"/api/conversations/{talk}/turns",
        json={"text": "What is this?", "attachments": [file(shown, "../../shed.png")]},
        headers={"Idempotency-Key": "with-a-file"},
    )
    assert (sent.status_code, sent.json()["attachments"][0]["name"]) == (201, "shed.png")
    server.bench.container.running_turns.close()
    with server.bench.container.database.read() as connection:
        rows = {
            name: repr(list(connection.execute(select(table)))) for name, table in METADATA.tables.items()
        }
    log = capfd.readouterr().err
    assert talk in log
    encoded = b64encode(shown).decode()[-30:]
    kept = [name for name, text in {**rows, "log": log}.items() if MARK.decode() in text or encoded in text]
    assert kept == ["conversation_attachments"]
    assert "shed.png" not in rows["events"] + rows["outbox"] + log
