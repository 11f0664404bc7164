"""`python -m tests.crash.programs.tree_runner`: a tree of plans in a process that dies on request.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed. It forks for each,
so that the imports happen once, and answers with the child's exit status. Without a `point` it writes the
names of all reached fault points to the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleveragents.core.faults import FaultPoints
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.crash.programs.forking import serve
from tests.plan_bench import command, edit, write
from tests.tree_bench import TreeBench, part, tree_bench

PARTS = (
    part("first", write("made.txt", "made\n"), command("echo ran >> first.log")),
    part("other", edit("a.txt", "one", "ONE")),
    part("then", edit("made.txt", "made", "made, and more"), needs=[1, 2]),
)
"""Two parallel parts, and one that needs both."""


def carried_through(home: Path, faults: FaultPoints | None = None) -> Plan:
    """Run a tree as far as it goes, however often it was started and killed before."""
    with tree_bench(home, faults=faults) as bench:
        root = next((plan for plan in bench.parts.plans.list() if plan.parent_id is None), None)
        if root is None:
            return bench.worked(*PARTS)
        bench.know(part(root.goal, parts=PARTS))
        return bench.work(taken_up(bench, root))


def taken_up(bench: TreeBench, root: Plan) -> Plan:
    """Resume like `agents plan resume`."""
    root = bench.parts.lifecycle.reconciled(root)
    if root.phase_state == (Phase.EXECUTE, PlanState.COMPLETE):
        return root
    return bench.parts.lifecycle.resume(root)


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    carried_through(home, CrashAt(order["point"], order["nth"]) if "point" in order else recorded)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child)
