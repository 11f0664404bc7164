"""The cost of one plan: transactions, bytes, CPU. The constants of `scale_simulation.py` come from here.

    python -m benchmarks.plan_costs [--plans 4]

Plans run one after the other on a worker in this process, on SQLite: a command and a goal with a scripted
model, each on a directory and on a git remote, each with a check, each applied. Transactions are all writes
of the process in that time, including heartbeats. The output is a table and JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_plans import quiet
from cleveragents.app.container import Container
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.storage.database import Database
from tests.crash.plan_soak import model_script, wanted
from tests.crash.programs.machine_worker import settings_of
from tests.plan_bench import new_repository
from tests.remotes import Remote, new_remote

__all__ = ["main"]

_PATIENCE_SECONDS = 60.0

Json = dict[str, Any]


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Return a list with one number: the transactions that this process has written."""
    written = [0]
    original = Database.write

    def write(self: Database, unit: Callable[..., Any]) -> Any:
        written[0] += 1
        return original(self, unit)

    Database.write = write
    try:
        yield written
    finally:
        Database.write = original


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _bytes_in(directory: Path) -> int:
    found = [path.lstat() for path in directory.rglob("*") if not path.is_symlink()]
    return sum(one.st_size for one in found if stat.S_ISREG(one.st_mode))


class _Costs:
    """A machine that runs plans, one at a time."""

    def __init__(self, home: Path, container: Container, written: list[int]) -> None:
        self._home = home
        self._container = container
        self._written = written
        self._repository = new_repository(home / "repository")
        self._remote: Remote = new_remote(home)
        self._script = model_script(home)
        self._number = 0

    def of(self, kind: str, *, remote: bool, plans: int) -> Json:
        resource = self._remote.resource if remote else str(self._repository)
        self._run(kind, resource)  # one-time costs of the first plan
        before = self._standing()
        for _ in range(plans):
            self._run(kind, resource)
        after = self._standing()
        return {name: (after[name] - before[name]) / plans for name in before}

    def _standing(self) -> Json:
        state = self._home / "state"
        return {
            "transactions": self._written[0],
            "cpu_seconds": _cpu(),
            "seconds": time.monotonic(),
            "database_bytes": sum(path.stat().st_size for path in state.glob("state.db*")),
            "state_bytes": _bytes_in(state),
            "remote_bytes": _bytes_in(self._remote.directory / "objects"),
        }

    def _run(self, kind: str, resource: str) -> None:
        action, request = wanted(kind, self._number, self._script)
        self._number += 1
        kept = freeze({"queue": "plans", "profile": "full-auto", "apply": "auto", **request})
        assert isinstance(kept, FrozenObject)
        parts = self._container.plan_parts
        plan = parts.lifecycle.create(PlanDraft(f"make number {self._number - 1}", action, resource, kept))
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not (now := parts.plans.get(plan.id)).state.ended:
            assert time.monotonic() < give_up, now
            time.sleep(0.02)
        assert now.state.value == "applied", now.error


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_costs")
    parser.add_argument("--plans", type=int, default=4, help="of each kind")
    plans = parser.parse_args(arguments).plans
    quiet()
    found: Json = {}
    with tempfile.TemporaryDirectory(prefix="costs-") as directory, _counted() as written:
        home = Path(directory)
        (home / "state").mkdir()
        url = f"sqlite:///{home}/state/state.db"
        with Container(settings_of(home / "state", url)) as container:
            container.audit.sequence_pending()
            with WorkerParts(container).start(name="costs", concurrency=1):
                costs = _Costs(home, container, written)
                for kind in ("command", "goal"):
                    for remote in (False, True):
                        name = f"{kind} on a {'remote' if remote else 'directory'}"
                        found[name] = costs.of(kind, remote=remote, plans=plans)
                        told = ", ".join(f"{what} {value:,.2f}" for what, value in found[name].items())
                        print(f"{name}: {told}", flush=True)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
