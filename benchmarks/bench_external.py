"""Ten external agents in parallel in one process: their overhead, the delay of a cancellation, and orphans.

The agent is a script that edits files for ten seconds. The overhead is the CPU time of this process and of
the guard processes, per second of agent work, from the moment when all agents work. It includes finding and
recording their changes, but not making their sandboxes. A cancellation is timed from the request until no
process of the agent is alive: for agents that end when asked, and for agents that do not, which get 2
seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan

__all__ = ["ExternalAgentsAtOnce"]

_AGENTS = 10
_SECONDS = 10.0
_ROUNDS = 3
_READY_SECONDS = 120.0
_AGENT = """
import pathlib, signal, sys, time
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
until = time.monotonic() + float(sys.argv[1])
number = 0
while time.monotonic() < until:
    number += 1
    pathlib.Path(f"made-{number % 20}.txt").write_text(f"{number}\\n" * 50)
    if number == 1:
        print("ready", flush=True)
    if number % 20 == 0:
        print("edited", number, flush=True)
    time.sleep(0.05)
"""
_ACTOR = """\
name: bench/{kind}
type: command
argv: [{python}, {script}, "{seconds}", {kind}]
prompt: ${{task}}
"""


class ExternalAgentsAtOnce:
    """Ten agents in parallel, in their sandboxes."""

    timeout = 600

    def setup(self) -> None:
        self._folder = TemporaryDirectory()
        home = self._home = Path(self._folder.name)
        self._numbers = count()
        repository = home / "repository"
        repository.mkdir()
        for n in range(200):
            (repository / f"f{n}.txt").write_text(f"file {n}\n" * 20)
        subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
        subprocess.run(["git", "add", "-A"], cwd=repository, check=True)
        identity = ["-c", "user.name=b", "-c", "user.email=b@example.org"]
        subprocess.run(["git", *identity, "commit", "-qm", "first"], cwd=repository, check=True)
        (home / "agent.py").write_text(_AGENT)
        actors = home / "config" / "cleveragents" / "actors"
        actors.mkdir(parents=True)
        for kind, seconds in (("works", _SECONDS), ("polite", 600.0), ("deaf", 600.0)):
            text = _ACTOR.format(kind=kind, python=sys.executable, script=home / "agent.py", seconds=seconds)
            (actors / f"{kind}.yaml").write_text(text)
        os.environ["XDG_CONFIG_HOME"] = str(home / "config")

    def teardown(self) -> None:
        self._folder.cleanup()

    def track_cpu_per_agent_second(self) -> float:
        """CPU milliseconds of overhead per second of an agent."""
        return self._worked[0]

    def track_wall_beside_the_agents(self) -> float:
        """The time from the first job's start to the last plan's end, relative to the ten seconds."""
        return self._worked[1]

    def track_left_behind(self) -> float:
        """New processes, threads and descriptors after the container is closed."""
        return self._worked[2]

    def track_cancel_p50(self) -> float:
        return _percentile(self._cancelled("polite"), 0.5)

    def track_cancel_p99(self) -> float:
        return _percentile(self._cancelled("polite"), 0.99)

    def track_cancel_deaf_p99(self) -> float:
        return _percentile(self._cancelled("deaf"), 0.99)

    track_cpu_per_agent_second.unit = "ms"
    track_wall_beside_the_agents.unit = "ratio"
    track_left_behind.unit = "count"
    track_cancel_p50.unit = track_cancel_p99.unit = track_cancel_deaf_p99.unit = "s"

    @cached_property
    def _worked(self) -> tuple[float, float, float]:
        from cleveragents.plans.model.plan import PlanState

        with self._plans("works", 1) as (worker, _, _, _):
            worker.run_until_idle(self.timeout)  # one-time imports and set-up
        before = _belongings()
        guards: dict[int, float] = {}
        over = threading.Event()
        watch = threading.Thread(target=_watch_guards, args=(guards, over))
        with self._plans("works", _AGENTS) as (worker, parts, plans, began):
            watch.start()
            spent = time.process_time()
            worker.run_until_idle(self.timeout)
            wall = time.perf_counter() - began
            spent = time.process_time() - spent
            over.set()
            watch.join()
            assert {parts.plans.get(plan.id).state for plan in plans} == {PlanState.COMPLETE}
        ours = spent + sum(guards.values())
        return ours * 1000 / (_AGENTS * _SECONDS), wall / _SECONDS, float(_more_than(before))

    def _cancelled(self, kind: str) -> list[float]:
        known: dict[str, list[float]] = self.__dict__.setdefault("_times", {})
        if kind not in known:
            known[kind] = [seconds for _ in range(_ROUNDS) for seconds in self._cancel_round(kind)]
        return known[kind]

    def _cancel_round(self, kind: str) -> list[float]:
        """Cancel all agents one after the other while they work, and time each."""
        import psutil

        times: list[float] = []
        with self._plans(kind, _AGENTS) as (worker, parts, plans, _):
            for plan in plans:
                root = str(parts.sandboxes.open(plan.id).root)
                tree = [process for process in psutil.process_iter() if _works_in(process, root)]
                assert tree, "the agent is at work"
                began = time.perf_counter()
                parts.lifecycle.cancel(parts.plans.get(plan.id), "bench")
                while any(_is_alive(process) for process in tree):
                    time.sleep(0.002)
                times.append(time.perf_counter() - began)
            worker.run_until_idle(self.timeout)
        return times

    @contextmanager
    def _plans(self, kind: str, many: int) -> Iterator[tuple[AsyncWorker, PlanParts, list[Plan], float]]:
        """Start `many` plans and wait until each agent is ready."""
        import msgspec

        from cleveragents.app.container import Container
        from cleveragents.config.settings import Settings
        from cleveragents.jobs.ports import JobHandler
        from cleveragents.plans.output_recorder import PlanWatch
        from cleveragents.plans.ports.plans import PlanDraft
        from cleveragents.plans.run import kind_of_plan

        state = self._home / f"state-{next(self._numbers)}"
        state.mkdir()
        facts = {"state": {"directory": str(state)}, "database": {"url": f"sqlite:///{state}/state.db"}}
        settings = msgspec.convert(facts, Settings)
        request: dict[str, Any] = {"arguments": {"goal": "g"}, "actor": f"bench/{kind}", "model": ""}
        heard: dict[str, threading.Event] = {}

        def watch(plan: Plan) -> PlanWatch:
            return PlanWatch(on_output=lambda chunk: heard[plan.id].set())

        with Container(settings) as container:
            parts = container.plan_parts
            new = PlanDraft("g", "builtin/goal", str(self._home / "repository"), request)
            plans = [parts.lifecycle.create(new) for _ in range(many)]
            heard |= {plan.id: threading.Event() for plan in plans}
            handlers = {kind_of_plan(plan.id): JobHandler(parts.run(watch=watch)) for plan in plans}
            worker = container.worker(handlers, name="bench", concurrency=many)
            began = time.perf_counter()
            worker.start()
            for event in heard.values():
                assert event.wait(_READY_SECONDS), [parts.plans.get(plan.id).error for plan in plans]
            yield worker, parts, plans, began


def _watch_guards(found: dict[int, float], over: threading.Event) -> None:
    """Store the latest CPU seconds of the guard processes in `found` until `over` is set."""
    import psutil

    while not over.wait(0.5):
        for child in psutil.Process().children():
            try:
                if any(word.endswith("guard.py") for word in child.cmdline()):
                    times = child.cpu_times()
                    found[child.pid] = times.user + times.system
            except psutil.Error:
                continue


def _works_in(process: Any, root: str) -> bool:
    import psutil

    try:
        return bool(str(process.cwd()).startswith(root))
    except (psutil.Error, OSError):
        return False


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _belongings() -> tuple[int, int, int]:
    import psutil

    me = psutil.Process()
    return len(me.children(recursive=True)), threading.active_count(), me.num_fds()


def _more_than(before: tuple[int, int, int]) -> int:
    return sum(max(0, now - then) for now, then in zip(_belongings(), before, strict=True))


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
