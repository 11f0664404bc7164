"""MCP over HTTP: the server's endpoint, asked by the official client."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.testclient import TestClient

from cleveragents.core.errors import NotAuthenticated
from cleveragents.protocols import mcp_routes
from tests.cli_bench import Agents, command_line, use_home
from tests.live_server import served
from tests.server_plan_bench import PlanServer, plan_server

T = TypeVar("T")

SECONDS = 90
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("mcp"), works=False) as made:
        yield made


@pytest.fixture(scope="module")
def address(server: PlanServer) -> Iterator[str]:
    with served(server.bench) as url:
        yield url


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capfd) as run:
        yield run


def asked(server: PlanServer, address: str, work: Callable[[Client], Awaitable[T]], user: TestClient) -> T:
    """Run the work with a client that has the token of that user, and return its result."""

    async def main() -> T:
        headers = {"Authorization": user.headers["Authorization"]}
        with anyio.fail_after(SECONDS):
            async with (
                httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http,
                Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
            ):
                return await work(client)

    return anyio.run(main)


async def told(client: Client, tool: str, **arguments: object) -> tuple[bool, Any]:
    """Call a tool; return whether that failed, and the answer."""
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    return bool(result.is_error), json.loads(text) if text.startswith("{") else text


def test_a_plan_belongs_to_the_user_whose_token_the_request_has(server: PlanServer, address: str) -> None:
    model = server.script({"reply": {"text": "no"}})

    async def create(client: Client) -> tuple[bool, Any]:
        return await told(client, "create_plan", goal="paint it", model=model)

    async def look(client: Client) -> tuple[bool, Any]:
        return await told(client, "plan_status", plan=plan["id"])

    failed, plan = asked(server, address, create, server.bench.operator)
    assert not failed, plan  # the only resource is the default
    assert server.get(f"/plans/{plan['id']}")["goal"] == "paint it"
    assert asked(server, address, look, server.bench.viewer)[1]["id"] == plan["id"]
    failed, problem = asked(server, address, create, server.bench.viewer)
    assert failed, "a viewer creates nothing"
    assert "operator" in problem
    server.post(f"/plans/{plan['id']}/cancel")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("create_plan", {}, "goal is missing"),
        ("create_plan", {"goal": ""}, "goal should have at least 1 character"),
        ("create_plan", {"goal": "x", "max_used": 1}, "unknown argument 'max_used'; did you mean 'max_usd'?"),
        ("create_plan", {"goal": "x", "checks": "hunter2-hunter2"}, "checks should be a valid tuple"),
        ("create_plan", {"goal": "x", "checks": [1]}, "checks.0 should be a valid string"),
        ("plan_status", {"plan": "x", "wait_seconds": "hunter2-hunter2"}, "wait_seconds should be"),
        ("context", {"question": "x", "budget": 1}, "budget should be greater than or equal to 64"),
    ],
)
def test_an_invalid_argument_is_named_without_its_value(
    server: PlanServer,
    address: str,
    tool: str,
    arguments: dict[str, object],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def call(client: Client) -> tuple[bool, Any]:
        return await told(client, tool, **arguments)

    failed, text = asked(server, address, call, server.bench.operator)
    assert (failed, said in text) == (True, True), text
    assert "hunter2" not in text
    assert not [word for word in ("Traceback", "pydantic", "input_value", "\n") if word in text]
    assert "Traceback" not in caplog.text


def test_a_request_without_a_valid_token_is_refused(server: PlanServer) -> None:
    stranger = server.bench.stranger
    refused = stranger.post("/mcp", json=LIST, headers=ACCEPT)
    assert (refused.status_code, refused.json()["code"]) == (401, "not-authenticated")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    headers = {**ACCEPT, "Authorization": "Bearer unknown"}
    assert stranger.post("/mcp", json=LIST, headers=headers).status_code == 401


def test_a_token_that_is_revoked_during_a_call_shows_nothing_more() -> None:
    mcp_routes._USER.set(lambda: None)
    with pytest.raises(NotAuthenticated, match="revoked"):
        mcp_routes._client()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"not json", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5}}', -32602),
    ],
)
def test_a_malformed_request_gets_an_error_of_json_rpc(server: PlanServer, body: bytes, code: int) -> None:
    headers = {**ACCEPT, "Content-Type": "application/json"}
    answer = server.bench.viewer.post("/mcp", content=body, headers=headers)
    text = answer.text.partition("data: ")[2] or answer.text
    assert json.loads(text)["error"]["code"] in (code, -32602), text
    assert "Traceback" not in text


def test_only_posts_are_answered(server: PlanServer) -> None:
    for method in ("GET", "DELETE"):
        assert server.bench.viewer.request(method, "/mcp", headers=ACCEPT).status_code == 405


def test_a_foreign_page_and_a_rebound_name_are_refused(server: PlanServer) -> None:
    viewer = server.bench.viewer
    assert viewer.post("/mcp", json=LIST, headers={**ACCEPT, "Host": "evil.example"}).status_code == 421
    foreign = {**ACCEPT, "Origin": "https://evil.example"}
    assert viewer.post("/mcp", json=LIST, headers=foreign).status_code == 403


def test_the_log_of_the_sdk_goes_to_the_log_of_the_server(server: PlanServer) -> None:
    handlers = logging.getLogger().handlers[:]
    server.bench.viewer.post("/mcp", json=LIST, headers=ACCEPT)
    assert not logging.getLogger("mcp").propagate
    assert logging.getLogger().handlers == handlers


@pytest.mark.usefixtures("plain_faults")
def test_a_fault_reveals_no_internals(server: PlanServer, address: str) -> None:
    async def look(client: Client) -> tuple[bool, Any]:
        return await told(client, "plan_status", plan="01NOBODY")

    database = server.bench.container.database
    database.write(lambda connection: connection.exec_driver_sql("ALTER TABLE plans RENAME TO elsewhere"))
    try:
        failed, problem = asked(server, address, look, server.bench.operator)
    finally:
        database.write(lambda connection: connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO plans"))
    assert failed
    assert "plans" not in problem
    assert "the log has the details" in problem


def test_options_that_do_not_fit_are_refused(agents: Agents) -> None:
    for words, problem in (
        (("mcp", "serve", "--port", "1"), "--host and --port need --http"),
        (("mcp", "serve", "--http", "--profile", "ci"), "--profile cannot be used with --http"),
        (
            ("--server", "https://far.example", "mcp", "serve", "--http"),
            "--http cannot be used with a server",
        ),
    ):
        ended = agents(*words)
        assert ended.code == 2
        assert problem in " ".join(ended.err.split())
