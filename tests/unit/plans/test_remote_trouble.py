"""Plans on git remotes in trouble: they are applied in the end, or state the reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import update

from cleveragents.access.model.project import RemoteAddress
from cleveragents.api.plans.available_actions import needs_of, possible_actions
from cleveragents.api.plans.changes import changed_files, found_changes, unapplied_of
from cleveragents.api.plans.details import details_of
from cleveragents.api.plans.diffs import patch_of
from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.responses import ensure_decidable
from cleveragents.api.plans.status_text import status_text_of
from cleveragents.core.errors import ApplyRefused, PlanError, Remedy, RemoteUnreachable, StalePlan
from cleveragents.core.identifiers import Fence
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.plans.apply_policy import apply_if_allowed
from cleveragents.plans.jobs.shared_jobs import PlanJob, PlanObserver
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.remote.sandboxes import RemoteSandboxes
from cleveragents.sandboxes.ports import Unapplied
from cleveragents.storage.tables import plans
from cleveragents.testing.clock import RaiseAt
from tests.plan_bench import write
from tests.remote_bench import At, Died, Machine, machines_at
from tests.remotes import Remote, new_remote

APPLIED = (Phase.APPLY, PlanState.APPLIED)
PROCESSING = (Phase.APPLY, PlanState.PROCESSING)


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return new_remote(tmp_path)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    with machines_at(tmp_path) as made:
        yield made


def wanted(machine: Machine, remote: Remote) -> tuple[Plan, AsyncJob]:
    """Return a plan that is applied as soon as it is done, and its job."""
    plan = machine.plan(remote, write("a.txt", "changed\n"), request={"apply": "auto"})
    return plan, machine.claimed(plan)


def run(machine: Machine, job: AsyncJob, told: list[str] | None = None) -> None:
    watched = PlanObserver(lambda plan, line: None if told is None else told.append(line))
    PlanJob(machine.handler(), machine.parts, watched)(job)


def again(machine: Machine, plan: Plan, job: AsyncJob) -> AsyncJob:
    """Return the next attempt, claimed by the worker of that machine."""
    machine.lose(job)
    return machine.claimed(plan)


class Held:
    """A branch locked by another push for a number of attempts."""

    def __init__(self, remote: Remote, times: int) -> None:
        self.lock = remote.directory / "refs/heads/main.lock"
        self.left = times

    def reach(self, name: str) -> None:
        if name == "apply.push.before" and self.left > 0:
            self.lock.touch()
        if name == "apply.push.after":
            self.left -= 1
            if self.left == 0:
                self.lock.unlink()


def test_retries_a_branch_locked_by_another_push(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one", faults=Held(remote, 2))
    plan, job = wanted(one, remote)
    run(one, job)
    assert one.now(plan.id).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


def test_reports_a_permanently_locked_branch(
    remote: Remote, machines: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cleveragents.plans.apply._ROUNDS", 2)
    one = machines("one", faults=Held(remote, 100))
    plan, job = wanted(one, remote)
    run(one, job)
    assert one.now(plan.id).phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    assert "cannot lock ref" in str(one.now(plan.id).error)


def test_does_not_retry_a_rejecting_hook(
    remote: Remote, machines: Callable[..., Machine], tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    hook = remote.directory / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho x >> {asked}\necho main is blocked, cannot lock ref >&2\nexit 1\n")
    hook.chmod(0o755)
    one = machines("one")
    plan, job = wanted(one, remote)
    run(one, job)
    assert asked.read_text() == "x\n"
    with pytest.raises(ApplyRefused, match="main is blocked"):
        one.apply(plan)


def test_applies_when_the_remote_is_reachable_again(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one")
    plan, job = wanted(one, remote)
    one.run(job)
    away = remote.directory.rename(remote.directory.with_name("away.git"))
    told: list[str] = []
    with pytest.raises(RemoteUnreachable):
        run(one, again(one, plan, job), told)
    assert any("shop.git" in line for line in told)
    away_now = one.now(plan.id)
    assert away_now.phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    assert "shop.git: fatal: " in str(away_now.error)
    assert "does not appear to be a git repository; check the URL and" in str(away_now.error)
    assert "nothing was changed. Apply it again when the remote answers" in str(away_now.error)
    assert "apply" in possible_actions(one.parts, away_now)
    away.rename(remote.directory)
    run(one, again(one, plan, one.claimed_jobs[-1]))
    assert one.now(plan.id).phase_state == APPLIED


def test_another_machine_reports_an_unreachable_remote(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one, other = machines("one"), machines("other")
    plan = one.plan(remote, write("a.txt", "changed\n"))
    one.run(one.claimed(plan))
    remote.directory.rename(remote.directory.with_name("away.git"))
    seen = details_of(other.parts, other.now(plan.id))
    assert (seen["files_changed"], seen["sandbox"], seen["changes"][0]["path"]) == (1, None, "a.txt")
    assert "listed without their lines: cannot reach file://" in seen["notes"][0]
    assert found_changes(other.parts, plan).rows == changed_files(other.parts, plan) == list(seen["changes"])
    assert unapplied_of(other.parts, plan) == Unapplied()
    with pytest.raises(RemoteUnreachable):
        other.apply(plan)
    assert other.now(plan.id).phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    assert "when the remote answers" in str(other.now(plan.id).error)


def test_asks_an_unreachable_remote_for_the_outcome_again(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    away = remote.directory.with_name("away.git")
    one = machines("one", faults=At("apply.push.before", lambda: remote.directory.rename(away)))
    plan, job = wanted(one, remote)
    with pytest.raises(RemoteUnreachable):  # so that the job is retried: no other process looks at it
        run(one, job)
    unknown = one.now(plan.id)
    assert unknown.phase_state == PROCESSING
    assert str(unknown.error).startswith("the outcome of the apply is unknown: cannot reach file://")
    other = machines("other")
    other.knows(one)
    job = again(other, plan, job)
    with pytest.raises(RemoteUnreachable):
        run(other, job)
    assert other.now(plan.id) == unknown  # recorded once, however often it is retried
    assert (needs_of(one.parts, unknown), possible_actions(one.parts, unknown)) == ("error", ["apply"])
    assert "the outcome is unknown" in status_text_of(one.parts, unknown)
    [_, step] = steps_from(one.parts, unknown)
    assert step == Remedy("plan.apply", plan.id, {}, "check the outcome, and apply if needed")
    with pytest.raises(PlanError, match="the outcome of the apply is unknown"):
        ensure_decidable(unknown)
    away.rename(remote.directory)
    run(other, again(other, plan, job))
    assert other.now(plan.id).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


def test_a_concurrent_move_during_an_apply_is_retried(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    one = machines("one")
    plan, job = wanted(one, remote)
    one.run(job)
    before = one.now(plan.id)
    one.parts.plans.move(before, (Phase.APPLY, PlanState.QUEUED), now=one.container.clock.now())
    with pytest.raises(StalePlan):
        apply_if_allowed(one.parts, before, fence=Fence(job.id, job.fence))
    assert apply_if_allowed(one.parts, before).phase_state == (Phase.APPLY, PlanState.QUEUED)


def test_a_restarted_machine_leaves_jobs_of_others_alone(
    remote: Remote, machines: Callable[..., Machine]
) -> None:
    """The owner of the job finds out; two processes would each take the other's apply for a dead one."""
    one = machines("one", faults=RaiseAt("apply.push.before", Died))
    plan, job = wanted(one, remote)
    with pytest.raises(Died):
        run(one, job)
    assert one.now(plan.id).phase_state == PROCESSING
    one.lose(job)
    one.parts.apply.settle()
    assert one.now(plan.id).phase_state == PROCESSING
    other = machines("other")
    other.knows(one)
    run(other, other.claimed(plan))
    assert other.now(plan.id).phase_state == APPLIED
    assert remote.commits_of(plan.id) == [remote.tip()]


