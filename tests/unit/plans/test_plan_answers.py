"""Of two concurrent answers to a plan, from any process, one fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import PlanError, StalePlan
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.model.plan import PlanState
from tests.plan_bench import PlanBench, command

POINTS = [
    ("plans", "get", "after"),
    ("calls", "answer", "before"),
    ("calls", "answer", "after"),
    ("jobs", "submit", "before"),
    ("jobs", "submit", "after"),
    ("plans", "move", "before"),
    ("plans", "move", "after"),
]


@dataclass
class Interrupted:
    """A store that runs another action inside the first call of a method."""

    store: Any
    method: str
    when: str
    meanwhile: Callable[[], None] | None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        return self._interrupted(found) if name == self.method else found

    def _interrupted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **more: Any) -> Any:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None and self.when == "before":
                meanwhile()
            answer = call(*args, **more)
            if meanwhile is not None and self.when == "after":
                meanwhile()
            return answer

        return made


def tried(act: Callable[[], object]) -> str:
    try:
        act()
    except (PlanError, StalePlan) as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("point", POINTS, ids=" ".join)
def test_only_one_of_concurrent_approve_and_deny_succeeds(
    plans: PlanBench, point: tuple[str, str, str], first: bool
) -> None:
    plan = plans.done(command("echo 1"), profile="manual")
    store, method, when = point
    ours: PlanLifecycle = plans.parts.lifecycle
    said: dict[bool, str] = {}

    def other() -> None:
        said[not first] = tried(lambda: ours.answer(plan, not first))

    interrupted = Interrupted(getattr(ours, store), method, when, other)
    theirs: PlanLifecycle = replace(ours, **{store: interrupted})
    said[first] = tried(lambda: theirs.answer(plan, first))
    assert sorted(said.values())[1] == "done"
    assert sorted(said.values())[0] != "done"
    (granted,) = [answer for answer, outcome in said.items() if outcome == "done"]
    assert plans.calls(plan)[0].approval == ("granted" if granted else "denied")
    assert plans.now(plan).state is PlanState.QUEUED
