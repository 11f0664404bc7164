"""CleverAgents as an MCP server, asked by the official client over real pipes."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.mcpserver.exceptions import ToolError

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.store.sql_project_store import SqlProjectStore
from cleveragents.cli.servers import keep_token, logins_file
from cleveragents.core.errors import UnknownPlan
from cleveragents.core.identifiers import UlidSource
from cleveragents.protocols import mcp_server
from cleveragents.storage.database import open_database
from tests.cli_bench import git, paint_shop
from tests.live_server import served
from tests.ready_database import ready_database
from tests.server_plan_bench import plan_server
from tests.unisolated import ALLOW_UNISOLATED

T = TypeVar("T")

SECONDS = 90

SCRIPT = """\
version: 1
facts: {context_tokens: 32000, output_tokens: 4096}
rules:
  - when: {system: "You plan changes"}
    reply:
      text: |
        {"summary": "One step.", "decisions": [],
         "steps": [{"title": "Paint", "instructions": "Write the colour of the day."}]}
  - when: {offered: write}
    turns:
      - calls: [{tool: write, arguments: {path: today.txt, content: "green\\n"}}]
      - text: "Done."
  - reply: {text: '{"verdict": "accept", "findings": [], "summary": "It is green."}'}
"""


class World:
    """A repository and a state, and the server that another agent would start there."""

    def __init__(self, place: Path) -> None:
        self.repository = paint_shop(place / "shop")
        self.state = place / "state"
        ready_database(self.state / "state.db")
        self._place = place

    def scripted(self) -> str:
        """The name of a model that paints."""
        script = self._place / "script.yaml"
        script.write_text(SCRIPT)
        return f"scripted/{script}"

    def remote(self, name: str) -> Path:
        """A bare clone of the repository, which plans may run on under that name."""
        bare = self._place / f"{name}.git"
        git(self.repository, "clone", "-q", "--bare", ".", str(bare))
        branch = git(self.repository, "branch", "--show-current").strip()
        database = open_database(f"sqlite:///{self.state / 'state.db'}")
        try:
            projects, now = SqlProjectStore(database, UlidSource(), "home"), datetime.now(UTC)
            projects.add("paint", now=now)
            projects.add_resource(
                name, "paint", ResourceKind.REMOTE, f"file://{bare}", branch=branch, now=now
            )
        finally:
            database.close()
        return bare

    def ask(
        self,
        work: Callable[[Client], Awaitable[T]],
        *options: str,
        sets: tuple[str, ...] = (),
        server: tuple[str, ...] = (),
    ) -> T:
        """Run the work with a client of a new server, and return its result."""
        settings = [word for pair in sets for word in ("--set", pair)]
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "cleveragents", *settings, *server, "mcp", "serve", *options],
            cwd=self.repository,
            env={
                "HOME": str(self._place),
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                "CLEVERAGENTS_STATE_DIRECTORY": str(self.state),
                "PYTHONDONTWRITEBYTECODE": "1",
                **ALLOW_UNISOLATED,
            },
        )

        async def main() -> T:
            with anyio.fail_after(SECONDS):
                async with Client(stdio_client(parameters)) as client:
                    return await work(client)

        return anyio.run(main)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def called(client: Client, tool: str, **arguments: object) -> Any:
    result = await client.call_tool(tool, arguments)
    text = result.content[0].text
    assert not result.is_error, text
    return json.loads(text) if text.startswith("{") else text


async def refused(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


def test_a_request_that_waits_for_a_plan_holds_no_thread() -> None:
    """All requests share the threads of the process: here there is one, and a request that waits on it would
    keep the other request from its answer.
    """
    looked, ended = threading.Event(), threading.Event()

    class Plans:
        def summary(self, _: str) -> SimpleNamespace:
            looked.set()
            return SimpleNamespace(at_rest=False)

        def wait(self, _: str, *, timeout: float) -> None:
            looked.set()
            ended.wait(timeout)

        def get(self, plan: str) -> None:
            raise UnknownPlan(plan)

    client: Any = SimpleNamespace(plans=Plans())
    tools = mcp_server._tools(mcp_server._Requests(lambda: client, mcp_server.McpServerOptions()))
    (plan_status,) = [tool for tool in tools if tool.__name__ == "plan_status"]

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        async with anyio.create_task_group() as group:
            group.start_soon(plan_status, "01WAITS", 50)
            while not looked.is_set():
                await anyio.lowlevel.checkpoint()
            try:
                with anyio.fail_after(20), pytest.raises(ToolError, match="01OTHER"):
                    await plan_status("01OTHER")
            finally:
                ended.set()
                group.cancel_scope.cancel()

    anyio.run(main)


def test_its_tools_say_what_they_are_for(world: World) -> None:
    async def work(client: Client) -> list[Any]:
        return list((await client.list_tools()).tools)

    listed = world.ask(work, "--workers", "0")
    tools = {tool.name: tool.description for tool in listed}
    reading = {tool.name for tool in listed if tool.annotations.read_only_hint}
    assert reading == {"plan_status", "plan_diff", "context"}
    assert set(tools) == {"create_plan", "plan_status", "plan_diff", "apply_plan", "cancel_plan", "context"}
    assert all(len(description) > 20 for description in tools.values())


def test_a_mistake_is_answered_in_words_and_makes_no_plan(world: World) -> None:
    async def work(client: Client) -> list[str]:
        return [
            await refused(client, "create_plan", goal="paint it"),
            await refused(client, "create_plan", goal="paint it", resource="nowhere"),
            await refused(client, "plan_status", plan="01NOBODY"),
            await refused(client, "create_plan", goal="paint it", to_branch="paint"),
            await refused(client, "apply_plan", plan="01NOBODY"),
            await refused(client, "create_plan", goal="paint it", max_dollars=1),
            await refused(client, "create_plan", goal="paint it", max_usd=1e300),
        ]

    said = world.ask(work, "--workers", "0")
    assert "no default model" in said[0]
    assert "there is no resource 'nowhere'" in said[1]
    assert "there is no plan" in said[2]
    assert "only plans on git remotes push to a branch" in said[3]
    assert "there is no plan" in said[4]
    assert said[5].startswith("unknown argument 'max_dollars'; known: goal, resource, ")
    assert said[6] == "max_usd should be less than or equal to 1000000"
    assert git(world.repository, "for-each-ref", "refs/cleveragents") == ""


def test_context_is_found_where_the_server_was_started(world: World) -> None:
    async def work(client: Client) -> Any:
        return await called(client, "context", question="where is the colour of paint?", budget=500)

    assert "src/paint.py" in world.ask(work, "--workers", "0")["files"]


def test_an_agent_creates_watches_and_reads_a_plan_that_a_person_applies(world: World) -> None:
    async def work(client: Client) -> tuple[Any, str, str]:
        made = await called(client, "create_plan", goal="paint it", checks=["test -f today.txt"])
        done = await called(client, "plan_status", plan=made["id"], wait_seconds=50)
        diff = await called(client, "plan_diff", plan=made["id"])
        return done, diff, await refused(client, "apply_plan", plan=made["id"])

    done, diff, refusal = world.ask(work, sets=(f"models.default={world.scripted()}",))
    assert (done["phase"], done["state"], done["needs"]) == ("execute", "complete", "review"), done
    assert done["changes"] == [{"path": "today.txt", "change": "created"}]
    assert done["checks"][0] == {"name": "test -f today.txt", "verdict": "passed", "stale": False}
    assert "+green" in diff
    assert "the profile allows only a person to apply the result" in refusal
    assert not (world.repository / "today.txt").exists()


def test_an_agent_applies_a_result_if_the_profile_allows_it(world: World) -> None:
    """Into the files, and for a remote to the new branch that was asked for."""
    remote = world.remote("far")

    async def applied(client: Client, **asked: object) -> Any:
        made = await called(client, "create_plan", goal="paint it", **asked)
        done = await called(client, "plan_status", plan=made["id"], wait_seconds=50)
        if done["state"] == "complete":
            # The worker applies it as well: the second apply is refused.
            await client.call_tool("apply_plan", {"plan": made["id"]})
        while done["state"] != "applied":
            await anyio.sleep(0.1)
            done = await called(client, "plan_status", plan=made["id"])
        return done

    async def work(client: Client) -> Any:
        there = await applied(client, resource="far", to_branch="paint/{plan}")
        assert "not HEAD" in await refused(
            client, "create_plan", goal="paint it", resource="far", to_branch="refs/heads/x"
        )
        await applied(client)
        return there

    there = world.ask(work, "--profile", "auto", sets=(f"models.default={world.scripted()}",))
    assert (world.repository / "today.txt").read_text() == "green\n"
    assert there["branch"] == f"paint/{there['id']}"
    assert git(remote, "show", f"{there['branch']}:today.txt") == "green\n"
    assert "today.txt" not in git(remote, "ls-tree", "--name-only", "HEAD")


def test_a_plan_is_cancelled_for_another_agent(world: World) -> None:
    async def work(client: Client) -> Any:
        made = await called(client, "create_plan", goal="paint it")
        return await called(client, "cancel_plan", plan=made["id"], reason="no longer wanted")

    told = world.ask(work, "--workers", "0", sets=(f"models.default={world.scripted()}",))
    assert told["state"] == "cancelled"
    assert "no longer wanted (mcp)" in told["error"]


def test_through_a_server_plans_run_on_its_resources(world: World, tmp_path: Path) -> None:
    async def work(client: Client) -> tuple[str, Any, str, str, Any]:
        nowhere = await refused(client, "create_plan", goal="paint it", resource="nowhere")
        made = await called(client, "create_plan", goal="paint it", max_tokens=100_000)
        done = await called(client, "plan_status", plan=made["id"], wait_seconds=50)
        diff = await called(client, "plan_diff", plan=made["id"])
        refusal = await refused(client, "apply_plan", plan=made["id"])
        return (
            nowhere,
            done,
            diff,
            refusal,
            await called(client, "context", question="colour", resource="shop"),
        )

    settings = {"models__default": world.scripted(), "server__requests_per_minute": 100_000}
    with plan_server(tmp_path / "server", **settings) as server, served(server.bench) as address:
        keep_token(logins_file({"HOME": str(tmp_path)}), address, server.bench.tokens["operator"])
        nowhere, done, diff, refusal, context = world.ask(work, server=("--server", address))
        plan = server.get(f"/plans/{done['id']}")
    assert "there is no resource 'nowhere'" in nowhere
    assert plan["resource_name"] == "shop", "the only resource is the default"
    assert (done["state"], done["needs"], plan["request"]["by"]) == ("complete", "review", "operator"), done
    assert "+green" in diff
    assert "the profile allows only a person to apply the result" in refusal
    assert (context["budget"] > 0, "ranking" in context) == (True, False)
