"""A tree of 40 sub-plans, three levels deep, with a scripted model that takes 500 ms for every answer.

The tree has four parts of three parts of two parts each. A part with sub-parts asks the model twice: how to
split it, and whether the result is good. A leaf asks four times and writes one file. The bound is the
duration of a list schedule of these answers with `max_parallel` parallel plans, if everything else
(sandboxes, merges, records) takes no time. Aim: ≤ 1.5 of it. Memory and descriptors are measured over several
trees in one process; ended sub-plans should leave nothing behind.
"""

from __future__ import annotations

import gc
import heapq
import json
import os
import subprocess
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["TreeOfPlans", "WhatTreesTake", "list_schedule_seconds"]

_SHAPE = (4, 3, 2)
_LATENCY = 0.5
_AT_ONCE = 4
_ANSWERS_OF_LEAF = 4
_SECONDS_LIMIT = 600.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Trees:
    """A repository, and trees of plans on it."""

    timeout = _SECONDS_LIMIT

    def setup(self, *_: int) -> None:
        self._folder = TemporaryDirectory()
        self._home = Path(self._folder.name)
        self._numbers = count()
        self._repository = _repository(self._home / "repository")
        os.environ["XDG_CONFIG_HOME"] = str(self._home / "config")

    def teardown(self, *_: int) -> None:
        self._folder.cleanup()

    def _seconds(
        self, max_parallel: int, latency: float, *, trees: int = 1, after_each: Any = lambda: None
    ) -> float:
        """Return the duration of the last tree, from its first request until it was at rest."""
        import msgspec

        from cleveragents.app.container import Container
        from cleveragents.config.settings import Settings
        from cleveragents.jobs.ports import JobHandler
        from cleveragents.plans.jobs.names import kind_of_plan
        from cleveragents.plans.model.plan import Phase, PlanState
        from cleveragents.plans.ports.plans import PlanDraft

        state = self._home / f"state-{next(self._numbers)}"
        state.mkdir()
        model = f"scripted/{_script(self._home / 'script.yaml', latency)}"
        settings = msgspec.convert(
            {
                "state": {"directory": str(state)},
                "database": {"url": f"sqlite:///{state}/state.db"},
                "plan": {"max_parallel": max_parallel},
            },
            Settings,
        )
        request = {"arguments": {"goal": "whole"}, "model": model, "profile": "full-auto"}
        with Container(settings) as container:
            parts = container.plan_parts
            container.models.get(model)
            for _ in range(trees):
                began = time.perf_counter()
                root = parts.lifecycle.create(
                    PlanDraft("whole", "builtin/goal", str(self._repository), request)
                )
                handlers = {kind_of_plan(root.id): JobHandler(parts.run())}
                worker = container.worker(handlers, name="bench", concurrency=max_parallel)
                worker.start()
                worker.run_until_idle(_SECONDS_LIMIT)
                seconds = time.perf_counter() - began
                ended = parts.plans.get(root.id)
                assert ended.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), (
                    ended.phase_state,
                    ended.error,
                )
                written = sorted(path.name for path in parts.sandboxes.open(root.id).root.glob("part-*"))
                assert len(written) == _leaves(_SHAPE), written
                worker.close()
                after_each()
        return seconds


class TreeOfPlans(_Trees):
    """The wall time of a tree."""

    params = (4, 16)
    param_names = ("max_parallel",)

    def track_bound_ratio(self, max_parallel: int) -> float:
        """The tree's wall time relative to the list schedule's."""
        return self._seconds(max_parallel, _LATENCY) / list_schedule_seconds(_SHAPE, max_parallel, _LATENCY)

    track_bound_ratio.unit = "ratio"


class WhatTreesTake(_Trees):
    """The resources of trees, with a model that answers immediately, and what they leave behind."""

    def track_own_seconds(self) -> float:
        """CPU seconds, including child processes, per sub-plan of the second tree."""
        looks: list[float] = []
        self._seconds(_AT_ONCE, 0.0, trees=2, after_each=lambda: looks.append(_processor_seconds()))
        return (looks[1] - looks[0]) / _size(_SHAPE)

    def track_memory_left(self) -> float:
        """KiB of memory that each ended sub-plan leaves behind, after a first tree."""
        return self._left(_resident) / (2 * _size(_SHAPE)) / 1024

    def track_descriptors_left(self) -> float:
        """Descriptors that two more trees leave open."""
        return self._left(_descriptors)

    track_own_seconds.unit = "s"
    track_memory_left.unit = "KiB"
    track_descriptors_left.unit = "descriptors"

    def _left(self, count_now: Callable[[], int]) -> int:
        looks: list[int] = []

        def look() -> None:
            gc.collect()
            looks.append(count_now())

        self._seconds(_AT_ONCE, 0.0, trees=3, after_each=look)
        return looks[-1] - looks[0]


