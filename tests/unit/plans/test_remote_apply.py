"""Applying to a git remote: merged with what came since, pushed once, found again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.access.model.project import RemoteAddress
from cleveragents.api.plans.responses import delete
from cleveragents.apply.ports import ApplyOptions, CommitRequest
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
from tests.applying import git
from tests.plan_bench import check, new_repository, write
from tests.remote_bench import At, Died, Machine, machines_at
from tests.remotes import Remote, new_remote

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
    """The apply's job, claimed by that machine, and what the one before did found out."""
    job = machine.claimed(plan, f"apply:{plan.id}")
    machine.parts.apply.taken_up(machine.now(plan.id), fence_of(job))
    return job


def test_a_result_is_merged_with_what_came_since(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    remote.commit({"b.txt": "theirs\n"})
    assert one.apply(plan).phase_state == APPLIED
    assert (remote.text("a.txt"), remote.text("b.txt")) == ("changed", "theirs")
    assert len(remote.commits_of(plan.id)) == 1


def test_a_branch_that_moves_at_the_last_moment_is_merged_with_again(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one", faults=At("apply.push.before", lambda: remote.commit({"b.txt": "theirs\n"})))
    plan = done(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    assert (remote.text("a.txt"), remote.text("b.txt")) == ("changed", "theirs")
    assert len(remote.commits_of(plan.id)) == 1


def test_a_branch_that_never_rests_is_given_up(remote: Remote, machines: Callable[..., Machine]) -> None:
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
        with pytest.raises(RemoteMoved, match="moved meanwhile"):
            one.apply(plan)
    assert faults.times == 3
    assert one.now(plan.id).phase_state == CONSTRAINED
    assert remote.commits_of(plan.id) == []


def test_a_conflict_is_told_with_its_files_and_nothing_is_pushed(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    tip = remote.commit({"a.txt": "theirs\n"})
    with pytest.raises(ApplyConflict) as told:
        one.apply(plan)
    assert told.value.paths == ("a.txt",)
    assert "another commit of main" in told.value.details
    assert one.now(plan.id).phase_state == CONSTRAINED
    assert remote.tip() == tip


def test_a_git_directory_in_a_result_is_not_pushed(remote: Remote, one: Machine) -> None:
    tip = remote.commit({"x/HEAD": "ref: refs/heads/main\n", "x/objects/k": "", "x/refs/k": ""})
    plan = one.plan(remote, write("x/config", "[core]\n"))
    assert one.run(one.claimed(plan)).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    with pytest.raises(ApplyRefused, match=r"a git directory.*: x;"):
        one.apply(plan)
    assert remote.tip() == tip


def test_a_check_that_fails_on_the_merged_result_keeps_it_from_being_pushed(
    remote: Remote, one: Machine
) -> None:
    plan = done(one, remote, checks=(check("! grep -q theirs b.txt"),))
    tip = remote.commit({"b.txt": "theirs\n"})
    with pytest.raises(CheckFailed):
        one.apply(plan)
    assert remote.tip() == tip


def test_a_machine_that_has_no_sandbox_of_the_plan_sets_one_up_for_its_checks(
    remote: Remote, one: Machine, other: Machine
) -> None:
    setup = Setup("mkdir -p kept && echo tools > kept/tools && echo x >> a.txt", paths=("kept",))
    checks = (check("grep -q tools kept/tools && test $(cat a.txt) = changed"),)
    plan = done(one, remote, setup=setup, checks=checks)
    remote.commit({"b.txt": "theirs\n"})  # so that they have to run
    assert other.apply(plan).phase_state == APPLIED
    assert remote.text("a.txt") == "changed"
    assert (other.parts.sandboxes.open(plan.id).root / "kept/tools").exists()


def test_a_setup_that_fails_on_this_machine_keeps_it_from_being_applied(
    remote: Remote, one: Machine, other: Machine
) -> None:
    setup = Setup("case $PWD in */one/*) ;; *) echo not here; exit 1;; esac")
    plan = done(one, remote, setup=setup, checks=(check("true"),))
    tip = remote.commit({"b.txt": "theirs\n"})
    with pytest.raises(CheckFailed, match="failed on this machine: not here"):
        other.apply(plan)
    assert remote.tip() == tip
    assert one.apply(plan).phase_state == APPLIED


def test_what_the_remote_does_not_take_is_told_in_its_words(remote: Remote, one: Machine) -> None:
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
def test_another_machine_finds_out_whether_it_was_pushed(
    remote: Remote, machines: Callable[..., Machine], other: Machine, point: str
) -> None:
    one = machines("one", faults=RaiseAt(point, Died))
    plan = done(one, remote)
    job = one.apply_job(plan)
    with pytest.raises(Died):
        one.apply(plan, job)
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    one.lose(job)
    other.parts.apply.settle()  # not its own: whoever did it may be alive
    assert other.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)
    job = taken_over(other, plan)
    if point == "apply.push.before":
        assert other.now(plan.id).phase_state == ERRORED
        other.apply(plan, job)
    assert other.now(plan.id).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]
    assert one.parts.applier.undecided() == set()
    assert one.parts.remotes.applier._remotes.engine.journal.open_entries() == []


def test_what_nobody_has_a_job_for_any_more_is_settled_by_anybody(
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


def test_one_whose_apply_was_given_up_too_early_says_that_it_is_done(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=At("apply.push.before", lambda: other.parts.apply.taken_up(plan, None)))
    plan = done(one, remote)
    assert one.apply(plan).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


@pytest.mark.parametrize("point", ["apply.push.before", "apply.push.after"])
def test_a_machine_that_starts_again_settles_its_own(
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


def test_what_is_applied_to_a_directory_of_one_machine_is_that_ones_to_settle(
    tmp_path: Path, one: Machine, other: Machine
) -> None:
    """Nobody else sees its files, its locks and its journal."""
    plan = done(one, new_repository(tmp_path / "directory"))
    for state in (PlanState.QUEUED, PlanState.PROCESSING):  # then its process was killed, or is at it
        now = one.container.clock.now()
        under_way = one.parts.plans.move(one.now(plan.id), (Phase.APPLY, state), now=now)
        other.parts.apply.settle()
        assert other.now(plan.id) == under_way
    one.parts.apply.settle()
    assert one.now(plan.id).phase_state == ERRORED


def test_what_a_machine_was_applying_to_a_directory_that_never_comes_back_is_deleted_elsewhere(
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
def test_what_is_moved_in_a_directory_of_one_machine_is_not_ended_by_one_with_the_same_path(
    tmp_path: Path, machines: Callable[..., Machine], other: Machine, point: str
) -> None:
    """Both have one of that name, and each sees its own; the other applies to its own meanwhile, too."""
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


def test_one_that_wakes_up_after_another_applied_it_pushes_nothing(
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


def test_one_that_wakes_up_before_another_applied_it_has_applied_it(
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


def test_one_that_lost_its_job_does_not_even_begin(remote: Remote, one: Machine, other: Machine) -> None:
    plan = done(one, remote)
    job = one.apply_job(plan)
    one.lose(job)
    with pytest.raises(StaleFence):
        one.apply(plan, job)
    assert one.now(plan.id).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert remote.commits_of(plan.id) == []


def test_one_that_loses_its_job_before_it_pushes_does_not_push(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one", faults=At("apply.journal.before", lambda: one.lose(job)))
    plan = done(one, remote)
    job = one.apply_job(plan)
    with pytest.raises(StaleFence):
        one.apply(plan, job)
    assert remote.commits_of(plan.id) == []
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.PROCESSING)


def test_while_the_remote_is_away_nobody_says_what_became_of_it(
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


def test_an_answer_that_was_lost_is_asked_for(
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


def test_a_plan_that_changes_nothing_that_is_not_there_pushes_nothing(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    tip = remote.commit({"a.txt": "changed\n"})
    assert one.apply(plan).phase_state == APPLIED
    assert remote.tip() == tip


def test_an_undo_takes_out_what_was_applied_and_leaves_what_came_after(
    remote: Remote, one: Machine, other: Machine
) -> None:
    plan = done(one, remote)
    one.apply(plan)
    remote.commit({"b.txt": "later\n"})
    undone, _ = other.parts.apply.undo(other.now(plan.id))
    assert undone.state is PlanState.UNDONE
    assert remote.text("a.txt").startswith("one\n")
    assert remote.text("b.txt") == "later"
    assert len(remote.commits_of(plan.id)) == 2
    with (
        pytest.raises(ApplyRefused, match="nothing of it to undo"),
        other.parts.applier.prepare_undo(plan.id, other.parts.sandboxes.open(plan.id)),
    ):
        pass


def test_an_undo_that_was_pushed_and_not_recorded_is_found(
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


def test_a_plan_may_be_applied_to_a_branch_of_its_own(remote: Remote, one: Machine) -> None:
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
def test_a_branch_that_somebody_else_has_is_not_pushed_over(
    remote: Remote, machines: Callable[..., Machine], theirs: str
) -> None:
    """Neither one that is there when it is looked for, nor one that comes at the last moment."""
    pushed = [remote.tip()]

    def somebody_pushes() -> None:
        remote.said("branch", theirs, "main")

    one = machines("one", faults=At("apply.push.before", somebody_pushes))
    plan = done(one, remote)
    for _ in range(2):
        with pytest.raises(ApplyRefused, match=f"has a branch {theirs}, and this plan did not make it"):
            to_branch(one, plan, "review")
        assert one.now(plan.id).phase_state == CONSTRAINED
        assert "to_branch" in str(one.now(plan.id).waiting_for)
        assert [remote.tip(theirs), remote.commits_of(plan.id)] == [*pushed, []]
    applied = to_branch(one, plan, "mine")
    assert (applied.phase_state, one.parts.remotes.branch_of(applied)) == (APPLIED, "mine")
    assert remote.text("a.txt", "mine") == "changed"
    remote.said("branch", "-D", "mine")
    with pytest.raises(ApplyRefused, match="has no branch mine any more"):
        one.parts.apply.undo(one.now(plan.id))


def test_who_pushed_to_a_branch_and_died_is_found_there(
    remote: Remote, machines: Callable[..., Machine], other: Machine
) -> None:
    one = machines("one", faults=RaiseAt("apply.push.after", Died))
    plan = done(one, remote)
    with pytest.raises(Died):
        to_branch(one, plan, "mine")
    found = other.parts.apply.taken_up(other.now(plan.id), None)
    assert (found.phase_state, other.parts.remotes.branch_of(found)) == (APPLIED, "mine")
    assert len(remote.commits_of(plan.id, "mine")) == 1


def test_a_plan_whose_branch_was_deleted_says_so_and_can_be_pushed_to_another(
    remote: Remote, one: Machine
) -> None:
    plan, base = done(one, remote), remote.tip()
    remote.said("update-ref", "-d", "refs/heads/main")
    with pytest.raises(ApplyRefused):
        one.apply(plan, one.apply_job(plan))
    refused = one.now(plan.id)
    assert refused.phase_state == CONSTRAINED
    assert "has no branch main any more; push it there again, and apply it again" in str(refused.error)
    assert to_branch(one, plan, "mine").phase_state == APPLIED
    assert (remote.text("a.txt", "mine"), remote.said("rev-parse", "mine^")) == ("changed", base)


def test_what_was_given_up_is_forgotten(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one", faults=RaiseAt("apply.push.before", Died))
    plan = done(one, remote)
    with pytest.raises(Died):
        one.apply(plan)
    assert one.parts.applier.give_up(plan.id) == [remote.resource]
    assert one.parts.applier.undecided() == set()


def test_a_commit_says_what_it_is_for_and_by_whom(
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


def test_a_commit_that_should_be_signed_is_refused(
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


def test_the_naive_twin_that_pushes_blindly_loses_what_came_since(
    remote: Remote, machines: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as for a branch that moves at the last moment, and there it would be found out."""

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


def test_one_who_applies_from_here_is_seen(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    applier = one.parts.applier
    assert not applier.is_busy_here(remote.resource)
    sandbox = one.parts.sandboxes.open(plan.id)
    with applier.prepare(plan.id, sandbox, sandbox.base):
        assert applier.is_busy_here(remote.resource)
        assert applier.is_busy(remote.resource)
    assert not applier.is_busy_here(remote.resource)


def test_a_preparation_is_good_for_once(remote: Remote, one: Machine) -> None:
    plan = done(one, remote)
    sandbox = one.parts.sandboxes.open(plan.id)
    with one.parts.applier.prepare(plan.id, sandbox, sandbox.base) as preparation:
        assert (preparation.changes, preparation.landed) == ({}, False)
    with pytest.raises(ApplyRefused, match="prepare it again"):
        preparation.apply()


def test_a_plan_on_a_directory_is_not_applied_by_a_push(remote: Remote, one: Machine) -> None:
    plan = one.parts.lifecycle.create(PlanDraft("a goal", "tests/steps", str(remote.clone)))
    pushing = one.parts.remotes.applier._remotes
    assert not pushing.is_busy_here(plan.resource)
    with pytest.raises(ApplyRefused, match="is no remote"):
        pushing._plan(plan.id)
    assert one.parts.directory_of(plan) == remote.clone


def test_one_who_waits_for_another_apply_is_told_once(remote: Remote, one: Machine) -> None:
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


def test_a_copy_is_set_up_once_from_what_is_kept_here(remote: Remote, one: Machine, other: Machine) -> None:
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
    """A runner that runs nothing: what is kept need not be made."""

    def __init__(self, real: GuardedCommandRunner) -> None:
        self.isolates = real.isolates
        self.inputs_of = real.inputs_of

    def run(self, *asked: object, **options: object) -> CommandResult:
        raise AssertionError(asked)