def test_a_found_commit_is_recorded_once(remote: Remote, machines: Callable[..., Machine]) -> None:
    one, other = machines("one", faults=RaiseAt("apply.push.after", Died)), machines("other")
    plan, job = wanted(one, remote)
    with pytest.raises(Died):
        run(one, job)
    pushing = other.parts.remotes.applier._remotes
    engine, address = pushing.engine, remote.address
    engine.mirrors.fetch(address)
    landed = engine.landed(plan.id, address, pushing.base_of(plan.id, address))
    assert landed is not None
    assert one.parts.apply.taken_up(one.now(plan.id), None).phase_state == APPLIED
    assert engine.record_landed(landed, None).commit == remote.tip()
    assert other.now(plan.id).phase_state == APPLIED
    assert [entry.id for entry in engine.journal.latest(remote.resource, 5)] == [landed.entry.id]


def test_fetches_a_mirror_with_a_briefly_locked_ref(
    remote: Remote, machines: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch continues for a while after its worker was killed."""
    one = machines("one")
    mirrors, address = one.parts.remotes.mirrors, remote.address
    mirrors.fetch(address)
    tip = remote.commit({"b.txt": "theirs\n"})
    lock = mirrors.repository(address).directory / "refs/heads/main.lock"
    lock.touch()
    # Only the mirror's own clock: waiting for the git process sleeps too.
    freeing = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=lambda _: lock.unlink())
    monkeypatch.setattr("cleveragents.sandboxes.mirror.time", freeing)
    assert mirrors.fetched(address) == tip


def test_a_new_machine_copes_with_rewritten_history(remote: Remote, machines: Callable[..., Machine]) -> None:
    one = machines("one", faults=RaiseAt("apply.push.before", Died))
    plan, job = wanted(one, remote)
    with pytest.raises(Died):
        run(one, job)
    tree = remote.said("rev-parse", "main^{tree}")
    rewritten = remote.said("commit-tree", "-m", "all anew", tree)
    remote.said("update-ref", "refs/heads/main", rewritten)
    remote.said("reflog", "expire", "--expire=now", "--all")
    remote.said("gc", "-q", "--prune=now")
    other = machines("other")
    assert other.parts.apply.taken_up(other.now(plan.id), None).state is PlanState.ERRORED
    assert remote.tip() == rewritten


def test_a_look_does_not_wait_for_a_silent_remote(
    remote: Remote, machines: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = machines("one"), machines("other")
    plan = one.plan(remote, write("a.txt", "changed\n"))
    one.run(one.claimed(plan))
    # From now on its address accepts connections and never answers.
    hole = remote.directory.with_name("ssh")
    hole.write_text("#!/bin/sh\nexec sleep 600\n")
    hole.chmod(0o700)
    monkeypatch.setenv("GIT_SSH", str(hole))
    silent = str(RemoteAddress("ssh://host/shop.git", "main"))
    one.container.database.write(
        lambda connection: connection.execute(update(plans).values(resource=f'"{silent}"'))
    )
    monkeypatch.setattr(RemoteSandboxes, "answer_seconds", 0.3)
    began = time.monotonic()
    seen = details_of(other.parts, other.now(plan.id))
    assert (seen["files_changed"], seen["changes"][0]["path"]) == (1, "a.txt")
    assert "listed without their lines: cannot reach ssh://host" in seen["notes"][0]
    assert "no answer within" in seen["notes"][0]
    with pytest.raises(RemoteUnreachable):
        patch_of(other.parts, other.now(plan.id))
    assert time.monotonic() - began < 60


def test_a_look_fetches_from_an_answering_remote(remote: Remote, machines: Callable[..., Machine]) -> None:
    one, other = machines("one"), machines("other")
    plan = one.plan(remote, write("a.txt", "changed\n"))
    one.run(one.claimed(plan))
    assert b"+changed" in patch_of(other.parts, other.now(plan.id))
    remote.directory.rename(remote.directory.with_name("away.git"))
    assert b"+changed" in patch_of(other.parts, other.now(plan.id))
