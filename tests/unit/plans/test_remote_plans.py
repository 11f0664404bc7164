"""Plans on git remotes, on machines that share only the database and the remote."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace as changed
from sqlalchemy import Table, delete, update

from cleveragents.access.model.project import RemoteAddress, ResourceKind
from cleveragents.api.plans.changes import found_changes
from cleveragents.api.plans.create import PlanSpec
from cleveragents.api.resources import trusted_place_of
from cleveragents.api.server_requests import ServerPlanRequest, requested_for_all
from cleveragents.core.actions.model import Setup
from cleveragents.core.change import RecordedChange
from cleveragents.core.errors import (
    CleverAgentsError,
    NotTrusted,
    SandboxMissing,
    SandboxRefused,
    StaleFence,
    UnknownAction,
    UnknownPlan,
)
from cleveragents.core.identifiers import Fence
from cleveragents.core.json_value import FrozenObject
from cleveragents.core.tool import CallState
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.plans.history import PlanHistory
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import GOALS_ACTION
from cleveragents.plans.output_recorder import PlanWatch
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.remote.sandboxes import PlanTakeover
from cleveragents.sandboxes.mirror import Mirrors
from cleveragents.sandboxes.ports import SandboxRequest, StartTree
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import shared_reads
from cleveragents.storage.service_tables import contents, workers
from cleveragents.storage.tables import plans, sandboxes
from cleveragents.testing.clock import RaiseAt
from tests.plan_bench import check, command, edit, write
from tests.remote_bench import At, Died, Machine, machines_at
from tests.remotes import Remote, new_remote

DONE = (Phase.EXECUTE, PlanState.COMPLETE)
APPLIED = (Phase.APPLY, PlanState.APPLIED)
GREET = """
name: team/greet
execute: {steps: [{tool: write, with: {path: hello.txt, content: hello}}]}
"""
STEPS = (write("x.txt", "1\n"), command("echo more >> b.txt; rm folder/c.txt"), edit("x.txt", "1", "2"))


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return new_remote(tmp_path)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    with machines_at(tmp_path) as made:
        yield made


@pytest.fixture
def one(machines: Callable[..., Machine]) -> Machine:
    return machines("one")


@pytest.fixture
def other(machines: Callable[..., Machine]) -> Machine:
    return machines("other")


def done_by(one: Machine, remote: Remote) -> Plan:
    plan = one.plan(remote, *STEPS)
    assert one.run(one.claimed(plan)).phase_state == DONE
    return plan


def assert_applied_once(remote: Remote, plan: Plan) -> None:
    assert len(remote.commits_of(plan.id)) == 1
    assert remote.text("x.txt") == "2"
    assert remote.text("b.txt") == "alpha\nmore"
    assert "folder/c.txt" not in remote.said("ls-tree", "-r", "--name-only", "main").split()


def test_runs_a_plan_on_a_branch_of_a_remote_and_pushes_it(remote: Remote, one: Machine) -> None:
    plan = one.plan(remote, *STEPS, checks=(check("grep -q more b.txt"),))
    assert one.run(one.claimed(plan)).phase_state == DONE
    before = remote.tip()
    assert one.apply(plan).phase_state == APPLIED
    assert_applied_once(remote, plan)
    assert remote.commits_of(plan.id) == [remote.tip()]
    assert remote.said("rev-parse", "main^") == before


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("sandbox.create.after-checkout", 1),
        ("tool.work.before", 2),
        ("tool.work.after", 2),
        ("tool.ending.after", 2),
        ("tool.record.after", 2),
        ("tool.ended.after", 2),
    ],
)
def test_another_machine_continues_after_a_crash(
    remote: Remote, machines: Callable[..., Machine], point: str, nth: int
) -> None:
    one = machines("one", faults=RaiseAt(point, Died, nth))
    plan = one.plan(remote, *STEPS)
    job = one.claimed(plan)
    with pytest.raises(Died):
        one.run(job)
    one.lose(job)
    remote.commit({"later.txt": "later\n"})  # commits after the start of a plan are not part of its base
    other = machines("other")
    other.knows(one)
    assert other.run(other.claimed(plan)).phase_state == DONE
    assert "later.txt" not in other.diff(plan)
    assert other.apply(plan).phase_state == APPLIED
    assert_applied_once(remote, plan)
    assert remote.text("later.txt") == "later"


def test_a_late_machine_records_nothing_more(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    faults = At("tool.ending.after", lambda: went_on(), nth=2)
    one = machines("one", faults=faults)
    plan = one.plan(remote, *STEPS)
    job = one.claimed(plan)
    other.knows(one)

    def went_on() -> None:
        one.lose(job)
        assert other.run(other.claimed(plan)).phase_state == DONE

    with pytest.raises(CleverAgentsError) as refused:
        one.run(job)
    assert isinstance(refused.value, StaleFence)
    assert other.now(plan.id).phase_state == DONE
    assert other.apply(plan).phase_state == APPLIED
    assert_applied_once(remote, plan)


def test_a_machine_that_gets_a_plan_back_starts_from_the_records(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one", faults=RaiseAt("tool.work.after", Died))
    plan = one.plan(remote, *STEPS)
    job = one.claimed(plan)
    with pytest.raises(Died):
        one.run(job)
    stale = one.parts.sandboxes.open(plan.id).root / "left.txt"
    stale.write_text("of an attempt that nobody recorded\n")
    one.lose(job)
    other = machines("other", faults=RaiseAt("tool.ended.after", Died))
    other.knows(one)
    job = other.claimed(plan)
    with pytest.raises(Died):
        other.run(job)
    other.lose(job)
    assert one.run(one.claimed(plan)).phase_state == DONE
    assert not stale.exists()
    assert one.apply(plan).phase_state == APPLIED
    assert_applied_once(remote, plan)


def test_another_machine_repeats_the_setup(remote: Remote, machines: Callable[..., Machine]) -> None:
    setup = Setup("mkdir -p kept && echo tools > kept/tools", paths=("kept",))
    one = machines("one", faults=RaiseAt("tool.work.before", Died, 2))
    plan = one.plan(remote, command("cp kept/tools used.txt"), setup=setup)
    job = one.claimed(plan)
    with pytest.raises(Died):
        one.run(job)
    one.lose(job)
    other = machines("other")
    other.knows(one)
    assert other.run(other.claimed(plan)).phase_state == DONE
    assert "+tools" in other.diff(plan)


def test_a_look_does_not_take_over_a_plan(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done_by(one, remote)
    assert other.diff(plan) == other.diff(plan) == one.diff(plan)
    row = other.parts.sandboxes.row(plan.id)
    assert row is not None
    assert row.home == one.container.home
    assert [left.plan_id for left in other.parts.sandboxes.leftovers()] == [plan.id]
    assert one.parts.sandboxes.leftovers() == []
    assert len(other.parts.sandboxes.remove_orphans()) == 1
    assert [path.name for path in other.parts.sandboxes.directory.iterdir()] == []
    assert other.diff(plan) == one.diff(plan)


def test_the_next_look_sees_newer_records(
    remote: Remote, one: Machine, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = done_by(one, remote)

    class Earlier(PlanHistory):
        """Returns the earlier records at its first call."""

        def changes(self, plan_id: str) -> Sequence[RecordedChange]:
            monkeypatch.undo()
            return super().changes(plan_id)[:1]

    history = property(lambda self: Earlier(self.changesets, self.calls(None)))
    monkeypatch.setattr(PlanTakeover, "history", history)
    copy = other.parts.sandboxes.open(plan.id)
    assert (copy.root / "b.txt").read_text() == "alpha\n"
    monkeypatch.setattr(PlanTakeover, "history", history)
    assert [row["path"] for row in found_changes(other.parts, plan).rows] == [
        "b.txt",
        "folder/c.txt",
        "x.txt",
    ]


def test_does_not_remove_the_sandbox_of_another_machine(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done_by(one, remote)
    assert other.parts.sandboxes.rows() == []
    assert other.parts.sandboxes.remove_orphans() == []
    other.parts.sandboxes.remove(plan.id)
    assert one.parts.sandboxes.open(plan.id).scan()


def test_the_old_sandbox_of_a_taken_over_plan_is_an_orphan(
    remote: Remote, one: Machine, other: Machine
) -> None:
    plan = one.plan(remote, *STEPS)
    job = one.claimed(plan)
    one.run(job)
    fence = job_of(other, plan)
    assert other.parts.sandboxes.open(plan.id, fence=fence).scan()
    [left] = one.parts.sandboxes.leftovers()
    assert (left.plan_id, left.removable) == (plan.id, True)
    one.parts.sandboxes.remove_orphans()
    assert not (one.parts.sandboxes.directory / plan.id).exists()
    row = one.parts.sandboxes.row(plan.id)
    assert row is not None
    assert row.home == other.container.home


def job_of(machine: Machine, plan: Plan) -> Fence:
    job = machine.apply_job(plan)
    return Fence(job.id, job.fence)


def test_only_the_owner_of_the_job_takes_over_a_sandbox(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done_by(one, remote)
    job = other.apply_job(plan)
    other.lose(job)
    with pytest.raises(StaleFence):
        other.parts.sandboxes.open(plan.id, fence=Fence(job.id, job.fence))
    row = other.parts.sandboxes.row(plan.id)
    assert row is not None
    assert row.home == one.container.home


def test_a_plan_on_a_directory_stays_with_its_machine(
    remote: Remote, one: Machine, other: Machine, tmp_path: Path
) -> None:
    one.parts.sandboxes.create(SandboxRequest("plan-1", remote.clone))
    with pytest.raises(SandboxMissing, match="on the machine with state"):
        other.parts.sandboxes.open("plan-1")
    assert other.parts.sandboxes.remove_orphans() == []
    assert one.parts.sandboxes.open("plan-1").scan() == {}


def greeting(machine: Machine) -> PlanDraft:
    wanted = PlanSpec("team/greet", (), (), (), "full-auto", False, (), None, False)
    return requested_for_all(machine.container, ServerPlanRequest("far", wanted), by="ada")


def test_trusted_config_of_a_remote_counts_on_every_machine(
    remote: Remote, one: Machine, other: Machine
) -> None:
    """By its content, wherever that is checked out; and nowhere else."""
    brought = ".cleveragents/actions/greet.yaml"
    remote.commit({brought: GREET, ".mcp.json": "{}"})
    projects, now = one.container.projects, one.container.clock.now()
    projects.add("paint", now=now)
    projects.add_resource("far", "paint", ResourceKind.REMOTE, remote.address.url, branch="main", now=now)
    with pytest.raises(UnknownAction):  # nothing of it was fetched here
        greeting(one)
    place = one.parts.remotes.directories.of_resource(remote.resource)
    with pytest.raises(NotTrusted, match="is not trusted"):
        greeting(one)
    told: list[str] = []
    plan = one.plan(remote, *STEPS, request={"resource_name": "far"})
    replace(one.handler(), watch=lambda plan: PlanWatch(told.append))(one.claimed(plan))
    assert f"making a sandbox of {remote.address.shown}" in told
    [ignored] = [line for line in told if "ignored" in line]
    assert f"ignored: .mcp.json, {brought}; review it, then trust it for the resource far" in ignored
    one.parts.trust.give(place, [one.parts.trust.look(place, brought)])
    remote.commit({"b.txt": "later\n"})
    there = other.parts.remotes.directories.of_resource(remote.resource)
    new = greeting(other)
    assert (there.name, new.action, new.resource) == (remote.tip(), "team/greet", remote.resource)
    made = other.parts.lifecycle.create(changed(new, request=FrozenObject({"profile": "full-auto"})))
    other.parts.run()(other.claimed(made))
    assert other.now(made.id).phase_state == DONE
    assert "hello.txt" in other.diff(made)
    assert not other.parts.trust.look(remote.clone, brought).trusted
    remote.commit({brought: f"{GREET}# more"})
    other.parts.remotes.directories.of_resource(remote.resource)
    with pytest.raises(NotTrusted):
        greeting(other)
    remote.directory.rename(remote.directory.with_name("away.git"))
    known = trusted_place_of(other.container, other.container.projects.resource("far"))
    assert len(other.parts.trust.revoke(known)) == 1
    assert not one.parts.trust.look(place, brought).trusted


def test_a_deleted_plan_has_no_base(remote: Remote, one: Machine) -> None:
    with pytest.raises(UnknownPlan):  # otherwise it would be stored forever
        one.parts.remotes.directories.base("0" * 26, remote.address)


def test_reports_missing_contents(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done_by(one, remote)
    one.container.database.write(lambda connection: connection.execute(delete(contents)).rowcount)
    with pytest.raises(SandboxRefused, match="not in the database"):
        other.diff(plan)


def test_a_sub_plan_on_another_machine_starts_from_its_parents_tree(
    remote: Remote, one: Machine, other: Machine
) -> None:
    parent = done_by(one, remote)
    history = one.parts.history
    then = [change.entry for change in history.changes(parent.id)][:1]
    from cleveragents.core.change import differences_of

    states = {path: step.after for path, step in differences_of(then).items()}
    tree = one.parts.sandboxes.open(parent.id).tree(states)
    start = StartTree(parent.id, tree)
    resource = other.parts.directory_of(parent)
    request = SandboxRequest("child", resource, from_head=True, start=start, remote=parent.resource)
    made = other.parts.sandboxes.create(request)
    assert (made.root / "x.txt").read_text() == "1\n"
    assert (made.root / "b.txt").read_text() == "alpha\n"
    assert made.base == tree


def test_a_recorded_call_is_not_repeated_on_another_machine(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one", faults=RaiseAt("tool.record.after", Died, 2))
    plan = one.plan(remote, *STEPS)
    job = one.claimed(plan)
    with pytest.raises(Died):
        one.run(job)
    one.lose(job)
    other = machines("other")
    other.knows(one)
    other.run(other.claimed(plan))
    calls = other.parts.history.calls(plan.id)
    assert [call.state for call in calls] == [CallState.ENDED] * 3


def test_a_machine_without_its_job_leaves_the_new_sandbox_alone(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=At("sandbox.create.after", lambda: went_on()))
    plan = one.plan(remote, *STEPS)
    job = one.claimed(plan)
    other.knows(one)

    def went_on() -> None:
        one.lose(job)
        other.run(other.claimed(plan))

    with pytest.raises(StaleFence):
        one.run(job)
    row = one.parts.sandboxes.row(plan.id)
    assert row is not None
    assert (row.home, row.state) == (other.container.home, "ready")
    assert other.parts.sandboxes.open(plan.id).scan()


def test_concurrent_machines_start_from_one_commit(
    remote: Remote, one: Machine, other: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = one.plan(remote, *STEPS)
    fetched = Mirrors.fetched
    first: list[str] = []

    def while_another_does(self: Mirrors, address: RemoteAddress) -> str:
        tip = fetched(self, address)
        monkeypatch.setattr(Mirrors, "fetched", fetched)
        remote.commit({"later.txt": ""})
        first.append(one.parts.remotes.directories.base(plan.id, address))
        return tip

    monkeypatch.setattr(Mirrors, "fetched", while_another_does)
    assert [other.parts.remotes.directories.base(plan.id, remote.address)] == first == [remote.tip()]
    assert (one.parts.remotes.directories.of_resource(remote.resource) / "later.txt").exists()
    assert one.parts.remotes.directories.of_resource("/srv") == Path("/srv")


def test_rebuilds_a_removed_sandbox_from_the_records(remote: Remote, one: Machine) -> None:
    plan = done_by(one, remote)
    before = one.diff(plan)
    one.parts.sandboxes.remove(plan.id)
    job = one.apply_job(plan)
    resource = one.parts.directory_of(plan)
    fence = Fence(job.id, job.fence)
    request = SandboxRequest(plan.id, resource, from_head=True, remote=plan.resource, fence=fence)
    one.parts.sandboxes.create(request)
    assert one.diff(plan) == before


def test_removes_unused_copies_and_checkouts(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done_by(one, remote)
    other.diff(plan)
    checkout = other.parts.directory_of(plan)
    os.utime(checkout, (0, 0))
    assert other.parts.sandboxes.discard_copies(dry_run=True) == 2
    assert one.parts.sandboxes.discard_copies() == 0
    assert other.parts.sandboxes.discard_copies() == 2
    assert not checkout.exists()
    assert other.diff(plan) == one.diff(plan)  # rebuilt
    one.parts.sandboxes.remove(plan.id)
    assert [left.kind for left in other.parts.sandboxes.leftovers()] == ["copy"]
    assert other.parts.sandboxes.remove_orphans() != []


def test_removes_contents_of_a_machine_unseen_for_a_month(
    remote: Remote, one: Machine, other: Machine
) -> None:
    """A dead machine took its sandboxes along, and no other machine can report them gone."""
    plan = done_by(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    day, week = timedelta(days=1), timedelta(days=7)
    ago = microseconds(one.container.clock.now() - timedelta(days=31))

    def grown_old(*tables: Table) -> None:
        values = {plans: {"updated_at": ago}, sandboxes: {"created_at": ago}}
        for table in tables:
            other.container.database.write(lambda c, t=table: c.execute(update(t).values(values[t])).rowcount)

    grown_old(plans)
    assert other.parts.remotes.forget_contents(day) == 0  # it may be running something else
    grown_old(sandboxes)
    assert one.parts.remotes.forget_contents(day) == 0  # its own contents go with its sandbox
    reports(one)
    assert other.parts.remotes.forget_contents(day) == 0  # it has a worker
    one.container.database.write(lambda connection: connection.execute(delete(workers)).rowcount)
    assert other.parts.remotes.forget_contents(week, dry_run=True) == 3
    assert other.parts.remotes.forget_contents(day) == 3
    assert other.parts.remotes.contents.trees() == []
    undone, _ = one.parts.apply.undo(one.now(plan.id))  # it was only switched off
    assert undone.state is PlanState.UNDONE


def reports(machine: Machine) -> None:
    now = machine.container.clock.now()
    record = WorkerRecord("1", "w", "h", 1, machine.container.home, "embedded", "", 1, 0, "working", now, now)
    machine.container.worker_registry.report(record)


def test_keeps_the_checkout_of_a_sandbox(remote: Remote, one: Machine) -> None:
    plan = done_by(one, remote)
    checkout = one.parts.directory_of(plan)
    os.utime(checkout, (0, 0))
    assert one.parts.sandboxes.discard_copies() == 0
    assert one.diff(plan)
    assert checkout.stat().st_mtime == 0
    assert one.parts.directory_of(plan).stat().st_mtime > 0


def test_keeps_a_copy_that_became_the_plans_own(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done_by(one, remote)
    other.parts.sandboxes.open(plan.id, fence=job_of(other, plan))
    other.parts.sandboxes.remove_copy(other.parts.sandboxes.directory / plan.id)
    assert other.parts.sandboxes.open(plan.id).scan()


def test_any_machine_can_run_parts_of_a_tree(remote: Remote, one: Machine, other: Machine) -> None:
    tasks = (
        Task("left", sub_plan=True),
        Task("right", sub_plan=True),
        Task("last", needs=(1,), sub_plan=True),
    )
    strategies = {
        "whole": Strategy((), tasks=tasks, profile="full-auto"),
        "left": Strategy((write("left.txt", "1\n"),), profile="full-auto"),
        "right": Strategy((write("right.txt", "1\n"),), profile="full-auto"),
        "last": Strategy((edit("left.txt", "1", "2"),), profile="full-auto"),
    }
    for each in (one, other):
        each.strategies.update(strategies)
    plan = one.parts.lifecycle.create(PlanDraft("whole", GOALS_ACTION, remote.resource))
    turns = [one, other]
    for _ in range(30):
        if one.now(plan.id).phase_state == DONE:
            break
        assert any(each.take_turn(plan) for each in turns)
        turns.reverse()
    assert one.now(plan.id).phase_state == DONE
    tree = (plan, *one.parts.plans.children(plan.id))
    rows = [one.parts.sandboxes.row(each.id) for each in tree]
    assert {row.home for row in rows if row} == {one.container.home, other.container.home}
    assert other.apply(plan).phase_state == APPLIED
    assert (remote.text("left.txt"), remote.text("right.txt")) == ("2", "1")
    assert len(remote.commits_of(plan.id)) == 1


def test_a_view_leaves_the_files_of_a_worker_that_took_the_plan_over(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one", faults=RaiseAt("tool.ended.after", Died, 1))
    steps = (write("x.txt", "1\n"), command("echo more >> b.txt"), command("cat b.txt > seen.txt"))
    plan = one.plan(remote, *steps)
    job = one.claimed(plan)
    with pytest.raises(Died):
        one.run(job)
    one.lose(job)
    appended, shown = threading.Event(), threading.Event()

    def wait() -> None:
        appended.set()
        assert shown.wait(100)

    other = machines("other", faults=At("tool.ended.after", wait))
    other.knows(one)
    worker = threading.Thread(target=lambda: other.run(other.claimed(plan)))
    try:
        with shared_reads():
            found_changes(other.parts, other.now(plan.id))
            worker.start()
            assert appended.wait(60)
            found_changes(other.parts, other.now(plan.id))
    finally:
        shown.set()
        worker.join(100)
    assert other.now(plan.id).phase_state == DONE
    assert "+more" in other.diff(plan)
