"""`python -m tests.races.plan_decider`: processes that decide about plans at the same moment.

Each line of its input is JSON: `home`, and `deeds`, each the name of an action and its subject. A process is
forked for each; when all have read their plan, all are released. The answer is a list of outcomes: the state
of the plan, or the name of the error.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from cleveragents.core.errors import CleverAgentsError
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.run import kind_of_plan
from tests.fork_server import COMMANDS
from tests.plan_bench import PlanBench, plan_bench


def resumed(bench: PlanBench, plan: Plan) -> Plan:
    return worked(bench, bench.parts.lifecycle.resume(plan))


def worked(bench: PlanBench, plan: Plan) -> Plan:
    """Run the plan as `agents run` does: until it has no job left."""
    handler = JobHandler(bench.parts.run())
    worker = bench.container.worker({kind_of_plan(plan.id): handler}, name=f"run-{os.getpid()}")
    worker.start()
    worker.run_until_idle(60)
    worker.close()
    return bench.now(plan)


def replaced(bench: PlanBench, arguments: Mapping[str, Any]) -> Plan:
    """`agents run --action builtin/replace --yes`."""
    request = {"arguments": arguments, "profile": "full-auto"}
    new = PlanDraft("replace", "builtin/replace", str(bench.repository), request)
    return bench.apply(worked(bench, bench.parts.lifecycle.create(new)))


DEEDS: Mapping[str, Callable[[PlanBench, Plan], Plan]] = {
    "resume": resumed,
    "apply": lambda bench, plan: bench.parts.apply.apply(plan, CancellationToken())[0],
    "undo": lambda bench, plan: bench.parts.apply.undo(plan)[0],
    "cancel": lambda bench, plan: bench.parts.lifecycle.cancel(plan, f"by {os.getpid()}"),
    "reject": lambda bench, plan: bench.parts.lifecycle.reject(plan),
    "approve": lambda bench, plan: bench.parts.lifecycle.answer(plan, True),
    "deny": lambda bench, plan: bench.parts.lifecycle.answer(plan, False),
    "delete": lambda bench, plan: (bench.parts.cleanup.delete(plan), plan)[1],
    "withdraw": lambda bench, plan: bench.parts.correction.withdraw(plan),
    "rollback": lambda bench, plan: (bench.parts.sandbox_edits.rollback(plan, 2), bench.now(plan))[1],
}


def _child(home: Path, deed: str, about: Any, ready: int, go: int) -> str:
    with plan_bench(home) as bench:
        plan = None if deed == "replace" else bench.parts.plans.get(about)
        os.write(ready, b".")
        os.read(go, 1)
        try:
            done = replaced(bench, about) if plan is None else DEEDS[deed](bench, plan)
        except CleverAgentsError as error:
            return type(error).__name__
        return done.state.value


def _decided(home: Path, deeds: list[tuple[str, Any]]) -> list[str]:
    ready, told_ready = os.pipe()
    waits, go = os.pipe()
    answers = []
    for deed, about in deeds:
        answer, tell = os.pipe()
        if os.fork() == 0:
            os.close(go)
            try:
                os.write(tell, _child(home, deed, about, told_ready, waits).encode())
            except BaseException as error:
                os.write(tell, f"broke: {type(error).__name__}: {error}".encode())
            os._exit(0)
        os.close(tell)
        answers.append(answer)
    for _ in deeds:
        os.read(ready, 1)
    os.close(go)
    results = [_all_of(answer) for answer in answers]
    for _ in deeds:
        os.wait()
    for descriptor in (ready, told_ready, waits, *answers):
        os.close(descriptor)
    return results


def _all_of(descriptor: int) -> str:
    told = b""
    while chunk := os.read(descriptor, 4096):
        told += chunk
    return told.decode()


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    importlib.import_module(COMMANDS)  # once, not in each of the processes
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.write(json.dumps(_decided(Path(order["home"]), order["deeds"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
