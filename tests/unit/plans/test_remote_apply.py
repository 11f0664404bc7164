"""Applies to a git remote: merged with newer commits, pushed once, found again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.access.model.project import RemoteAddress
from cleveragents.api.plans.available_actions import possible_actions
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.responses import delete
from cleveragents.apply.ports import ApplyOptions, CommitRequest
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.actions.model import Setup
from cleveragents.core.errors import (
    ApplyBusy,
    ApplyConflict,
    ApplyRefused,
    CheckFailed,
    RemoteMoved,
    RemoteUnreachable,
    StaleFence,
    UnknownPlan,
)
from cleveragents.core.identifiers import Fence
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.jobs.model.job import AttemptOutcome, JobState
from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import CommandResult
from cleveragents.sandboxes.mirror import Mirrors
from cleveragents.testing.clock import RaiseAt
from tests.apply_bench import git
from tests.plan_bench import check, new_repository, write
from tests.remote_bench import At, Died, Machine, machines_at
from tests.remotes import Remote, new_remote

_HEADS = ("+++", "---")
APPLIED = (Phase.APPLY, PlanState.APPLIED)
CONSTRAINED = (Phase.APPLY, PlanState.CONSTRAINED)
ERRORED = (Phase.APPLY, PlanState.ERRORED)


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


def done(machine: Machine, place: Remote | Path, **facts: Any) -> Plan:
    plan = machine.plan(place, write("a.txt", "changed\n"), **facts)
    assert machine.run(machine.claimed(plan)).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    return plan


def fence_of(job: AsyncJob) -> Fence:
    return Fence(job.id, job.fence)


def taken_over(machine: Machine, plan: Plan) -> AsyncJob:
    """Return the plan after that machine claimed the apply's job and found out what the previous one did."""
    job = machine.claimed(plan, f"apply:{plan.id}")
    machine.parts.apply.taken_up(machine.now(plan.id), fence_of(job))
    return job


