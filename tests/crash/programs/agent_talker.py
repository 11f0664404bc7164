"""`python -m tests.crash.programs.agent_talker ORDER`: runs a plan whose actor talks to an agent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from tests.agent_bench import agent_bench
from tests.unit.actors.test_acp_plans import talker


def main(order: dict[str, str]) -> None:
    with agent_bench(Path(order["home"])) as bench:
        actor = talker(*json.loads(order["prompt"]))
        bench.actors[actor.name] = actor
        casting = RoleAssignment(None, actor.name, None, "")
        bench.strategies[order["plan"]] = Strategy((), casting=casting, profile="full-auto")
        bench.work(bench.parts.plans.get(order["plan"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
