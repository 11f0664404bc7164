"""`python -m tests.crash.programs.corrector`: corrects, revises or plans a plan again, and dies on request.

Each line of its input is JSON: `home`, the operation `do`, and the `point` at which the process is killed.
It forks for each, so that the imports happen once, and answers with the child's exit status.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from cleveragents.testing.clock import CrashAt
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
    strategizes,
)
from tests.crash.programs.forking import serve
from tests.crash.programs.goal_runner import HEAVY

__all__ = ["GUIDANCE", "RULES", "at_work", "known"]

GUIDANCE = "people want comments"
SCRIPT = "script-0.yaml"


def _decided(question: str, choice: str) -> dict[str, Any]:
    return {"question": question, "choice": choice, "rationale": "it fits"}


def _planned(title: str, words: str, *decisions: dict[str, Any], carries: int) -> dict[str, Any]:
    steps = [{"title": title, "instructions": words, "decisions": [carries]}]
    if carries == 2:
        steps.insert(0, {"title": "notes", "instructions": "do the notes", "decisions": [1]})
    return says({"summary": "s", "decisions": [*decisions], "steps": steps})


def _writes(words: str, path: str) -> dict[str, Any]:
    turn = answer(call("write", path=path, content=f"{path}\n"))
    return executes(turn, says("done"), when={"first_user": words})


RULES = (
    executes(
        answer(call("write", path="settings.json", content="{}\n")),
        answer(call("answer_comment", comment=1, resolution="resolved")),
        says("done"),
        when={"first_user": "Changes to your result are requested"},
    ),
    strategizes(
        _planned("other", "do it as YAML", _decided("Format?", "YAML"), carries=3),
        when={"first_user": "This was planned before"},
    ),
    strategizes(
        _planned("file", "do it as JSON", _decided("Where?", "here"), _decided("Format?", "JSON"), carries=2)
    ),
    _writes("do the notes", "notes.txt"),
    _writes("do it as JSON", "settings.json"),
    _writes("do it as YAML", "settings.yaml"),
    reviews(
        says({"verdict": "rethink", "findings": [GUIDANCE], "summary": "no"}),
        when={"first_user": "settings.json", "system": "You review a change"},
    ),
    reviews(accept()),
)


def at_work(bench: ActorPlanBench, home: Path, *, reviewed: bool) -> None:
    """Create a plan and run it as far as it goes."""
    cast = USUAL if reviewed else (*USUAL[:2], None)
    bench.work(bench.goal(f"scripted/{home / SCRIPT}", cast=cast))


def known(bench: ActorPlanBench, home: Path, *, reviewed: bool) -> None:
    """Return the actions for plans that another process created."""
    casting = RoleAssignment(*USUAL[:2], USUAL[2] if reviewed else None, f"scripted/{home / SCRIPT}")
    for plan in bench.parts.plans.list():
        bench.strategies[plan.id] = Strategy((), profile="full-auto", casting=casting)


def _child(order: Mapping[str, Any]) -> None:
    home, faults = Path(order["home"]), CrashAt(order["point"])
    with actor_plan_bench(home, faults=faults) as bench:
        if order["do"] == "think again":
            at_work(bench, home, reviewed=True)
            return
        known(bench, home, reviewed=False)
        (plan,) = bench.parts.plans.list()
        if order["do"] == "revise":
            bench.parts.comments.revise(plan)
            return
        bench.parts.correction.correct(plan, 2, GUIDANCE)


if __name__ == "__main__":
    serve(_child, heavy=HEAVY)
