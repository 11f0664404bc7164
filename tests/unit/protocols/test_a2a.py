"""Tasks over the Agent2Agent protocol, with its official client."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx
import pytest
import structlog
from a2a.client import ClientConfig, create_client
from a2a.client.client import Client
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, InvalidParamsError
from sqlalchemy import update

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import TokenKind
from cleveragents.api.plans.summary import PlanSummary
from cleveragents.api.views import view_of
from cleveragents.config.logging import configure_logging
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.protocols.a2a_handler import plan_terms, task_of
from cleveragents.storage.service_tables import idempotency_keys
from tests.apply_bench import git
from tests.live_server import served
from tests.server_bench import BASE, server_bench
from tests.server_plan_bench import PlanServer, plan_server

T = TypeVar("T")

SECRET = "sk-live-0123456789abcdefghijklmnop"
PAINTS = (
    {
        "when": {"system": "You plan changes"},
        "reply": {
            "text": '{"summary": "One step.", "decisions": [],'
            ' "steps": [{"title": "Paint", "instructions": "Write the colour of the day."}]}'
        },
    },
    {
        "when": {"offered": "write"},
        "turns": [
            {
                "calls": [
                    {"tool": "write", "arguments": {"path": "today.txt", "content": f"green {SECRET}\n"}}
                ]
            },
            {"text": "Done."},
        ],
    },
    {"reply": {"text": '{"verdict": "accept", "findings": [], "summary": "It is green."}'}},
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    place = tmp_path_factory.mktemp("a2a")
    script = place / "paints.yaml"
    _write_script(script)
    with plan_server(place / "server", models__default=f"scripted/{script}") as made:
        yield made


def _write_script(path: Path) -> None:
    import json

    path.write_text(json.dumps({"version": 1, "facts": {}, "rules": list(PAINTS)}))


def asked(
    server: PlanServer,
    work: Callable[[Client], Awaitable[T]],
    user: str = "operator",
    *,
    secret: str = "",
    address: str = "",
) -> T:
    """Run the work with a client that has that user's token, or that secret, and return its result."""

    async def main() -> T:
        token = secret or server.bench.tokens.get(user, "nobody's")
        http = httpx.AsyncClient(
            transport=None if address else httpx.ASGITransport(server.bench.app),
            base_url=address or BASE,
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        async with http:
            config = ClientConfig(httpx_client=http, streaming=True)
            client = await create_client(address or BASE, config)
            return await work(client)

    return anyio.run(main)


def goal(text: str, **metadata: Any) -> SendMessageRequest:
    message = new_text_message(text, role=Role.ROLE_USER)
    message.metadata.update(metadata)
    return SendMessageRequest(message=message)


async def streamed(client: Client, request: SendMessageRequest) -> list[Any]:
    return [event async for event in client.send_message(request)]


def test_the_agent_card_is_public_and_tasks_need_a_token(server: PlanServer) -> None:
    stranger = server.bench.stranger
    card = stranger.get("/.well-known/agent-card.json").json()
    assert card["name"] == "CleverAgents"
    assert card["supportedInterfaces"][0]["url"] == f"{BASE}/a2a"
    refused = stranger.post("/a2a", json={"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}})
    assert refused.status_code == 401
    assert refused.json()["code"] == "not-authenticated"


def test_a_goal_becomes_a_plan_whose_patch_is_the_artifact(server: PlanServer) -> None:
    async def work(client: Client) -> tuple[list[Any], Task]:
        events = await streamed(client, goal("paint it", resource="shop"))
        task = next(event.task for event in events if event.HasField("task"))
        return events, await client.get_task(GetTaskRequest(id=task.id))

    async def look(client: Client) -> Task:
        return await client.get_task(GetTaskRequest(id=task.id))

    events, task = asked(server, work)
    states = [event.status_update.status.state for event in events if event.HasField("status_update")]
    assert states[-1] == TaskState.TASK_STATE_COMPLETED
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert f"+green {SECRET}" in get_artifact_text(task.artifacts[0])
    secrets = KnownSecrets()
    secrets.add(SECRET)
    shown = get_artifact_text(asked(server, look, "viewer").artifacts[0])
    assert ("+green" in shown, SECRET in shown) == (True, False), "who may not apply it needs no secret of it"
    secrets.forget()
    assert not (server.repository / "today.txt").exists()
    account = server.get(f"/plans/{task.id}")
    assert (account["goal"], account["needs"]) == ("paint it", "review")


def test_a_task_is_cancelled_and_a_second_cancel_says_so(server: PlanServer) -> None:
    waiting = server.asking("colour")

    async def work(client: Client) -> tuple[Task, Task, str]:
        before = await client.get_task(GetTaskRequest(id=waiting["id"]))
        after = await client.cancel_task(CancelTaskRequest(id=waiting["id"]))
        with pytest.raises(A2AError) as refused:
            await client.cancel_task(CancelTaskRequest(id=waiting["id"]))
        return before, after, str(refused.value)

    before, after, refusal = asked(server, work)
    assert before.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert after.status.state == TaskState.TASK_STATE_CANCELED
    assert "cancelled" in refusal


def test_errors_use_the_classes_of_the_protocol(server: PlanServer) -> None:
    async def work(client: Client) -> list[str]:
        said = []
        for attempt in (
            lambda: streamed(client, goal("paint it", resource="nowhere")),
            lambda: streamed(client, goal("   ", resource="shop")),
            lambda: client.get_task(GetTaskRequest(id="01NOBODY")),
        ):
            with pytest.raises(A2AError) as refused:
                await attempt()
            said.append(f"{type(refused.value).__name__}: {refused.value}")
        return said

    nowhere, empty, unknown = asked(server, work)
    assert "there is no resource 'nowhere'" in nowhere
    assert "missing goal" in empty
    assert unknown.startswith("TaskNotFoundError")


def test_a_limit_without_an_end_is_a_mistake_of_who_says_it() -> None:
    with pytest.raises(InvalidParamsError, match="Infinity"):
        plan_terms(goal("paint it", max_usd=math.inf))


def test_metadata_says_how_it_is_to_be_done(server: PlanServer) -> None:
    container, clone = server.bench.container, server.home / "far.git"
    git(server.home, "clone", "-q", "--bare", str(server.repository), str(clone))
    projects, now = container.projects, container.clock.now()
    projects.add_resource("far", "team", ResourceKind.REMOTE, f"file://{clone}", branch="main", now=now)
    terms = {
        "resource": "far",
        "to_branch": "paint/{plan}",
        "checks": ["test -f today.txt"],
        "max_tokens": 1e5,
        "actor": "builtin/executor",
    }
    wrong = [
        ({"actor": "none/such"}, "none/such"),
        ({"to_branch": 5}, "metadata.to_branch: Input should be a valid string"),
        ({"max_tokens": 1.5}, "metadata.max_tokens"),
        ({"max_tokens": 1e16}, "metadata.max_tokens: Input should be less than or equal to"),
        ({"max_usd": "inf"}, "metadata.max_usd: Input should be less than or equal to"),
        ({"seconds": 1e300}, "metadata.seconds: Input should be less than or equal to"),
        ({"checks": "true"}, "metadata.checks"),
        ({"to_branch": "HEAD"}, "not HEAD"),
        ({"resource": None}, "missing metadata.resource: choose one of far, shop"),
        ({"resource": "shop"}, "only plans on git remotes push to a branch"),
    ]

    async def work(client: Client) -> Task:
        for terms_too, said in wrong:
            with pytest.raises(InvalidParamsError, match=re.escape(said)):
                await streamed(client, goal("paint it", **(terms | terms_too)))
        events = await streamed(client, goal("paint it", **terms))
        return next(event.task for event in events if event.HasField("task"))

    plan = server.get(f"/plans/{asked(server, work).id}")
    assert (plan["needs"], plan["branch"]) == ("review", f"paint/{plan['id']}"), plan
    assert [check["verdict"] for check in plan["checks"][:1]] == ["passed"]
    assert plan["request"]["limits"]["tokens"] == 100_000
    assert plan["request"]["actor"] == "builtin/executor"
    projects.remove_resource("far", now=container.clock.now())


def test_a_viewer_reads_tasks_but_creates_none(server: PlanServer) -> None:
    async def work(client: Client) -> str:
        with pytest.raises(A2AError) as refused:
            await streamed(client, goal("paint it", resource="shop"))
        return str(refused.value)

    assert "the role operator is required" in asked(server, work, "viewer")


def test_tasks_are_listed_in_pages_with_how_many_there_are_in_all(server: PlanServer) -> None:
    state = TaskState.TASK_STATE_INPUT_REQUIRED

    async def counted(client: Client) -> int:
        return (await client.list_tasks(ListTasksRequest(page_size=1, status=state))).total_size

    earlier = asked(server, counted, "viewer")
    waiting = server.asking("colour")
    for number in range(2):
        new = PlanDraft(f"listed {number}", "builtin/goal", str(server.repository))
        server.parts.plans.create(new, now=server.bench.container.clock.now())

    async def work(client: Client) -> tuple[list[list[str]], list[int], ListTasksResponse, ListTasksResponse]:
        pages, totals, token = [], [], ""
        while not pages or token:
            page = await client.list_tasks(ListTasksRequest(page_size=2, page_token=token))
            pages.append([task.id for task in page.tasks])
            totals.append(page.total_size)
            token = page.next_page_token
        asking = await client.list_tasks(ListTasksRequest(page_size=1, status=state))
        one = await client.list_tasks(ListTasksRequest(context_id=waiting["id"]))
        none = await client.list_tasks(ListTasksRequest(context_id="no\0thing"))
        assert (len(none.tasks), none.total_size) == (0, 0)
        return pages, totals, asking, one

    pages, totals, asking, one = asked(server, work, "viewer")
    every = [task for page in pages for task in page]
    assert len(set(every)) == len(every) > 2
    assert set(totals) == {len(every)}
    assert [task.id for task in asking.tasks] == [waiting["id"]]
    assert (asking.total_size, bool(asking.next_page_token)) == (earlier + 1, earlier > 0)
    assert ([task.id for task in one.tasks], one.total_size) == ([waiting["id"]], 1)
    server.post(f"/plans/{waiting['id']}/cancel")


def test_a_waiting_task_is_followed_to_its_end_and_an_ended_one_cannot_be(server: PlanServer) -> None:
    waiting = server.asking("colour")

    async def work(client: Client) -> tuple[list[Any], str]:
        following = client.subscribe(SubscribeToTaskRequest(id=waiting["id"]))
        found = [await anext(following)]
        await client.cancel_task(CancelTaskRequest(id=waiting["id"]))
        found += [event async for event in following]
        with pytest.raises(A2AError) as refused:
            [event async for event in client.subscribe(SubscribeToTaskRequest(id=waiting["id"]))]
        return found, str(refused.value)

    with served(server.bench) as address:
        found, refusal = asked(server, work, address=address)
    assert found[0].task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
    assert found[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
    assert "the task has ended" in refusal


def test_parts_other_than_text_and_other_media_are_refused(server: PlanServer) -> None:
    for part in ({"raw": "dGNr", "mediaType": "image/png"}, {"data": {"a": 1}}):
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "paint"}, part]}
        error = called(server, "SendMessage", message=message)
        assert (error["code"], "send text" in error["message"]) == (-32005, True)
    plain = {"A2A-Version": "1.0", "Content-Type": "text/plain"}
    answer = server.bench.viewer.post("/a2a/", content=b"{}", headers=plain)
    assert answer.json()["error"]["code"] == -32005


def test_the_agent_card_can_be_cached(server: PlanServer) -> None:
    path, stranger = "/.well-known/agent-card.json", server.bench.stranger
    first = stranger.get(path)
    assert "max-age" in first.headers["Cache-Control"]
    assert first.headers["Last-Modified"]
    again = stranger.get(path, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_token_that_is_taken_away_ends_what_was_begun_with_it(server: PlanServer) -> None:
    users, clock = server.bench.container.users, server.bench.container.clock
    running = server.command("sleep 100")
    token, secret = users.issue("viewer", TokenKind.PROGRAM, "short-lived", now=clock.now())

    async def work(client: Client) -> str:
        following = client.subscribe(SubscribeToTaskRequest(id=running["id"]))
        await anext(following)
        users.revoke(token.id, now=clock.now())
        with pytest.raises(A2AError) as refused:
            [event async for event in following]
        return str(refused.value)

    try:
        with served(server.bench) as address:  # without a network there is no half of an answer
            assert "not authenticated" in asked(server, work, secret=secret, address=address)
    finally:
        server.post(f"/plans/{running['id']}/cancel")
        server.rested(running)


def test_without_a_stream_the_answer_comes_at_once_if_that_is_wanted(server: PlanServer) -> None:
    async def work(client: Client) -> Task:
        request = goal("paint it", resource="shop")
        request.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
        handler = client._transport  # the client's own way to send without a stream
        answer = await handler.send_message(request)
        return answer.task

    task = asked(server, work)
    assert not task.artifacts
    server.rested({"id": task.id})


ASKS = """\
name: tests/asks-twice
type: graph
state:
  colour: {type: string}
  size: {type: string}
entry: colour
nodes:
  colour: {type: human, question: "Which colour?", output: colour, next: size}
  size: {type: human, question: "Which size?", output: size, next: write}
  write: {type: tool, tool: write, with: {path: told.txt, content: "${colour} ${size}"}, next: end}
"""


def said_to(task_id: str, text: str, **metadata: Any) -> SendMessageRequest:
    request = goal(text, **metadata)
    request.message.task_id = task_id
    return request


def test_an_answer_is_to_the_question_that_was_seen_and_to_no_other(server: PlanServer) -> None:
    plan = server.rested(server.make(goal="ask", actor_yaml=ASKS, profile="full-auto", apply="review"))

    async def work(client: Client) -> tuple[list[str], Task]:
        asked = (await client.get_task(GetTaskRequest(id=plan["id"]))).status.message
        assert "Which colour?" in get_message_text(asked)
        first = asked.metadata["question"]
        await streamed(client, said_to(plan["id"], "red"))  # nothing else was ever asked
        second = (await client.get_task(GetTaskRequest(id=plan["id"]))).status.message.metadata["question"]
        said = []
        # Of two who answer the first, the second would answer what it has not seen.
        for late in (said_to(plan["id"], "blue"), said_to(plan["id"], "blue", question=first)):
            with pytest.raises(InvalidParamsError) as refused:
                await streamed(client, late)
            said.append(str(refused.value))
        with pytest.raises(InvalidParamsError, match=r"metadata.question"):
            await streamed(client, said_to(plan["id"], "blue", question=5))
        await streamed(client, said_to(plan["id"], "large", question=second))
        return said, await client.get_task(GetTaskRequest(id=plan["id"]))

    (unnamed, other), task = asked(server, work)
    assert "name the `question` that you answer" in unnamed
    assert "another question is pending: Which size?" in other
    assert "+red large" in get_artifact_text(task.artifacts[0])


def test_a_message_before_a_question_is_not_its_answer(server: PlanServer) -> None:
    """The sender saw the plan at work: the question that comes later is not the one they answer."""
    running = server.command("sleep 100")

    async def work(client: Client) -> None:
        with pytest.raises(InvalidParamsError, match="no question is pending"):
            await streamed(client, said_to(running["id"], "red"))

    asked(server, work)
    server.post(f"/plans/{running['id']}/cancel")
    server.rested(running)


def test_the_same_status_is_the_same_message(server: PlanServer) -> None:
    """Streams tell changes only."""
    waiting = server.asking("colour")
    plan = view_of(PlanSummary, server.get(f"/plans/{waiting['id']}/summary"))
    assert task_of(plan).status == task_of(plan).status
    other = task_of(replace(plan, meaning="something else"))
    assert task_of(plan).status.message.message_id != other.status.message.message_id
    server.post(f"/plans/{waiting['id']}/cancel")


def called(server: PlanServer, method: str, **params: Any) -> dict[str, Any]:
    """The error with which the endpoint answers a viewer."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = server.bench.viewer.post("/a2a", json=request, headers={"A2A-Version": "1.0"})
    return dict(answer.json()["error"])


@pytest.mark.parametrize("size", [-1, 101, 10**9])
def test_a_page_has_a_bound(server: PlanServer, size: int) -> None:
    error = called(server, "ListTasks", pageSize=size)
    assert (error["code"], "1 to 100" in error["message"]) == (-32602, True)


def test_the_log_of_the_a2a_sdk_is_masked(server: PlanServer, capsys: pytest.CaptureFixture[str]) -> None:
    """It quotes what it could not read."""
    configure_logging(server.bench.container.settings)
    try:
        called(server, "ListTasks", pageSize=SECRET)
    finally:
        structlog.reset_defaults()
    said = capsys.readouterr()
    assert "protocol.said" in said.err
    assert SECRET not in said.err + said.out
    assert not logging.getLogger("a2a").propagate


def greeting(home: Path) -> dict[str, Any]:
    """A message that is answered at once."""
    script = home / "script.yaml"
    _write_script(script)
    metadata = {"resource": "shop", "model": f"scripted/{script}"}
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "greet"}], "metadata": metadata}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}


def test_a_message_with_a_key_is_one_task_also_when_its_server_was_killed_before_it_answered(
    tmp_path: Path,
) -> None:
    request, headers = greeting(tmp_path), {"A2A-Version": "1.0", "Idempotency-Key": "once"}
    del request["params"]["message"]["metadata"]["resource"]
    with server_bench(tmp_path) as bench:
        bench.repository()
        first = bench.operator.post("/a2a", json=request, headers=headers)
        unanswered = update(idempotency_keys).values(answer=None)
        bench.container.database.write(lambda connection: connection.execute(unanswered))
        bench.repository("other")  # as a new message it would have to say which one is meant
        second = bench.operator.post("/a2a", json=request, headers=headers)
        (plan,) = bench.container.plan_parts.plans.list()
    assert [answer.json()["result"]["task"]["id"] for answer in (first, second)] == [plan.id] * 2


def test_that_there_is_no_room_is_no_mistake_of_who_asks(tmp_path: Path) -> None:
    request = greeting(tmp_path)
    with server_bench(tmp_path, jobs__queue_bound=1) as bench:
        bench.repository()
        first = {"resource": "shop", "action": "builtin/command", "arguments": {"argv": ["true"]}}
        made = bench.operator.post("/api/plans", json=first).json()
        headers = {"A2A-Version": "1.0", "Idempotency-Key": "once"}
        answer = bench.operator.post("/a2a", json=request, headers=headers)
        assert bench.operator.post(f"/api/plans/{made['id']}/cancel").status_code == 200
        again = bench.operator.post("/a2a", json=request, headers=headers)
    error = answer.json()["error"]
    assert (error["code"], "is full" in error["message"]) == (-32603, True), error
    assert again.json()["result"]["task"]["id"], "what was refused is tried again"


@pytest.mark.usefixtures("plain_faults")
def test_a_fault_reveals_no_internals(server: PlanServer) -> None:
    database = server.bench.container.database
    database.write(lambda connection: connection.exec_driver_sql("ALTER TABLE plans RENAME TO elsewhere"))
    try:
        error = called(server, "ListTasks")
    finally:
        database.write(lambda connection: connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO plans"))
    assert error["code"] == -32603
    assert "plans" not in error["message"]
    assert "log has the details" in error["message"]
