"""Plans: recording a change, the diff of many files, and many plans in parallel on one repository.

Recording is compared with writing and fsyncing the same bytes; the diff with `git diff` of the same files in
an ordinary clone. Many plans are measured in seconds per plan, which should not grow with their number. A
list of plans with long records is compared with a list of plans without records.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import structlog
from sqlalchemy import Connection, insert, update

from benchmarks.ratio import ratio
from cleveragents.api.client import Client, connect
from cleveragents.app.container import Container
from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.config.settings import Settings
from cleveragents.core.change import Difference, entries_between
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.json_value import FrozenObject
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.run import kind_of_plan
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.storage.database import open_database
from cleveragents.storage.tables import plans, tool_calls

__all__ = ["DiffOfManyFiles", "ListOfPlans", "ManyPlans", "RecordingAChange"]

_BYTES = 4096
_CHANGES = 50
_FILES = 1000


def git(directory: Path, *arguments: str) -> bytes:
    """Run git with an identity and return its output."""
    identity = ["-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "gc.auto=0"]
    done = subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)
    return done.stdout


def repository(place: Path, files: int) -> Path:
    """Create a committed repository with `files` small files."""
    place.mkdir()
    git(place, "init", "--quiet")
    for number in range(files):
        folder = place / f"part{number % 20}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number}.txt").write_text(f"colour {number}\nsecond line\n" * 20)
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "all")
    return place


def quiet() -> None:
    """Disable logging: a hundred plans would flood the output."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def settings(place: Path) -> Settings:
    """Return settings that keep everything in one directory."""
    return msgspec.convert(
        {
            "state": {"directory": str(place)},
            "database": {"url": f"sqlite:///{place}/state.db"},
            "worker": {"concurrency": 8, "poll_seconds": 0.05},
        },
        Settings,
    )


class _OnARepository:
    """A repository, a container, and a sandbox."""

    timeout = 600
    files = _FILES

    def setup(self) -> None:
        self._open = ExitStack()
        self._place = Path(self._open.enter_context(TemporaryDirectory()))
        self._repository = repository(self._place / "repository", self.files)
        (self._place / "state").mkdir()
        self._container = self._open.enter_context(Container(settings(self._place / "state")))
        self._parts = self._container.plan_parts
        self._plan = self._parts.plans.create(
            PlanDraft("bench", "builtin/replace", str(self._repository)), now=self._container.clock.now()
        )
        self._sandbox = self._parts.sandboxes.create(SandboxRequest(self._plan.id, self._repository))

    def teardown(self) -> None:
        self._parts.sandboxes.remove(self._plan.id)
        self._open.close()


class RecordingAChange(_OnARepository):
    """Recording a change of 4 kB with its content, compared with writing and fsyncing 4 kB.

    Aim: at most 2.
    """

    files = 100

    def track_record_ratio(self) -> float:
        context = PlanExecutionContext(self._plan.id, self._parts.changesets)
        changeset = context.start_changeset()
        contents = iter(os.urandom(_BYTES) for _ in range(10**6))
        target = self._sandbox.root / "part0" / "file0.txt"
        number = iter(range(10**6))

        def ours() -> None:
            before = self._sandbox.state_of("part0/file0.txt")
            for _ in range(_CHANGES):
                target.write_bytes(next(contents))
                after = self._sandbox.state_of("part0/file0.txt")
                context.record_changes(
                    entries_between({"part0/file0.txt": Difference(before, after)}), changeset
                )
                before = after

        def floor() -> None:
            for _ in range(_CHANGES):
                target.write_bytes(next(contents))
                with (self._place / f"kept{next(number)}").open("wb") as file:
                    file.write(next(contents))
                    file.flush()
                    os.fsync(file.fileno())

        return ratio(ours, floor)

    track_record_ratio.unit = "ratio"


class DiffOfManyFiles(_OnARepository):
    """The diff of 1,000 changed files from records, compared with `git diff` in a clone. Aim: at most 2."""

    def setup(self) -> None:
        super().setup()
        clone = self._place / "clone"
        git(self._place, "clone", "--quiet", str(self._repository), str(clone))
        for root in (clone, self._sandbox.root):
            for path in root.glob("part*/*.txt"):
                path.write_text(path.read_text().replace("colour", "color"))
        context = PlanExecutionContext(self._plan.id, self._parts.changesets)
        with context.changeset() as changeset:
            context.record_changes(entries_between(self._sandbox.scan()), changeset)
        git(clone, "status")
        self._clone = clone

    def track_diff_ratio(self) -> float:
        def ours() -> None:
            assert self._parts.result.diff(self._plan, self._sandbox)

        def floor() -> None:
            assert git(self._clone, "diff")

        return ratio(ours, floor)

    track_diff_ratio.unit = "ratio"


