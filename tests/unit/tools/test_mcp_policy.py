"""The policy decides whether an MCP server is started or connected to, in every phase of a plan."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cleveragents.actors.model.actor import LlmNode, ToolNode
from cleveragents.core.policy import PROFILES, Capability, Verdict
from cleveragents.core.tool import CallState
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.actor_plan_bench import (
    ActorPlanBench,
    actor_plan_bench,
    executes,
    says,
    steps,
    strategizes,
)
from tests.apply_bench import git

SECRET = "canary-0123456789abcdef"
STRATEGIZE, EXECUTE = Phase.STRATEGIZE, Phase.EXECUTE
PLANNED = steps({"title": "the only step", "instructions": "do it"})
KINDS = ("stdio", "http")
OWNERS = ("own", "repository")


class Canary:
    """A program that leaves a marker, and an HTTP server that stores the headers of each request."""

    def __init__(self, directory: Path) -> None:
        self.requests: list[dict[str, str]] = []
        self.marker = directory / "marker"
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                requests.append(dict(self.headers))
                self.send_error(404)

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def is_used(self) -> bool:
        return bool(self.requests) or self.marker.exists()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/mcp"

    def entry(self, kind: str) -> dict[str, Any]:
        if kind == "http":
            return {"url": self.url, "headers": {"X-T": "${CANARY_KEY}"}}
        program = f"import pathlib; pathlib.Path({str(self.marker)!r}).write_text('started')"
        return {"command": sys.executable, "args": ["-c", program], "env": {"GIVEN": "${CANARY_KEY}"}}


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    made = Canary(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ActorPlanBench]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CANARY_KEY", SECRET)
    with actor_plan_bench(tmp_path / "home") as made:
        yield made


def configure(bench: ActorPlanBench, tmp_path: Path, owner: str, entry: dict[str, Any]) -> None:
    document = json.dumps({"mcpServers": {"canary": entry}})
    if owner == "own":
        file = tmp_path / "config/cleveragents/mcp.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document)
        return
    (bench.repository / ".mcp.json").write_text(document)
    git(bench.repository, "add", ".mcp.json")
    git(bench.repository, "commit", "-qm", "add a server")
    trust = bench.parts.trust
    trust.give(bench.repository, trust.survey(bench.repository).files)


def run(bench: ActorPlanBench, phase: Phase, profile: str) -> Plan:
    """Run a plan whose actor has all MCP tools in that phase, which is the last one."""
    if phase is STRATEGIZE:
        model = bench.script(strategizes({"fault": {"status": 400}}))
        return bench.work(bench.goal(model, profile=profile))
    model = bench.script(executes(says("done")))
    return bench.work(bench.goal(model, profile=profile, cast=(None, "builtin/executor", None)))


def verdict(profile: str, kind: str) -> Verdict:
    """Return the verdict on a server without isolation: its network cannot be denied, so it needs both
    capabilities.
    """
    needed = [Capability.NETWORK] if kind == "http" else [Capability.COMMAND, Capability.NETWORK]
    return max((PROFILES[profile].verdict(one) for one in needed), key=lambda one: one.strictness)


@pytest.mark.parametrize("phase", [STRATEGIZE, EXECUTE], ids=lambda phase: phase.value)
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", PROFILES)
def test_a_server_is_used_only_where_the_profile_allows_it(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path, profile: str, kind: str, owner: str, phase: Phase
) -> None:
    configure(bench, tmp_path, owner, canary.entry(kind))
    plan = run(bench, phase, profile)
    requests = [one for one in bench.calls(plan) if one.tool == "mcp"]
    if owner == "repository" and phase is STRATEGIZE:
        assert not canary.is_used
        assert requests == []
        assert any("MCP server canary is denied" in line for line in bench.said)
        return
    expected = verdict(profile, kind)
    assert canary.is_used == (expected is Verdict.ALLOW)
    assert (plan.state is PlanState.WAITING) == (expected is Verdict.ASK)
    if expected is Verdict.ALLOW:
        assert requests == []
    elif expected is Verdict.DENY:
        assert [one.state for one in requests] == [CallState.FAILED]
        assert f"MCP server canary is denied by the policy ({profile}: " in str(requests[0].error)
        assert str(requests[0].error) in bench.said
    else:
        assert plan.phase is phase
        assert [one.state for one in requests] == [CallState.ASKED]
        what = str(bench.waited(plan)["what"])
        places = (canary.url, "header X-T") if kind == "http" else (sys.executable, "env GIVEN")
        for part in ("MCP server canary", "CANARY_KEY", *places):
            assert part in what
        assert SECRET not in f"{what}{requests}"


@pytest.mark.parametrize("kind", KINDS)
def test_one_approval_holds_for_the_whole_plan(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path, kind: str
) -> None:
    configure(bench, tmp_path, "own", canary.entry(kind))
    model = bench.script(strategizes(PLANNED), executes(says("done")))
    plan = bench.work(
        bench.goal(model, profile="manual", cast=("builtin/strategist", "builtin/executor", None))
    )
    assert plan.phase_state == (STRATEGIZE, PlanState.WAITING)
    assert not canary.is_used
    plan = bench.answer(plan, granted=True)
    assert canary.is_used
    if kind == "http":
        assert {one["X-T"] for one in canary.requests} == {SECRET}
    assert plan.phase_state == (EXECUTE, PlanState.COMPLETE), plan.error
    assert [one.state for one in bench.calls(plan)] == [CallState.ENDED]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_continues_without_a_denied_server(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path, kind: str
) -> None:
    configure(bench, tmp_path, "own", canary.entry(kind))
    plan = bench.answer(run(bench, EXECUTE, "manual"), granted=False)
    assert plan.phase_state == (EXECUTE, PlanState.COMPLETE), plan.error
    assert not canary.is_used
    assert any("a person denied MCP server canary" in line for line in bench.said)


def test_another_definition_needs_another_approval(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path
) -> None:
    configure(bench, tmp_path, "own", canary.entry("http"))
    plan = run(bench, EXECUTE, "manual")
    configure(bench, tmp_path, "own", {**canary.entry("http"), "headers": {"X-U": "${CANARY_KEY}"}})
    plan = bench.answer(plan, granted=True)
    assert plan.state is PlanState.WAITING
    assert "header X-U" in str(bench.waited(plan)["what"])
    assert not canary.is_used


def executor(bench: ActorPlanBench, node: LlmNode | ToolNode) -> tuple[None, str, None]:
    """Return a cast whose executor has only that node."""
    usual = bench.parts.actors(None).get("builtin/executor")
    bench.actors["tests/executor"] = replace(usual, name="tests/executor", entry=node.name, nodes=(node,))
    return (None, "tests/executor", None)


@pytest.mark.parametrize("tool", ["mcp__canary__*", "mcp__canary__work"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_denied_server_that_an_actor_names_is_absent(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path, kind: str, tool: str
) -> None:
    configure(bench, tmp_path, "own", canary.entry(kind))
    cast = executor(bench, LlmNode(name="work", prompt="${task}", tools=(tool,)))
    plan = bench.work(bench.goal(bench.script({"turns": [says("done")]}), profile="ci", cast=cast))
    assert plan.phase_state == (EXECUTE, PlanState.COMPLETE), plan.error
    assert not canary.is_used


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_to_a_denied_server_explains_its_failure(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path, kind: str
) -> None:
    configure(bench, tmp_path, "own", canary.entry(kind))
    cast = executor(bench, ToolNode(name="work", tool="mcp__canary__work"))
    plan = bench.work(bench.goal(bench.script(), profile="ci", cast=cast))
    made = {one.tool: one for one in bench.calls(plan)}
    assert "MCP server canary is denied by the policy (ci: network)" in str(made["mcp__canary__work"].error)
    assert not canary.is_used


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_waits_for_the_approval_of_its_server(
    bench: ActorPlanBench, canary: Canary, tmp_path: Path, kind: str
) -> None:
    configure(bench, tmp_path, "own", canary.entry(kind))
    cast = executor(bench, ToolNode(name="work", tool="mcp__canary__work"))
    plan = bench.work(bench.goal(bench.script(), profile="manual", cast=cast))
    assert plan.phase_state == (EXECUTE, PlanState.WAITING)
    assert bench.tools_of(plan) == ["mcp"]
    assert not canary.is_used
    bench.answer(plan, granted=True)
    assert canary.is_used
