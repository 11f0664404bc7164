"""`connect()`: a plan from request to undo, in this process, with its own worker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cleveragents
from cleveragents import AsyncClient, Client, Limits, LocalClient, PlanRequest, connect, connect_async
from cleveragents.api.plans.local import LocalPlans
from cleveragents.core.errors import ApplyConflict, InvalidActor, NeedsHuman, RequestRefused, UnknownPlan
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.ports.plans import PlanDraft
from tests.plan_bench import new_repository
from tests.ready_database import ready_database
from tools.async_stub import STUB, stub

NOTHING = "nothing"
QUICK = ("worker.poll_seconds=0.05", "worker.cancel_grace_seconds=1.0")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    ready_database(state / "state.db")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLEVERAGENTS_STATE_DIRECTORY", str(state))
    root = new_repository(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def client(repository: Path) -> Iterator[Client]:
    with connect(settings=QUICK) as made:
        yield made


def writes(text: str, **more: Any) -> PlanRequest:
    arguments = {"argv": ["sh", "-c", f"echo {text} > new.txt; echo said"]}
    return PlanRequest(action="builtin/command", arguments=arguments, profile="full-auto", **more)


def test_a_plan_goes_from_request_to_undo(client: Client, repository: Path) -> None:
    plan = client.plans.create(writes("hello", apply="review"))
    printed = "".join(piece.text for piece in client.plans.watch(plan.id) if piece.kind == "output")
    assert "said" in printed
    plan = client.plans.get(plan.id)
    assert (plan.state, plan.needs, plan.at_rest) == (PlanState.COMPLETE, "review", True)
    assert str(client.plans.diff(plan.id)) == "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hello"
    assert not (repository / "new.txt").exists()
    assert client.plans.apply(plan.id).state is PlanState.APPLIED
    assert (repository / "new.txt").read_text() == "hello\n"
    assert client.plans.undo(plan.id).state is PlanState.UNDONE
    assert not (repository / "new.txt").exists()


def test_a_result_that_conflicts_changes_nothing(client: Client, repository: Path) -> None:
    plan = client.plans.wait(client.plans.create(writes("theirs", apply="review")).id, timeout=60)
    (repository / "new.txt").write_text("mine\n")
    with pytest.raises(ApplyConflict) as caught:
        client.plans.apply(plan.id)
    assert caught.value.paths == ("new.txt",)
    assert (repository / "new.txt").read_text() == "mine\n"
    with pytest.raises(NeedsHuman):
        client.plans.delete(plan.id)
    client.plans.delete(plan.id, force=True)
    with pytest.raises(UnknownPlan):
        client.plans.get(plan.id)


def test_a_request_that_says_nothing_is_refused(repository: Path) -> None:
    with pytest.raises(RequestRefused):
        PlanRequest()
    with pytest.raises(RequestRefused):
        PlanRequest(goal="x", arguments={})


def test_a_repository_that_is_not_there_is_refused(client: Client) -> None:
    with pytest.raises(RequestRefused) as caught:
        client.plans.create(writes("x", repository="nowhere"))
    assert caught.value.where == "repository"


def test_a_tighter_repository_configuration_is_followed_or_refused(
    client: Client, repository: Path, tmp_path: Path
) -> None:
    other = new_repository(tmp_path / "other")
    client.plans.create(writes("x", repository=other))
    (other / ".cleveragents.toml").write_text("[plan]\nmax_depth = 1\n")
    with pytest.raises(RequestRefused, match=r"stricter values for plan\.max_depth") as caught:
        client.plans.create(writes("x", repository=other))
    assert caught.value.where == "repository"
    with connect(settings=QUICK, directory=other) as careful:
        careful.plans.create(writes("x", repository=other))
        careful.plans.create(writes("x", repository=repository))
    with connect(settings=[*QUICK, "plan.max_depth=2"]) as overriding:  # settings outrank every file
        overriding.plans.create(writes("x", repository=other))


def test_closing_twice_changes_nothing(client: Client) -> None:
    client.close()
    client.close()


def test_asyncio_has_the_same_methods(repository: Path) -> None:
    async def run() -> tuple[PlanState, str]:
        async with connect_async(settings=QUICK) as client:
            assert isinstance(client, AsyncClient)
            plan = await client.plans.create(writes("hello", apply="review"))
            printed = [piece.text async for piece in client.plans.watch(plan.id) if piece.kind == "output"]
            applied = await client.plans.apply(plan.id)
            with pytest.raises(UnknownPlan):
                await client.plans.get("nothing")
            return applied.state, "".join(printed)

    state, printed = asyncio.run(run())
    assert state is PlanState.APPLIED
    assert "said" in printed


def test_the_signatures_of_the_async_client_are_those_of_the_client() -> None:
    """`python -m tools.async_stub` makes it so."""
    assert STUB.read_text(encoding="utf-8") == stub()


def test_every_public_name_is_there_and_costs_nothing_until_it_is_used() -> None:
    assert set(cleveragents.__all__) <= set(dir(cleveragents))
    assert all(getattr(cleveragents, name) is not None for name in cleveragents.__all__)
    program = "import sys, cleveragents; print([m for m in sys.modules if m.startswith('cleveragents.')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert done.stdout.strip() == "['cleveragents.moved']"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(cleveragents, NOTHING)


def test_a_client_runs_its_own_plans_and_no_others(client: Client, repository: Path) -> None:
    """Plans queued by others may need isolation, which only a worker ensures."""
    assert isinstance(client, LocalClient)
    lifecycle = client.access.container.plan_parts.lifecycle
    others = [
        lifecycle.create(PlanDraft("theirs", "builtin/command", str(repository), {"queue": queue}))
        for queue in ("plans", f"plans@{client.access.container.home}")
    ]
    client.plans.wait(client.plans.create(writes("hello", apply="review")).id, timeout=60)
    assert [client.plans.get(plan.id).state for plan in others] == [PlanState.QUEUED] * 2


def test_a_plan_that_a_client_left_goes_on_with_the_next_that_waits_for_it(repository: Path) -> None:
    with connect(settings=QUICK) as client:
        assert isinstance(client, LocalClient)
        left = LocalPlans(client.access, lambda: None).create(writes("hello", apply="review"))
    with connect(settings=QUICK) as client:
        assert client.plans.wait(left.id, timeout=60).state is PlanState.COMPLETE


def test_waiting_includes_an_apply_that_was_asked_for(client: Client, repository: Path) -> None:
    plan = client.plans.wait(client.plans.create(writes("hello", apply="review")).id, timeout=60)
    client.plans.submit_apply(plan.id)
    assert client.plans.summary(plan.id).at_rest is False
    assert client.plans.wait(plan.id, timeout=60).state is PlanState.APPLIED


def test_an_actor_that_is_sent_is_the_one_that_works(client: Client) -> None:
    with pytest.raises(InvalidActor):
        client.plans.create(PlanRequest(goal="x", actor_yaml=":::[ no actor"))
    with pytest.raises(RequestRefused):
        client.plans.create(writes("x", to_branch="new"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"checks": "make"},
        {"apply": "Auto"},
        {"start": "head"},
        {"max_parallel": 0},
        {"limits": {"usd": float("nan")}},
        {"limits": {"usd": "0.5"}},
        {"limits": {"tokens": -1}},
        {"limits": {"steps": True}},
        {"limits": {"seconds": 0}},
    ],
    ids=str,
)
def test_a_wrong_request_is_refused_before_it_is_sent(wrong: dict[str, Any]) -> None:
    def made() -> PlanRequest:
        limits = wrong.get("limits")
        return PlanRequest(goal="x", **(wrong if limits is None else {"limits": Limits(**limits)}))

    with pytest.raises(RequestRefused) as caught:
        made()
    assert str(caught.value.where).startswith(next(iter(wrong)))
