"""Models that loop, answer nonsense, write half a call, exceed their context or never stop.

Whether a model calls tools natively, writes calls as text or works with `builtin/solo`: the plan comes to
rest after a bounded number of requests, states the reason, and loses no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cleveragents.models.script_document import read_script
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.testing.scripted_server import ScriptedServer
from tests.actor_bench import actor, thinker
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, answer, call, says

MODEL = "openai/scripted"
MOST_REQUESTS = 10
COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
READ = {"name": "read", "arguments": {"path": "a.txt"}}
TOO_LONG = "This model's maximum context length is 4096 tokens. However, your messages have 9000 tokens."
HALF_BLOCK = "a.txt\n```\nfirst line of a file that"


def in_text(value: object) -> dict[str, Any]:
    return says(f"```json\n{json.dumps(value)}\n```")


BEHAVIOURS: dict[str, dict[str, dict[str, Any]]] = {
    "the same call again and again": {
        "native": answer(call("read", path="a.txt")),
        "text": in_text(READ),
        "solo": in_text(READ),
    },
    "half a call": {
        "native": answer({"tool": "write", "raw": '{"path": "new.txt", "content": "ab'}),
        "text": says('```json\n{"name": "write", "arguments": {"path": "new.txt", "content": "ab'),
        "solo": says(HALF_BLOCK),
    },
    "nonsense": {kind: says("lorem { ipsum ]] </tool_call> dolor") for kind in ("native", "text", "solo")},
    "a context that is exceeded": {
        kind: answer(fault={"status": 400, "message": TOO_LONG}) for kind in ("native", "text", "solo")
    },
    "an answer without an end": {
        kind: answer(text="x", repeat=5_000_000) for kind in ("native", "text", "solo")
    },
}
REASONS = {
    ("the same call again and again", "native"): "read was made 8 times in a row with the same result",
    ("the same call again and again", "text"): "read was made 8 times in a row with the same result",
    ("half a call", "native"): "failed 3 times in the same way",
    ("half a call", "text"): "the call ends inside a string",
    ("a context that is exceeded", "native"): "choose a model with a larger context window",
    ("a context that is exceeded", "text"): "choose a model with a larger context window",
    ("a context that is exceeded", "solo"): "choose a model with a larger context window",
    ("an answer without an end", "native"): "the answer was cut off",
    ("an answer without an end", "text"): "the answer was cut off",
    ("an answer without an end", "solo"): "the answer was cut off",
}
CASES = [(what, kind) for what, kinds in BEHAVIOURS.items() for kind in kinds]


@contextmanager
def misbehaving(
    home: Path, kind: str, reply: dict[str, Any]
) -> Iterator[tuple[ActorPlanBench, ScriptedServer, Plan]]:
    prices = home / "prices.toml"
    mode = "native" if kind == "native" else "text"
    prices.write_text(f'[models."{MODEL}"]\ntool_calls = "{mode}"\n')
    script = read_script(json.dumps({"version": 1, "rules": [{"reply": reply}]}), "a script")
    with ScriptedServer(script) as server:
        models = {"base_url": server.base_url, "timeout_seconds": 30.0, "prices": str(prices)}
        with actor_plan_bench(home, models=models) as bench:
            bench.actors["tests/worker"] = actor(
                thinker(tools=("read", "write"), max_output_tokens=500), name="tests/worker"
            )
            cast = (None, "builtin/solo" if kind == "solo" else "tests/worker", None)
            yield bench, server, bench.goal(MODEL, cast=cast)


@pytest.mark.parametrize(("what", "kind"), CASES)
def test_a_bad_model_is_bounded_and_reported(tmp_path: Path, what: str, kind: str) -> None:
    with misbehaving(tmp_path, kind, BEHAVIOURS[what][kind]) as (bench, server, plan):
        plan = bench.work(plan)
        server.wait_until(lambda seen: seen.open == 0)
        assert plan.phase is Phase.EXECUTE
        assert not plan.state.running, plan
        assert server.statistics().requests <= MOST_REQUESTS
        assert plan.phase_state == COMPLETE or plan.error, "a failed plan states its reason"
        assert bench.parts.history.changes(plan.id) == [], "half a change is not recorded"
        assert bench.spent(plan).reserved.tokens == 0
        bench.ensure_consistent(plan)
        if (what, kind) in REASONS:
            assert REASONS[what, kind] in str(plan.error)


def test_a_call_with_another_result_is_no_loop(tmp_path: Path) -> None:
    """The model is told from the third time on, and a different call starts the count again."""
    read = answer(call("read", path="a.txt"))
    other = answer(call("read", path="b.txt"))
    turns = [*[read] * 7, other, *[read] * 7, says("done")]
    with actor_plan_bench(tmp_path) as bench:
        bench.actors["tests/worker"] = actor(thinker(tools=("read",)), name="tests/worker")
        model = bench.script({"turns": turns})
        plan = bench.work(bench.goal(model, cast=(None, "tests/worker", None)))
        assert plan.phase_state == COMPLETE, plan.error
        assert bench.tools_of(plan) == ["read"] * 15
