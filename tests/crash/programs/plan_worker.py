"""`python -m tests.crash.programs.plan_worker`: a separate worker for one plan, which runs one script.

Its input is JSON: `home`, `plan`, `script`, `isolation`. It prints the script's output; SIGTERM drains the
worker.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from cleveragents.core.errors import DeadlineExceeded
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.run import kind_of_plan
from tests.plan_bench import command, plan_bench

_LOOK_SECONDS = 0.1


def say(output: bytes) -> None:
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()


def main(home: Path, plan_id: str, script: str, isolation: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    strategy = Strategy((command(script),), profile="full-auto")
    with plan_bench(home, isolation=isolation) as bench:
        # After its grace period a cancelled attempt is given up, and the next reader moves its plan.
        patient = msgspec.structs.replace(bench.settings.worker, cancel_grace_seconds=60.0)
        bench.container.settings = msgspec.structs.replace(bench.settings, worker=patient)
        run = replace(bench.parts.run(on_output=say), make_strategy=lambda plan: strategy)
        worker = bench.container.worker({kind_of_plan(plan_id): JobHandler(run)}, name="plan-worker")
        worker.start()
        while not stop.is_set():
            try:
                worker.run_until_idle(_LOOK_SECONDS)
                break
            except DeadlineExceeded:
                continue
        worker.drain(0)


if __name__ == "__main__":
    told = json.load(sys.stdin)
    main(Path(told["home"]), told["plan"], told["script"], told["isolation"])