class ListOfPlans:
    """A list of 100 finished plans with 100 tool calls of 20 kB each, compared with a list of 100 finished
    plans without calls. Aim: at most 2; the size of the records should not matter.
    """

    timeout = 600
    _PLANS = 100
    _CALLS = 100
    _OUTPUT = "x" * 20_000

    def setup(self) -> None:
        self._open = ExitStack()
        place = Path(self._open.enter_context(TemporaryDirectory()))
        self._clients = {
            name: self._open.enter_context(connect(settings=[f"state.directory={place / name}"]))
            for name in ("long", "empty")
        }
        for name, client in self._clients.items():
            self._fill(place / name / "state.db", client, self._CALLS if name == "long" else 0)

    def teardown(self) -> None:
        self._open.close()

    def track_list_ratio(self) -> float:
        def listed(name: str) -> None:
            assert len(self._clients[name].plans.list(limit=self._PLANS).items) == self._PLANS

        return ratio(lambda: listed("long"), lambda: listed("empty"))

    track_list_ratio.unit = "ratio"

    def _fill(self, database: Path, client: Client, calls: int) -> None:
        client.plans.counts()  # creates the database
        with closing(open_database(f"sqlite:///{database}")) as opened:
            store, now = SqlPlanStore(opened, UlidSource()), datetime.now(UTC)
            made = [
                store.create(PlanDraft("bench", "builtin/command", "/bench"), now=now).id
                for _ in range(self._PLANS)
            ]
            row = {"tool": "command", "arguments": "{}", "state": "ended", "started_at": 0, "ended_at": 1}
            rows = [
                {
                    **row,
                    "plan_id": plan,
                    "number": number,
                    "call_id": f"{plan}-{number}",
                    "step": f"{number}",
                    "result": json.dumps({"output": self._OUTPUT}),
                }
                for plan in made
                for number in range(1, calls + 1)
            ]

            def finish(connection: Connection) -> None:
                connection.execute(update(plans).values(phase="execute", state="complete"))
                if rows:
                    connection.execute(insert(tool_calls), rows)

            opened.write(finish)


class ManyPlans:
    """Seconds per plan for 1, 10 and 100 parallel plans of builtin/replace on one repository of 200 files."""

    params = (1, 10, 100)
    param_names = ("plans",)
    timeout = 900

    def setup(self, plans: int) -> None:
        quiet()
        self._open = ExitStack()
        self._place = Path(self._open.enter_context(TemporaryDirectory()))
        self._repository = repository(self._place / "repository", 200)
        (self._place / "state").mkdir()
        self._container = self._open.enter_context(Container(settings(self._place / "state")))

    def teardown(self, plans: int) -> None:
        self._open.close()

    def track_seconds_a_plan(self, plans: int) -> float:
        return self._run_all(plans) / plans

    track_seconds_a_plan.unit = "seconds"

    def track_peak_megabytes(self, plans: int) -> float:
        self._run_all(plans)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    track_peak_megabytes.unit = "MB"

    def _run_all(self, number: int) -> float:
        parts = self._container.plan_parts
        arguments = {"pattern": "colour", "replacement": "color", "glob": "part1/*.txt"}
        request = FrozenObject({"arguments": arguments, "profile": "auto", "directory": ""})
        began = time.perf_counter()
        plans = [
            parts.lifecycle.create(PlanDraft("bench", "builtin/replace", str(self._repository), request))
            for _ in range(number)
        ]
        handler = JobHandler(run=parts.run())
        worker = self._container.worker({kind_of_plan(plan.id): handler for plan in plans}, name="bench")
        worker.start()
        worker.run_until_idle(800)
        seconds = time.perf_counter() - began
        for plan in plans:
            assert parts.plans.get(plan.id).state is PlanState.COMPLETE, parts.plans.get(plan.id)
            assert len(parts.history.differences(plan.id)) == 10
            parts.sandboxes.remove(plan.id)
        return seconds
