"""Apply from the command line: what is said, and what becomes of a plan that another process applies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Thread

import click
import pytest

from cleveragents.api.client import Client, LocalClient
from cleveragents.api.plans.views import PlanView
from cleveragents.apply.lock import resource_lock
from cleveragents.cli.plan.apply import apply_now, wait_for_other_apply
from cleveragents.core.actions.model import Check
from cleveragents.core.errors import ApplyConflict, CheckFailed, PlanError, StalePlan
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from tests.plan_bench import PlanBench, write


@pytest.fixture(autouse=True)
def context() -> Iterator[click.Context]:
    with click.Context(click.Command("apply")) as made:
        yield made


@pytest.fixture
def client(plans: PlanBench) -> Client:
    return LocalClient(plans.container)


def seen(client: Client, plans: PlanBench) -> PlanView:
    return client.plans.get(plans.done(write("new.txt", "new\n")).id)


def moved(plans: PlanBench, plan: PlanView, *states: PlanState, error: str | None = None) -> None:
    for state in states:
        now = plans.parts.plans.get(plan.id)
        moment = plans.container.clock.now()
        plans.parts.plans.move(now, (Phase.APPLY, state), PlanFacts(error=error), now=moment)


def test_an_apply_is_reported(plans: PlanBench, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    plan = seen(client, plans)
    assert apply_now(client, plan, commit="all of it").state is PlanState.APPLIED
    told = capsys.readouterr().err
    assert f"applied to 1 file of {plans.repository}; undo with `agents plan undo {plan.id}`" in told
    assert "committed as " in told


def test_conflicts_are_shown_with_next_steps(
    plans: PlanBench, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = seen(client, plans)
    (plans.repository / "new.txt").write_text("mine\n")
    with pytest.raises(ApplyConflict):
        apply_now(client, plan, commit="all of it")
    told = capsys.readouterr().err
    assert "new.txt: " in told
    assert f"agents plan apply {plan.id} --commit 'all of it'" in told


def test_a_plan_without_a_change_is_left_as_it_is(
    plans: PlanBench, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = client.plans.get(plans.done().id)
    assert apply_now(client, plan) is plan
    assert "there is nothing to apply" in capsys.readouterr().err
    unchecked = client.plans.get(plans.done(checks=[Check("false", "false")]).id)
    with pytest.raises(CheckFailed):
        apply_now(client, unchecked)


def test_a_plan_applied_by_another_process_is_applied(
    plans: PlanBench, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = seen(client, plans)
    client.plans.apply(plan.id)
    assert apply_now(client, plan, commit="all of it").state is PlanState.APPLIED
    told = capsys.readouterr().err
    assert "another process has applied the plan;" in told
    assert "not committed by this command" in told
    with pytest.raises(PlanError, match="already applied"):
        apply_now(client, client.plans.get(plan.id))


def test_an_apply_of_another_process_is_awaited(
    plans: PlanBench, client: Client, context: click.Context, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, ended = seen(client, plans), list[PlanView]()

    def apply() -> None:
        with context.scope(cleanup=False):
            ended.append(apply_now(client, plan))

    with resource_lock(plans.repository, timeout_seconds=30):
        moved(plans, plan, PlanState.QUEUED)
        thread = Thread(target=apply, daemon=True)
        thread.start()
        said, ends = "", time.monotonic() + 60
        while "waiting for it" not in said and time.monotonic() < ends:
            said += capsys.readouterr().err
        moved(plans, plan, PlanState.PROCESSING, PlanState.APPLIED)
    thread.join(60)
    assert [one.state for one in ended] == [PlanState.APPLIED]


def test_a_failed_apply_of_another_process_is_reported_with_remedies(
    plans: PlanBench, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = seen(client, plans)
    moved(plans, plan, PlanState.QUEUED)  # by a process that is gone
    with pytest.raises(StalePlan):
        wait_for_other_apply(client, client.plans.get(plan.id))
    told = capsys.readouterr().err
    assert "failed: the apply was interrupted" in told
    assert f"agents plan apply {plan.id}" in told


def test_another_action_of_another_process_is_reported(
    plans: PlanBench, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = client.plans.get(plans.plan(write("new.txt", "new\n")).id)
    assert wait_for_other_apply(client, plan) is plan
    assert capsys.readouterr().err == "another process works on the plan now\n"
    done = seen(client, plans)
    assert wait_for_other_apply(client, done) is done
    assert capsys.readouterr().err == ""
