"""Whole plans with an MCP server: nothing of it outlives a plan, and one that cannot be used is named."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cleveragents.domain.plan import Phase, PlanState
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)
from tests.mcp_bench import PROGRAMS
from tests.processes import PidPipe, lives

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
PLANNED = strategizes(steps({"title": "the only step", "instructions": "do it"}))
WORKED = answer(call("mcp__near__work"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ActorPlanBench]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with actor_plan_bench(tmp_path / "home") as made:
        yield made


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[PidPipe]:
    pipe = PidPipe(tmp_path)
    yield pipe
    pipe.close()


def configure(tmp_path: Path, way: str, **variables: str) -> None:
    program = str(PROGRAMS / "misbehaving.py")
    server = {"command": sys.executable, "args": [program, way], "env": variables}
    file = tmp_path / "config/cleveragents/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": {"near": server}}))


def test_no_process_of_a_server_outlives_a_plan_however_the_plan_ends(
    bench: ActorPlanBench, tmp_path: Path, pids: PidPipe
) -> None:
    """openai/codex#25015."""
    configure(tmp_path, "leaves_a_child", MCP_PIDS=str(pids.path))
    fine = bench.script(PLANNED, executes(WORKED, says("done")), reviews(accept()))
    broken = bench.script(PLANNED, executes(WORKED, {"fault": {"status": 400}}))
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    ended = []
    for model in (fine, broken, fine):
        plan = bench.work(bench.goal(model))
        ended.append(plan.standing)
        assert bench.tools_of(plan) == ["mcp__near__work"]
        # One server in Strategize, and in Execute another with a child of its own.
        started = pids.read(3)
        assert [pid for pid in started if lives(pid)] == []
        assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    assert ended == [COMPLETE, (Phase.EXECUTE, PlanState.ERRORED), COMPLETE]


def test_a_server_that_cannot_be_started_is_named_and_the_plan_goes_on(
    bench: ActorPlanBench, tmp_path: Path
) -> None:
    configure(tmp_path, "gone")
    plan = bench.reached(PLANNED, executes(says("done")))
    assert plan.standing == COMPLETE, plan.error
    told = [line for line in bench.said if line.startswith("MCP server near: it ended before it was ready")]
    assert len(told) == 2  # once in each phase