def test_merges_a_result_with_newer_commits(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    remote.commit({"b.txt": "theirs\n"})
    assert one.apply(plan).phase_state == APPLIED
    assert (remote.text("a.txt"), remote.text("b.txt")) == ("changed", "theirs")
    assert len(remote.commits_of(plan.id)) == 1


def test_merges_again_if_the_branch_moves(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one", faults=At("apply.push.before", lambda: remote.commit({"b.txt": "theirs\n"})))
    plan = done(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    assert (remote.text("a.txt"), remote.text("b.txt")) == ("changed", "theirs")
    assert len(remote.commits_of(plan.id)) == 1


def test_gives_up_on_a_branch_that_keeps_moving(remote: Remote, machines: Callable[..., Machine]) -> None:
    class Always:
        def __init__(self) -> None:
            self.times = 0

        def reach(self, name: str) -> None:
            if name == "apply.push.before":
                self.times += 1
                remote.commit({"b.txt": f"{self.times}\n"})

    import cleveragents.plans.apply as module

    faults = Always()
    one = machines("one", faults=faults)
    plan = done(one, remote)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROUNDS", 3)
        with pytest.raises(RemoteMoved, match="moved; nothing was pushed"):
            one.apply(plan)
    assert faults.times == 3
    assert one.now(plan.id).phase_state == CONSTRAINED
    assert remote.commits_of(plan.id) == []


def test_a_conflict_names_its_files_and_pushes_nothing(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    tip = remote.commit({"a.txt": "theirs\n"})
    with pytest.raises(ApplyConflict) as told:
        one.apply(plan)
    assert told.value.paths == ("a.txt",)
    assert "another commit on main" in told.value.details
    blocked = one.now(plan.id)
    assert blocked.phase_state == CONSTRAINED
    assert remote.tip() == tip


def rebased(machine: Machine, plan: Plan) -> Plan:
    """Return the plan after a rebase, and a run of its job if it was queued."""
    before = machine.now(plan.id)
    if machine.parts.rebase.rebase(before) == before:
        return before
    assert machine.take_turn(plan)
    return machine.now(plan.id)


def test_a_conflict_with_the_branch_is_resolved_after_a_rebase(
    remote: Remote, one: Machine, other: Machine
) -> None:
    plan = done(one, remote)
    remote.commit({"a.txt": "theirs\n", "b.txt": "theirs\n"})
    with pytest.raises(ApplyConflict):
        one.apply(plan)
    assert "rebase" in possible_actions(one.parts, one.now(plan.id))
    assert [step.action for step in steps_from(one.parts, one.now(plan.id))][1:3] == [
        "plan.rebase",
        "plan.resolve",
    ]
    waiting = rebased(one, plan)
    assert waiting.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    (conflict,) = one.parts.sub_plan_merge.open_conflicts(plan.id)
    assert conflict.path == "a.txt"
    one.parts.manual_resolution.resolve(waiting, "a.txt", Take.OURS)
    one.parts.lifecycle.resume(waiting)
    assert one.take_turn(plan)
    assert one.now(plan.id).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert [line for line in one.diff(plan).splitlines() if line[:1] in "+-" and line[:3] not in _HEADS] == [
        "-theirs",
        "+changed",
    ]
    assert other.diff(plan) == one.diff(plan), "another machine fetches the new base"
    assert other.apply(plan).phase_state == APPLIED
    assert (remote.text("a.txt"), remote.text("b.txt")) == ("changed", "theirs")
    assert len(remote.commits_of(plan.id)) == 1


def test_a_rebase_onto_the_branch_repeats_the_checks(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done(one, remote, checks=(check("grep -q theirs b.txt", required=False),))
    assert rebased(one, plan) == one.now(plan.id), "the branch has not moved"
    remote.commit({"b.txt": "theirs\n"})
    other.knows(one)
    assert rebased(other, plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    runs = other.parts.check_runs.of_plan(plan.id)
    assert [run.verdict.value for run in runs][-1] == "passed"
    remote.commit({"c.txt": "later\n"})
    assert one.apply(plan).phase_state == APPLIED
    assert [remote.text(name) for name in ("a.txt", "b.txt", "c.txt")] == ["changed", "theirs", "later"]


def test_does_not_push_a_git_directory(remote: Remote, one: Machine) -> None:
    tip = remote.commit({"x/HEAD": "ref: refs/heads/main\n", "x/objects/k": "", "x/refs/k": ""})
    plan = one.plan(remote, write("x/config", "[core]\n"))
    assert one.run(one.claimed(plan)).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    with pytest.raises(ApplyRefused, match=r"a git directory.*: x;"):
        one.apply(plan)
    assert remote.tip() == tip


def test_a_failed_check_of_the_merged_result_prevents_the_push(remote: Remote, one: Machine) -> None:
    plan = done(one, remote, checks=(check("! grep -q theirs b.txt"),))
    tip = remote.commit({"b.txt": "theirs\n"})
    with pytest.raises(CheckFailed):
        one.apply(plan)
    assert remote.tip() == tip


def test_another_machine_sets_up_a_copy_for_its_checks(remote: Remote, one: Machine, other: Machine) -> None:
    setup = Setup("mkdir -p kept && echo tools > kept/tools && echo x >> a.txt", paths=("kept",))
    checks = (check("grep -q tools kept/tools && test $(cat a.txt) = changed"),)
    plan = done(one, remote, setup=setup, checks=checks)
    remote.commit({"b.txt": "theirs\n"})  # so that the checks have to run
    assert other.apply(plan).phase_state == APPLIED
    assert remote.text("a.txt") == "changed"
    assert (other.parts.sandboxes.open(plan.id).root / "kept/tools").exists()


def test_a_failed_setup_of_a_copy_prevents_the_apply(remote: Remote, one: Machine, other: Machine) -> None:
    setup = Setup("case $PWD in */one/*) ;; *) echo not here; exit 1;; esac")
    plan = done(one, remote, setup=setup, checks=(check("true"),))
    tip = remote.commit({"b.txt": "theirs\n"})
    with pytest.raises(CheckFailed, match="failed on this machine: not here"):
        other.apply(plan)
    assert remote.tip() == tip
    assert one.apply(plan).phase_state == APPLIED


def test_reports_a_rejected_push_in_the_words_of_the_remote(remote: Remote, one: Machine) -> None:
    hook = remote.directory / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho nobody pushes on Fridays >&2\nexit 1\n")
    hook.chmod(0o755)
    plan = done(one, remote)
    tip = remote.tip()
    with pytest.raises(ApplyRefused, match="Fridays"):
        one.apply(plan)
    assert one.now(plan.id).phase_state == CONSTRAINED
    assert remote.tip() == tip
    hook.unlink()
    assert one.apply(plan).phase_state == APPLIED


@pytest.mark.parametrize("point", ["apply.push.before", "apply.push.after"])
def test_another_machine_finds_a_finished_push(
    remote: Remote, machines: Callable[..., Machine], other: Machine, point: str
) -> None:
    one = machines("one", faults=RaiseAt(point, Died))
    plan = done(one, remote)
    job = one.apply_job(plan)
    with pytest.raises(Died):
        one.apply(plan, job)
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    one.lose(job)
    other.parts.apply.settle()  # not its own: the other machine may be alive
    assert other.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    job = taken_over(other, plan)
    if point == "apply.push.before":
        assert other.now(plan.id).phase_state == ERRORED
        other.apply(plan, job)
    assert other.now(plan.id).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]
    assert one.parts.applier.undecided() == set()
    assert one.parts.remotes.applier._remotes.engine.journal.open_entries() == []


def test_any_machine_settles_an_apply_without_a_job(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=RaiseAt("apply.push.after", Died))
    plan = done(one, remote)
    finish(one, one.claimed_jobs[-1])
    job = one.apply_job(plan)
    with pytest.raises(Died):
        one.apply(plan, job)
    other.parts.apply.settle()
    assert other.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    finish(one, job)
    other.parts.apply.settle()
    assert other.now(plan.id).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


def finish(machine: Machine, job: AsyncJob) -> None:
    outcome = AttemptOutcome(JobState.FAILED, error="its worker died too often")
    machine.container.jobs.finish(job.id, job.fence, outcome, now=machine.container.clock.now())


def test_an_abandoned_apply_that_was_pushed_is_applied(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=At("apply.push.before", lambda: other.parts.apply.taken_up(plan, None)))
    plan = done(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


@pytest.mark.parametrize("point", ["apply.push.before", "apply.push.after"])
def test_a_restarted_machine_settles_its_own_applies(
    remote: Remote, machines: Callable[..., Machine], point: str
) -> None:
    one = machines("one", faults=RaiseAt(point, Died))
    plan = done(one, remote)
    finish(one, one.claimed_jobs[-1])  # while it has a job, its worker finds out
    with pytest.raises(Died):
        one.apply(plan)
    one.parts.apply.settle()
    standing = ERRORED if point == "apply.push.before" else APPLIED
    assert one.now(plan.id).phase_state == standing
    if standing == ERRORED:
        one.apply(plan)
    assert remote.commits_of(plan.id) == [remote.tip()]


def test_only_its_machine_settles_an_apply_to_a_directory(
    tmp_path: Path, one: Machine, other: Machine
) -> None:
    """No other machine sees its files, its locks and its journal."""
    plan = done(one, new_repository(tmp_path / "directory"))
    for state in (PlanState.QUEUED, PlanState.PROCESSING):  # its process was killed, or still runs
        now = one.container.clock.now()
        under_way = one.parts.plans.move(one.now(plan.id), (Phase.APPLY, state), now=now)
        other.parts.apply.settle()
        assert other.now(plan.id) == under_way
    one.parts.apply.settle()
    assert one.now(plan.id).phase_state == ERRORED


def test_another_machine_can_delete_an_apply_of_a_lost_machine(
    tmp_path: Path, one: Machine, other: Machine
) -> None:
    place = new_repository(tmp_path / "directory")
    plan = done(one, place)
    finish(one, one.claimed_jobs[-1])
    for state in (PlanState.QUEUED, PlanState.PROCESSING):  # its checks ran, and it had moved no file
        now = one.container.clock.now()
        one.parts.plans.move(one.now(plan.id), (Phase.APPLY, state), now=now)
    delete(other.container, plan.id, force=True)
    with pytest.raises(UnknownPlan):
        other.now(plan.id)


@pytest.mark.parametrize("point", ["apply.stage.after", "apply.done.before"])
def test_an_equal_path_on_another_machine_is_not_settled(
    tmp_path: Path, machines: Callable[..., Machine], other: Machine, point: str
) -> None:
    """Both machines have a directory of that name, each sees its own, and the other applies to its own."""
    here, aside = tmp_path / "directory", tmp_path / "aside"
    ended: list[int] = []

    def elsewhere() -> None:
        here.rename(aside)
        new_repository(here)
        others = done(other, here)
        other.parts.apply.settle()
        assert other.apply(others).phase_state == APPLIED
        here.rename(tmp_path / "the other's")
        aside.rename(here)
        ended.append(1)

    one = machines("one", faults=At(point, elsewhere))
    plan = done(one, new_repository(here))
    assert one.apply(plan).phase_state == APPLIED
    assert (ended, (here / "a.txt").read_text()) == ([1], "changed\n")


def test_a_late_worker_pushes_nothing_after_another_applied(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=At("apply.push.before", lambda: meanwhile()))
    plan = done(one, remote)
    job = one.apply_job(plan)

    def meanwhile() -> None:
        one.lose(job)
        assert other.apply(plan, taken_over(other, plan)).phase_state == APPLIED

    with pytest.raises(StaleFence):
        one.apply(plan, job)
    assert remote.commits_of(plan.id) == [remote.tip()]
    assert other.now(plan.id).phase_state == APPLIED


def test_a_late_worker_may_apply_before_another_does(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=At("apply.push.before", lambda: meanwhile()))
    plan = done(one, remote)
    job = one.apply_job(plan)
    theirs: list[AsyncJob] = []

    def meanwhile() -> None:
        one.lose(job)
        theirs.append(taken_over(other, plan))

    with pytest.raises(StaleFence):
        one.apply(plan, job)
    pushed = remote.tip()
    assert other.apply(plan, theirs[0]).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [pushed] == [remote.tip()]
    undone, _ = other.parts.apply.undo(other.now(plan.id))
    assert undone.state is PlanState.UNDONE
    assert remote.text("a.txt").startswith("one\n")


def test_a_worker_without_its_job_starts_no_apply(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done(one, remote)
    job = one.apply_job(plan)
    one.lose(job)
    with pytest.raises(StaleFence):
        one.apply(plan, job)
    assert one.now(plan.id).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert remote.commits_of(plan.id) == []


def test_a_worker_that_loses_its_job_does_not_push(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one", faults=At("apply.journal.before", lambda: one.lose(job)))
    plan = done(one, remote)
    job = one.apply_job(plan)
    with pytest.raises(StaleFence):
        one.apply(plan, job)
    assert remote.commits_of(plan.id) == []
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)


def test_the_outcome_is_unknown_while_the_remote_is_unreachable(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    away = remote.directory.with_name("away.git")
    one = machines("one", faults=At("apply.push.before", lambda: remote.directory.rename(away)))
    plan = done(one, remote)
    job = one.apply_job(plan)
    with pytest.raises(RemoteUnreachable):
        one.apply(plan, job)
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    one.lose(job)
    job = other.claimed(plan, f"apply:{plan.id}")
    with pytest.raises(RemoteUnreachable):
        other.parts.apply.taken_up(other.now(plan.id), fence_of(job))
    one.parts.apply.settle()
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    away.rename(remote.directory)
    other.parts.apply.taken_up(other.now(plan.id), fence_of(job))
    assert other.apply(plan, job).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


def test_asks_the_remote_again_after_a_lost_answer(
    remote: Remote, machines: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Mirrors.push

    def lost(self: Mirrors, *given: Any) -> str:
        push(self, *given)
        return "the connection was closed"

    monkeypatch.setattr(Mirrors, "push", lost)
    one = machines("one")
    plan = done(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


def test_a_result_that_is_already_in_the_branch_pushes_nothing(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    tip = remote.commit({"a.txt": "changed\n"})
    assert one.apply(plan).phase_state == APPLIED
    assert remote.tip() == tip


def test_an_undo_keeps_later_commits(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done(one, remote)
    one.apply(plan)
    remote.commit({"b.txt": "later\n"})
    undone, _ = other.parts.apply.undo(other.now(plan.id))
    assert undone.state is PlanState.UNDONE
    assert remote.text("a.txt").startswith("one\n")
    assert remote.text("b.txt") == "later"
    assert len(remote.commits_of(plan.id)) == 2
    with (
        pytest.raises(ApplyRefused, match="the plan has no apply to undo"),
        other.parts.applier.prepare_undo(plan.id, other.parts.sandboxes.open(plan.id)),
    ):
        pass


def test_finds_an_undo_that_was_pushed_but_not_recorded(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=RaiseAt("undo.push.after", Died))
    plan = done(one, remote)
    one.apply(plan)
    with pytest.raises(Died):
        one.parts.apply.undo(one.now(plan.id))
    assert other.parts.apply.taken_up(other.now(plan.id), None).state is PlanState.UNDONE
    assert len(remote.commits_of(plan.id)) == 2


def test_an_undo_merges_again_with_a_branch_that_moved(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one", faults=At("undo.push.before", lambda: remote.commit({"b.txt": "later\n"})))
    plan = done(one, remote)
    one.apply(plan)
    one.parts.apply.undo(one.now(plan.id))
    assert remote.text("a.txt").startswith("one\n")
    assert remote.text("b.txt") == "later"


def test_applies_to_a_new_branch(remote: Remote, one: Machine) -> None:
    plan = done(one, remote, request={"to_branch": "agents/{plan}"})
    tip = remote.tip()
    assert one.apply(plan).phase_state == APPLIED
    own = f"agents/{plan.id}"
    assert remote.tip() == tip
    assert remote.text("a.txt", own) == "changed"
    assert remote.said("rev-parse", f"{own}^") == tip
    one.parts.apply.undo(one.now(plan.id))
    assert remote.text("a.txt", own).startswith("one\n")
    remote.said("branch", "-D", own)


def to_branch(machine: Machine, plan: Plan, branch: str) -> Plan:
    token, asked = CancellationToken(), CommitRequest("", branch)
    return machine.parts.apply.apply(machine.now(plan.id), token, commit=asked)[0]


@pytest.mark.parametrize("theirs", ["review", "review/more"])
def test_does_not_overwrite_an_existing_branch(
    remote: Remote, machines: Callable[..., Machine], theirs: str
) -> None:
    """Neither a branch that exists at the start nor one that appears at the last moment."""
    pushed = [remote.tip()]

    def somebody_pushes() -> None:
        remote.said("branch", theirs, "main")

    one = machines("one", faults=At("apply.push.before", somebody_pushes))
    plan = done(one, remote)
    for _ in range(2):
        with pytest.raises(ApplyRefused, match=f"branch {theirs} already exists at"):
            to_branch(one, plan, "review")
        assert one.now(plan.id).phase_state == CONSTRAINED
        assert "to_branch" in str(one.now(plan.id).waiting_for)
        assert [remote.tip(theirs), remote.commits_of(plan.id)] == [*pushed, []]
    applied = to_branch(one, plan, "mine")
    assert (applied.phase_state, one.parts.remotes.branch_of(applied)) == (APPLIED, "mine")
    assert remote.text("a.txt", "mine") == "changed"
    remote.said("branch", "-D", "mine")
    with pytest.raises(ApplyRefused, match="branch mine no longer exists at"):
        one.parts.apply.undo(one.now(plan.id))


def test_finds_a_push_to_a_new_branch_after_a_crash(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=RaiseAt("apply.push.after", Died))
    plan = done(one, remote)
    with pytest.raises(Died):
        to_branch(one, plan, "mine")
    found = other.parts.apply.taken_up(other.now(plan.id), None)
    assert (found.phase_state, other.parts.remotes.branch_of(found)) == (APPLIED, "mine")
    assert len(remote.commits_of(plan.id, "mine")) == 1


def test_a_plan_with_a_deleted_branch_can_go_to_another(remote: Remote, one: Machine) -> None:
    plan, base = done(one, remote), remote.tip()
    remote.said("update-ref", "-d", "refs/heads/main")
    with pytest.raises(ApplyRefused):
        one.apply(plan, one.apply_job(plan))
    refused = one.now(plan.id)
    assert refused.phase_state == CONSTRAINED
    assert "push it again, then apply" in str(refused.error)
    assert to_branch(one, plan, "mine").phase_state == APPLIED
    assert (remote.text("a.txt", "mine"), remote.said("rev-parse", "mine^")) == ("changed", base)


def test_forgets_an_abandoned_apply(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one", faults=RaiseAt("apply.push.before", Died))
    plan = done(one, remote)
    with pytest.raises(Died):
        one.apply(plan)
    assert one.parts.applier.give_up(plan.id) == [remote.resource]
    assert one.parts.applier.undecided() == set()


def test_a_commit_names_its_goal_and_its_author(
    remote: Remote, one: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        for what in ("NAME", "EMAIL"):
            monkeypatch.delenv(f"GIT_{role}_{what}", raising=False)
    plan = done(one, remote)
    one.apply(plan)
    said = remote.said("log", "-1", "--format=%an <%ae>%n%B", "main")
    assert said.startswith("CleverAgents <cleveragents@localhost>\na goal\n")
    assert f"CleverAgents-Plan: {plan.id}" in said


def test_refuses_to_sign_a_commit(
    remote: Remote, one: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "signer"
    home.mkdir()
    (home / ".gitconfig").write_text("[commit]\n\tgpgSign = true\n[user]\n\tname = a\n\temail = a@b\n")
    plan = done(one, remote)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with pytest.raises(ApplyRefused, match="gpgSign"):
        one.apply(plan)
    assert remote.commits_of(plan.id) == []


def test_a_naive_push_loses_newer_commits(
    remote: Remote, machines: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same situation as a branch that moves at the last moment, which the real apply detects."""

    def blindly(
        self: Mirrors, address: RemoteAddress, source: PrivateRepository, commit: str, ref: str, expected: str
    ) -> str:
        git(source.directory, "push", "-q", "--force", address.url, f"{commit}:{ref}")
        return ""

    monkeypatch.setattr(Mirrors, "push", blindly)
    one = machines("one", faults=At("apply.push.before", lambda: remote.commit({"b.txt": "theirs\n"})))
    plan = done(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    assert remote.text("b.txt") == "alpha"


def test_reports_an_apply_of_this_machine_as_busy(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    applier = one.parts.applier
    assert not applier.is_busy_here(remote.resource)
    sandbox = one.parts.sandboxes.open(plan.id)
    with applier.prepare(plan.id, sandbox, sandbox.base):
        assert applier.is_busy_here(remote.resource)
        assert applier.is_busy(remote.resource)
    assert not applier.is_busy_here(remote.resource)


def test_a_preparation_applies_once(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    sandbox = one.parts.sandboxes.open(plan.id)
    with one.parts.applier.prepare(plan.id, sandbox, sandbox.base) as preparation:
        assert (preparation.changes, preparation.landed) == ({}, False)
    with pytest.raises(ApplyRefused, match="prepare the apply again"):
        preparation.apply()


def test_refuses_to_push_a_plan_on_a_directory(remote: Remote, one: Machine) -> None:
    plan = one.parts.lifecycle.create(PlanDraft("a goal", "tests/steps", str(remote.clone)))
    pushing = one.parts.remotes.applier._remotes
    assert not pushing.is_busy_here(plan.resource)
    with pytest.raises(ApplyRefused, match="is not a remote"):
        pushing._plan(plan.id)
    assert one.parts.directory_of(plan) == remote.clone


def test_reports_a_waiting_apply_once(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    sandbox = one.parts.sandboxes.open(plan.id)
    told: list[str] = []
    applier = one.parts.applier
    with applier.prepare(plan.id, sandbox, sandbox.base):
        with (
            pytest.raises(ApplyBusy),
            applier.prepare(plan.id, sandbox, sandbox.base, ApplyOptions(told.append, timeout_seconds=0.05)),
        ):
            pass
        at_once = ApplyOptions(timeout_seconds=0.0)
        with pytest.raises(ApplyBusy), applier.prepare(plan.id, sandbox, sandbox.base, at_once):
            pass
    assert told == [f"another plan is being applied to {remote.address.shown}"]


def test_a_copy_is_set_up_once_from_the_cache(remote: Remote, one: Machine, other: Machine) -> None:
    setup = Setup("mkdir -p kept && echo tools > kept/tools", paths=("kept",))
    plan = done(one, remote, setup=setup, checks=(check("test -e kept/tools && ! grep -q wrong b.txt"),))
    mine = other.plan(remote, write("c.txt", ""), setup=setup)
    other.run(other.claimed(mine))  # so that it is in the cache
    remote_setup = replace(
        other.parts.remotes.remote_setup, commands=lambda there: NoCommands(other.parts.commands(there))
    )
    apply = replace(other.parts.apply, furnish=remote_setup)
    remote.commit({"b.txt": "wrong\n"})
    with pytest.raises(CheckFailed):
        apply.apply(other.now(plan.id), CancellationToken())
    remote.commit({"b.txt": "right\n"})
    assert apply.apply(other.now(plan.id), CancellationToken())[0].phase_state == APPLIED


class NoCommands:
    """A runner that fails on every command: cached output needs none."""

    def __init__(self, real: GuardedCommandRunner) -> None:
        self.isolates = real.isolates
        self.inputs_of = real.inputs_of

    def run(self, *asked: object, **options: object) -> CommandResult:
        raise AssertionError(asked)
