"""`python -m tests.crash.programs.merge_runner`: merges of sub-plans in a process that dies on request.

Each line of its input is JSON: `home`, and `point` and `nth` where the process is killed. It forks for each,
so that the imports happen once, and answers with the child's exit status. Without a `point` it writes the
names of all reached fault points to the home.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.faults import FaultPoints
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.testing.clock import CrashAt, RecordFaultPoints
from tests.crash.programs.forking import serve
from tests.merge_stand import MergeStand
from tests.sandbox_resources import make_repository

TEXT = "".join(f"line {number}\n" for number in range(1, 13))
FILES: dict[str, str | bytes] = {"a.txt": TEXT, "gone.txt": "gone\n", ".gitignore": "*.tmp\n"}


def prepared(home: Path) -> None:
    """Create an idle parent, and two finished children that conflict in a line."""
    stand = MergeStand(home, make_repository(home / "repository", FILES))
    with stand.container:
        parent = stand.parent()
        one, other = stand.child(parent, "the one"), stand.child(parent, "the other")
        one.writes({"a.txt": TEXT.replace("line 5\n", "ours\n"), ".gitignore": "*.tmp\n*.log\n"})
        changed = TEXT.replace("line 5\n", "theirs\n").replace("line 12\n", "bottom\n")
        other.writes({"a.txt": changed, "gone.txt": None, "new/file.txt": "new\n", "work.log": "kept\n"})
        now = stand.container.clock.now()
        stand.parts.plans.move(parent.plan, (Phase.ACTION, PlanState.ERRORED), now=now)
        plans = [worker.plan.id for worker in (parent, one, other)]
        (home / "plans.json").write_text(json.dumps(plans))


def carried_through(home: Path, faults: FaultPoints | None = None) -> None:
    """Merge both children and resolve the conflict, however often that was started and killed before."""
    stand = MergeStand(home, home / "repository", faults)
    with stand.container:
        names = json.loads((home / "plans.json").read_text())
        parent, *children = (stand.found(name) for name in names)
        for part, child in enumerate(children, start=1):
            stand.merge(parent, child, str(part))
        if stand.sub_plan_merge.open_conflicts(parent.plan.id):
            stand.container.plan_parts.manual_resolution.resolve(parent.plan, "a.txt", Take.THEIRS)


def _child(order: Mapping[str, Any]) -> None:
    home = Path(order["home"])
    recorded = RecordFaultPoints()
    faults = CrashAt(order["point"], order["nth"]) if "point" in order else recorded
    carried_through(home, faults)
    (home / "points.json").write_text(json.dumps(recorded.reached))


if __name__ == "__main__":
    serve(_child)
