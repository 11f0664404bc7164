"""MCP tools of an actor: selected by pattern, allowed by policy, their changes recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cleveragents.core.errors import NotTrusted, UnknownTool
from cleveragents.core.policy import READ_ONLY, Policy, profile
from cleveragents.plans.actors.actor_tools import ActorTools, JoinedTools
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy
from cleveragents.tools.mcp.configuration import McpConfiguration
from cleveragents.tools.registry import ToolRegistry
from tests.mcp_bench import configured, misbehaving, open_permitted, place
from tests.plan_bench import PlanBench, command

OWN = misbehaving("tells")
THEIRS = replace(OWN, name="theirs", own=False)
MCP = configured(OWN, THEIRS)


@contextmanager
def tools(
    plans: PlanBench, policy: Policy, configuration: McpConfiguration = MCP
) -> Iterator[tuple[ActorTools, Plan]]:
    plan = plans.done(command("true"))
    sandbox = plans.parts.sandboxes.open(plan.id)
    job = plans.owned_job(plan)
    execution = plans.parts._execution(plan, Strategy(()), sandbox, job, None)
    with open_permitted(configuration, place(sandbox.root), job.token) as mcp:
        joined = JoinedTools(ToolRegistry(), mcp)
        yield ActorTools(replace(execution, policy=policy, tools=joined)), plan


def names(actor: ActorTools, *wanted: str) -> list[str]:
    return [spec.name for spec in actor.specs(wanted)]


def test_patterns_select_tools(plans: PlanBench) -> None:
    with tools(plans, profile("full-auto")) as (actor, _):
        assert names(actor, "mcp__theirs__*", "read", "gr*") == ["mcp__theirs__work", "read", "grep"]
        assert names(actor, "mcp__*") == ["mcp__bad__work", "mcp__theirs__work"]
        assert {"read", "write", "mcp__bad__work"} <= set(names(actor, "*"))
        assert names(actor, "zzz*") == []
        with pytest.raises(UnknownTool, match="mcp__bad__"):
            names(actor, "mcp__nobody__*")


def test_without_mcp_patterns_select_built_in_tools(plans: PlanBench) -> None:
    with tools(plans, profile("full-auto")) as (actor, _):
        plain = ActorTools(replace(actor.execution, tools=ToolRegistry()))
        assert names(plain, "gr*", "mcp__*") == ["grep"]


def test_a_read_only_actor_gets_read_only_tools_of_the_users_servers(plans: PlanBench) -> None:
    with tools(plans, READ_ONLY) as (actor, _):
        assert names(actor, "mcp__*") == ["mcp__bad__work"]
        assert "read-only" in actor.use("mcp__theirs__work", {}, step="1.1").text


def test_a_servers_changes_are_recorded_for_its_call(plans: PlanBench) -> None:
    with tools(plans, profile("full-auto")) as (actor, plan):
        answer = actor.use("mcp__theirs__work", {}, step="1.1")
    assert not answer.failed
    assert answer.text.startswith("wrote in ")
    (entry,) = plans.parts.history.changes(plan.id)
    assert entry.entry.path == "told.txt"
    latest = plans.parts.history.latest(plan.id, "1.1")
    assert latest is not None
    assert entry.entry.tool_call_id == latest.call_id


def test_a_servers_failure_is_a_failed_answer(plans: PlanBench) -> None:
    with tools(plans, profile("full-auto"), configured(misbehaving("dies"))) as (actor, _):
        answer = actor.use("mcp__bad__work", {}, step="1.1")
    assert answer.failed
    assert "ended during the call" in answer.text


def test_naming_an_untrusted_server_asks_for_trust(plans: PlanBench) -> None:
    untrusted = McpConfiguration(untrusted={"theirs": "/r/.mcp.json"})
    with tools(plans, profile("full-auto"), untrusted) as (actor, _):
        assert names(actor, "mcp__*") == []
        with pytest.raises(NotTrusted):
            names(actor, "mcp__theirs__work")


def test_a_pattern_without_mcp_tools_starts_no_server(tmp_path: Path) -> None:
    said: list[str] = []
    with open_permitted(configured(misbehaving("gone")), place(tmp_path), say=said.append) as mcp:
        for pattern in ("skill*", "read", "mcpx*"):
            assert mcp.select(pattern) == ()
        assert said == []


def test_an_unusable_server_is_reported_once(tmp_path: Path) -> None:
    said: list[str] = []
    servers = configured(misbehaving("gone"), replace(OWN, name="good"))
    with open_permitted(servers, place(tmp_path), say=said.append) as mcp:
        for pattern in ("mcp__*", "*__work", "m?p__*"):
            assert mcp.select(pattern) == ("mcp__good__work",)
    assert len(said) == 1
    assert "MCP server bad" in said[0]


def test_joined_tools_list_all_and_the_first_name_wins(tmp_path: Path) -> None:
    registry = ToolRegistry()
    with open_permitted(configured(misbehaving("gone")), place(tmp_path)) as mcp:
        joined = JoinedTools(registry, registry, mcp)
        assert joined.get("read") is registry.get("read")
        assert [spec.name for spec in joined.specs()] == list(joined.names())
        with pytest.raises(UnknownTool) as unknown:
            joined.get("reed")
        assert unknown.value.known[0] == "read"
        assert [problem.tool for problem in joined.problems()] == ["MCP server bad"]
