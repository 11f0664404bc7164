"""Whole plans with an MCP server: none of its processes outlives a plan, and an unusable server is named."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cleveragents.actors.model.actor import Actor, HumanNode, StateKey, ToolNode
from cleveragents.core.errors import Cancelled
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.actor_plan_bench import (
    USUAL,
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
        ended.append(plan.phase_state)
        assert bench.tools_of(plan) == ["mcp__near__work"]
        # One server in Strategize, and in Execute another with its own child process.
        started = pids.read(3)
        assert [pid for pid in started if lives(pid)] == []
        assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
    assert ended == [COMPLETE, (Phase.EXECUTE, PlanState.ERRORED), COMPLETE]


def test_a_plan_continues_without_a_server_that_cannot_start(bench: ActorPlanBench, tmp_path: Path) -> None:
    configure(tmp_path, "gone")
    plan = bench.reached(PLANNED, executes(says("done")))
    assert plan.phase_state == COMPLETE, plan.error
    told = [
        line
        for line in bench.said
        if line.startswith("MCP server near: the server ended before it was ready")
    ]
    assert len(told) == 2  # once in each phase


def ways_to_end(bench: ActorPlanBench, how: str) -> Plan:
    """Yield plans that use a server, with the way they end."""
    bench.actors["tests/asking"] = Actor(
        name="tests/asking",
        entry="work",
        nodes=(
            ToolNode(name="work", tool="mcp__near__work", arguments={}, next=("ask",)),
            HumanNode(name="ask", question="Which colour?", output="report"),
        ),
        state=(StateKey("report"),),
    )
    fails = {"fault": {"status": 400}}
    rules = {
        "failed": [PLANNED, executes(WORKED, fails)],
        "failed in Strategize": [strategizes(WORKED, fails)],
    }.get(how, [PLANNED, executes(WORKED, says("done")), reviews(accept())])
    cast = (None, "tests/asking", None) if how == "waiting" else USUAL
    return bench.goal(bench.script(*rules), cast=cast)


ENDINGS = {
    "done": COMPLETE,
    "waiting": (Phase.EXECUTE, PlanState.WAITING),
    "failed": (Phase.EXECUTE, PlanState.ERRORED),
    "failed in Strategize": (Phase.STRATEGIZE, PlanState.ERRORED),
    "cancelled": (Phase.EXECUTE, PlanState.CANCELLED),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_code_planted_by_an_ending_server_is_removed(
    bench: ActorPlanBench, tmp_path: Path, pids: PidPipe, how: str
) -> None:
    way = "plants, and never_answers" if how == "cancelled" else "plants"
    planted = tmp_path / "planted"
    configure(tmp_path, way, MCP_PLANTED=str(planted), MCP_PIDS=str(pids.path))
    plan = ways_to_end(bench, how)
    if how == "cancelled":
        token = CancellationToken()
        job = bench.owned_job(plan, token)

        def cancel() -> None:
            pids.read(1)
            bench.cancel(plan)
            token.cancel("not wanted")

        canceller = threading.Thread(target=cancel)
        canceller.start()
        with pytest.raises(Cancelled):
            bench.handler()(job)
        canceller.join()
    else:
        bench.work(plan)
    plan = bench.now(plan)
    assert plan.phase_state == ENDINGS[how], plan.error
    assert planted.exists()
    tree = bench.parts.sandboxes.directory / plan.id / "tree"
    assert unsafe_in(tree / ".git") == []
    assert unsafe_in(tree / "inner/.git") == []


def unsafe_in(git: Path) -> list[str]:
    """Return the planted files that exist."""
    names = [name for name in ("hooks", "objects/info/alternates") if (git / name).exists()]
    planted = [name for name in names if name == "hooks" or "/etc" in (git / name).read_text()]
    config = git / "config"
    return planted + (["config"] if config.exists() and "fsmonitor" in config.read_text() else [])
