"""Plans on git remotes, on machines that share nothing but the database and the remote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cleveragents.domain.plan import Phase, PlanState
from tests.plan_bench import check, command, write
from tests.ready_database import ready_database
from tests.remote_bench import Machine, machine
from tests.remotes import Remote, new_remote


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return new_remote(tmp_path)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """Makes a machine of that name."""
    url = ready_database(tmp_path / "shared.db")
    with ExitStack() as closing:

        def made(name: str, **facts: Any) -> Machine:
            return closing.enter_context(machine(tmp_path / name, url, **facts))

        yield made


@pytest.fixture
def one(machines: Callable[..., Machine]) -> Machine:
    return machines("one")


@pytest.fixture
def other(machines: Callable[..., Machine]) -> Machine:
    return machines("other")


def test_a_plan_on_a_remote_is_done_in_a_sandbox_of_its_branch_and_pushed(
    remote: Remote, one: Machine
) -> None:
    plan = one.plan(
        remote, write("x.txt", "1\n"), command("echo more >> b.txt"), checks=(check("grep -q more b.txt"),)
    )
    assert one.run(one.claimed(plan)).standing == (Phase.EXECUTE, PlanState.COMPLETE)
    before = remote.tip()
    assert one.apply(plan).standing == (Phase.APPLY, PlanState.APPLIED)
    assert remote.text("x.txt") == "1"
    assert remote.text("b.txt") == "alpha\nmore"
    assert remote.commits_of(plan.id) == [remote.tip()]
    assert remote.said("rev-parse", "main^") == before