def list_schedule_seconds(shape: tuple[int, ...], machines: int, latency: float) -> float:
    """Return the duration of a tree if only the answers take time and each plan starts as soon as a place is
    free; parents that can continue go first, as in the queue.
    """
    waiting: list[tuple[int, int, tuple[int, ...], bool]] = []
    running: list[tuple[float, int, tuple[int, ...], bool]] = []
    missing: dict[tuple[int, ...], int] = {}
    order = count()

    def ready(plan: tuple[int, ...], *, ends: bool) -> None:
        heapq.heappush(waiting, (0 if ends else 1, next(order), plan, ends))

    ready((), ends=False)
    now = 0.0
    while waiting or running:
        while waiting and len(running) < machines:
            _, _, plan, ends = heapq.heappop(waiting)
            is_leaf = len(plan) == len(shape)
            answers = _ANSWERS_OF_LEAF if is_leaf else 1
            heapq.heappush(running, (now + answers * latency, next(order), plan, ends or is_leaf))
        now, _, plan, ended = heapq.heappop(running)
        if not ended:
            missing[plan] = shape[len(plan)]
            for number in range(shape[len(plan)]):
                ready((*plan, number), ends=False)
        elif plan:
            parent = plan[:-1]
            missing[parent] -= 1
            if not missing[parent]:
                ready(parent, ends=True)
    return now


def _size(shape: tuple[int, ...]) -> int:
    """Return the number of sub-plans of such a tree."""
    total, level = 0, 1
    for fan_out in shape:
        level *= fan_out
        total += level
    return total


def _leaves(shape: tuple[int, ...]) -> int:
    leaves = 1
    for fan_out in shape:
        leaves *= fan_out
    return leaves


def _script(path: Path, latency: float) -> Path:
    """Write the model's script, which matches the first line of the goal with the numbers of the part."""

    def answered(when: dict[str, str], *texts: Any) -> dict[str, Any]:
        turns = [{"delay_seconds": latency, **text} for text in texts]
        return {"when": when, "turns": turns}

    def strategy(steps: list[dict[str, Any]]) -> dict[str, Any]:
        decisions = [{"question": "How?", "choice": "so", "rationale": "it fits"}]
        return {"text": json.dumps({"summary": "s", "decisions": decisions, "steps": steps})}

    def splits(goal: str, name: str, fan_out: int) -> dict[str, Any]:
        parts = [f"{name}{number}" for number in range(fan_out)]
        return strategizes(goal, [{"title": t, "instructions": "do it", "sub_plan": True} for t in parts])

    def strategizes(goal: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
        when = {"system": "You plan changes", "first_user": rf"The goal:\s+{goal}\s"}
        return answered(when, strategy(steps))

    rules = [splits("whole", "part-", _SHAPE[0])]
    for level, fan_out in enumerate(_SHAPE[1:]):
        rules.append(splits(rf"part-(?P<p>\d{{{level + 1}}})", "part-${p}", fan_out))
    digits = rf"(?P<p>\d{{{len(_SHAPE)}}})"
    rules += [
        strategizes(f"part-{digits}", [{"title": "write", "instructions": "write ${p}"}]),
        answered(
            {"system": "You change files", "first_user": rf"Your task:\s+write {digits}"},
            {"calls": [{"tool": "write", "arguments": {"path": "part-${p}.txt", "content": "${p}\n"}}]},
            {"text": "done"},
        ),
        answered(
            {"system": "You review a change"},
            {"text": json.dumps({"verdict": "accept", "findings": [], "summary": "good"})},
        ),
    ]
    path.write_text(json.dumps({"version": 1, "rules": rules}))
    return path


def _repository(path: Path) -> Path:
    path.mkdir()
    for number in range(20):
        (path / f"file{number}.py").write_text(f"def f{number}():\n    return {number}\n")
    identity = ["-c", "user.name=b", "-c", "user.email=b@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=path, check=True)
    return path


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
