"""`agents doctor` finds what crashes left over, mends it on demand, and spares what is dirty or another's.

Each leftover is made by what makes it in life: a process that is killed, a row or a directory that is lost.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import delete

from cleveragents.api.plans.next_steps import steps_from
from cleveragents.api.plans.status_text import status_text_of
from cleveragents.app.container import Container
from cleveragents.cli import main
from cleveragents.cli.doctor.checks import DoctorCheck, DoctorVerdict
from cleveragents.cli.doctor.orphans import NotRemoved, Orphan, findings_of
from cleveragents.cli.doctor.plan_orphans import unfinished_applies
from cleveragents.cli.doctor.sandbox_orphans import lost_sandboxes
from cleveragents.cli.doctor.state_checks import state_findings
from cleveragents.cli.doctor.stray_orphans import setup_drafts, temporary_directories
from cleveragents.cli.render.remedies import command_line
from cleveragents.core.errors import PlanError, SandboxMissing
from cleveragents.core.identifiers import MARKER_VARIABLE
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob, marker_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.processes.passthrough import PREFIX, make_directory, owner_lives
from cleveragents.sandboxes.setup_cache import SetupCache
from cleveragents.storage import tables
from cleveragents.testing.clock import CrashAt
from tests.apply_bench import git, snapshot
from tests.plan_bench import PlanBench, edit, plan_bench, write
from tests.processes import wait_gone

OK, WARN, FAIL, FIXED = DoctorVerdict.OK, DoctorVerdict.WARN, DoctorVerdict.FAIL, DoctorVerdict.FIXED
CLEAN = "no orphans"
HOUR = 3600.0


def die_in(act: Callable[[], object]) -> None:
    """Does it in another process, which is killed with `kill -9` on the way, or at its end."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def looked(container: Container, name: str, *, fix: bool = False) -> list[DoctorCheck]:
    """What the doctor says under that name."""
    return [check for check in state_findings(container, fix=fix) if check.name == name]


def told(container: Container, name: str, *, fix: bool = False) -> list[tuple[DoctorVerdict, str]]:
    return [(check.verdict, check.finding) for check in looked(container, name, fix=fix)]


def refs(bench: PlanBench) -> str:
    return git(bench.repository, "for-each-ref", "refs/cleveragents")


def forget(bench: PlanBench, table: str, plan: Plan) -> None:
    """Takes a row away behind everybody's back."""
    rows = getattr(tables, table)
    key = rows.c.id if table == "plans" else rows.c.plan_id
    bench.container.database.write(lambda connection: connection.execute(delete(rows).where(key == plan.id)))


@contextmanager
def held(resource: Path) -> Iterator[None]:
    """As long as somebody applies a plan to it."""
    descriptor = os.open(resource, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def bench(home: Path) -> Iterator[PlanBench]:
    with plan_bench(home) as made:
        yield made


def test_a_state_without_orphans_passes(bench: PlanBench) -> None:
    plan = bench.done(write("new.txt", "new\n"))
    bench.apply(plan)
    names = ("applies", "plans", "processes", "sandboxes", "refs")
    for fix in (False, True):
        assert [told(bench.container, name, fix=fix) for name in names] == [[(OK, CLEAN)]] * len(names)
    assert refs(bench)


# ── Applies ───────────────────────────────────────────────────────────────────────────────────────


def dead_apply(home: Path, point: str, nth: int = 1) -> Plan:
    """A plan whose apply was killed at that point."""
    with plan_bench(home) as bench:
        plan = bench.done(edit("a.txt", "one", "ONE"), edit("b.txt", "alpha", "ALPHA"))

    def apply() -> None:
        with plan_bench(home, faults=CrashAt(point, nth)) as doomed:
            doomed.apply(plan)

    die_in(apply)
    return plan


@pytest.mark.parametrize(
    ("point", "nth", "deed", "state", "text"),
    [
        ("apply.move.after", 1, "reverted", PlanState.ERRORED, "alpha\n"),
        ("apply.done.before", 1, "completed", PlanState.APPLIED, "ALPHA\n"),
    ],
)
def test_an_interrupted_apply_is_found_and_completed(
    home: Path, point: str, nth: int, deed: str, state: PlanState, text: str
) -> None:
    plan = dead_apply(home, point, nth)
    with plan_bench(home) as bench:
        before = snapshot(bench.repository, with_git=True)
        what = f"the apply of plan {plan.id} to {bench.repository} was interrupted"
        [found] = looked(bench.container, "applies")
        assert (found.verdict, found.finding, found.remedy) == (WARN, what, "`agents doctor --fix`")
        assert snapshot(bench.repository, with_git=True) == before
        said = f"{deed} the apply of plan {plan.id} to {bench.repository}"
        assert told(bench.container, "applies", fix=True) == [(FIXED, said)]
        assert told(bench.container, "applies", fix=True) == [(OK, CLEAN)]
        assert (bench.now(plan).phase_state, bench.text("b.txt")) == ((Phase.APPLY, state), text)
        assert bench.text("a.txt").startswith("one" if text == "alpha\n" else "ONE")


def test_a_plan_in_apply_without_a_process_is_found_and_moved(home: Path) -> None:
    plan = dead_apply(home, "apply.stage.before")
    with plan_bench(home) as bench:
        what = f"plan {plan.id} counts as being applied, but no process applies it"
        assert told(bench.container, "applies") == [(WARN, what)]
        said = f"plan {plan.id} is blocked; apply it again"
        assert told(bench.container, "applies", fix=True) == [(FIXED, said)]
        assert bench.apply(bench.now(plan)).state is PlanState.APPLIED


def test_a_running_apply_is_left_alone(home: Path) -> None:
    """openai/codex#24703: a clean-up removed what another, living agent was working on."""
    plan = dead_apply(home, "apply.move.after")
    with plan_bench(home) as bench:
        before = snapshot(bench.repository)
        with held(bench.repository):
            assert told(bench.container, "applies", fix=True) == [(OK, CLEAN)]
        assert snapshot(bench.repository) == before
        assert bench.now(plan).state is PlanState.PROCESSING


def test_an_apply_taken_over_by_a_process_is_left_alone(home: Path) -> None:
    dead_apply(home, "apply.move.after")
    with plan_bench(home) as bench:
        before = snapshot(bench.repository)
        [left] = unfinished_applies(bench.container)
        with held(bench.repository):
            assert left.fix is not None
            with pytest.raises(NotRemoved):
                left.fix()
        assert snapshot(bench.repository) == before


def test_an_apply_that_could_not_be_ended_at_once_is_ended_later(home: Path) -> None:
    """A failed recovery must not make the plan say that nothing of it is left, nor stop any other."""
    plan = dead_apply(home, "apply.done.before")
    with plan_bench(home) as bench:
        [staging] = (bench.repository / ".git/cleveragents").iterdir()
        (staging / "new").rename(home / "away")
        bench.parts.apply.settle()
        assert bench.now(plan).state is PlanState.PROCESSING
        [(verdict, finding)] = told(bench.container, "applies", fix=True)
        assert (verdict, "cannot be changed now" in finding) == (WARN, True)
        (home / "away").rename(staging / "new")
        bench.parts.apply.settle()
        assert (bench.now(plan).state, bench.text("b.txt")) == (PlanState.APPLIED, "ALPHA\n")


def test_a_plan_that_was_believed_to_be_taken_back_is_applied_if_its_files_are(home: Path) -> None:
    plan = dead_apply(home, "apply.done.before")
    with plan_bench(home) as bench:
        now = bench.container.clock.now()
        bench.parts.plans.move(bench.now(plan), (Phase.APPLY, PlanState.ERRORED), now=now)
        bench.parts.apply.settle()
        assert bench.now(plan).state is PlanState.APPLIED


def test_an_apply_to_a_missing_repository_waits_or_is_given_up(home: Path) -> None:
    plan = dead_apply(home, "apply.move.after")
    with plan_bench(home) as bench:
        pass
    away = home / "away"
    bench.repository.rename(away)
    # The bench would make a new repository in its place.
    (home / "repository").symlink_to(home / "nowhere")
    with Container(bench.settings) as container:
        for fix in (False, True):
            [found] = looked(container, "applies", fix=fix)
            assert (found.verdict, found.finding.endswith("repository is out of reach")) == (WARN, True)
            assert f"`agents plan delete {plan.id} --yes`" in (found.remedy or "")
        parts = container.plan_parts
        assert parts.plans.get(plan.id).state is PlanState.PROCESSING
        (home / "repository").unlink()
        away.rename(home / "repository")
        assert [row[0] for row in told(container, "applies", fix=True)] == [FIXED]
        assert ((home / "repository/a.txt").read_text()[:3], (home / "repository/b.txt").read_text()) == (
            "one",
            "alpha\n",
        )


def test_a_plan_is_not_deleted_while_its_undo_is_half_done(home: Path) -> None:
    with plan_bench(home) as bench:
        plan = bench.apply(bench.done(edit("a.txt", "one", "ONE"), edit("b.txt", "alpha", "ALPHA")))

    def undo() -> None:
        with plan_bench(home, faults=CrashAt("undo.move.after", 1)) as doomed:
            doomed.parts.apply.undo(plan)

    die_in(undo)
    with plan_bench(home) as bench:
        with pytest.raises(PlanError, match="was interrupted"):
            bench.parts.cleanup.delete(bench.now(plan))
        bench.parts.apply.settle()
        bench.parts.cleanup.delete(bench.now(plan))
        assert (bench.text("a.txt")[:3], bench.text("b.txt")) == ("ONE", "ALPHA\n")
        assert not (bench.repository / ".git/cleveragents").exists()


def test_a_plan_whose_apply_is_given_up_can_be_deleted(home: Path) -> None:
    plan = dead_apply(home, "apply.move.after")
    with plan_bench(home) as bench:
        [staging] = (bench.repository / ".git/cleveragents").iterdir()
        (staging / "new").rename(home / "away")
        bench.parts.apply.settle()
        given_up = bench.parts.apply.give_up(bench.now(plan))
        assert given_up.state is PlanState.ERRORED
        assert f"some changes may remain in {bench.repository}" in str(given_up.error)
        assert bench.parts.apply.give_up(given_up) == given_up
        bench.parts.cleanup.delete(given_up)
        assert told(bench.container, "applies") == [(OK, CLEAN)]


def test_an_undo_of_a_deleted_plan_is_completed(home: Path) -> None:
    with plan_bench(home) as bench:
        plan = bench.apply(bench.done(edit("b.txt", "alpha", "ALPHA")))

    def undo() -> None:
        with plan_bench(home, faults=CrashAt("undo.done.before")) as doomed:
            doomed.parts.apply.undo(plan)

    die_in(undo)
    with plan_bench(home) as bench:
        forget(bench, "plans", plan)
        bench.parts.apply.settle()
        assert (told(bench.container, "applies"), bench.text("b.txt")) == ([(OK, CLEAN)], "alpha\n")


# ── Plans and processes ───────────────────────────────────────────────────────────────────────────


def dead_run(home: Path, point: str) -> Plan:
    """A plan whose worker was killed at that point."""
    made: list[Plan] = []

    def run() -> None:
        with plan_bench(home, faults=CrashAt(point)) as doomed:
            [plan] = doomed.parts.plans.list()
            doomed.strategies[plan.id] = strategy
            doomed.work(plan)

    with plan_bench(home) as bench:
        made.append(bench.plan(write("new.txt", "new\n")))
        strategy = bench.strategies[made[0].id]
    die_in(run)
    return made[0]


def test_a_plan_whose_worker_died_is_named_with_the_command_that_resumes_it(home: Path) -> None:
    plan = dead_run(home, "sandbox.create.after-checkout")
    with plan_bench(home) as bench:
        for fix in (False, True):
            [found] = looked(bench.container, "plans", fix=fix)
            assert found.verdict is WARN
            assert found.finding == f"plan {plan.id} is running, but its worker died"
            assert f"`agents plan resume {plan.id}`" in (found.remedy or "")
        assert bench.now(plan).state is PlanState.PROCESSING


def test_a_plan_with_a_pending_cancel_is_named_with_its_remedy(home: Path) -> None:
    plan = dead_run(home, "sandbox.create.after-checkout")
    with plan_bench(home) as bench:
        jobs, parts = bench.container.jobs, bench.parts
        jobs.request_cancel(str(bench.now(plan).job_id), "enough", now=bench.container.clock.now())
        [found] = looked(bench.container, "plans")
        assert found.remedy == f"cancel it with `agents plan cancel {plan.id}`"
        with pytest.raises(PlanError, match="cancel is not finished"):
            parts.lifecycle.resume(bench.now(plan))
        assert "a cancel was requested" in status_text_of(parts, bench.now(plan))
        steps = [command_line(step) for step in steps_from(parts, bench.now(plan))]
        assert steps == [f"agents plan cancel {plan.id}"]
        settled = parts.lifecycle.cancel(bench.now(plan), "once more")
        assert (settled.state, settled.error) == (PlanState.CANCELLED, "cancelled: enough")


def test_a_running_plan_is_not_reported(bench: PlanBench) -> None:
    plan = bench.plan(write("new.txt", "new\n"))
    identity = bench.container.processes.identity("alive")
    assert bench.container.jobs.claim(identity, [f"plan:{plan.id}"], now=bench.container.clock.now())
    assert told(bench.container, "plans", fix=True) == [(OK, CLEAN)]


def test_a_plan_whose_job_ended_without_it_is_moved(bench: PlanBench) -> None:
    plan = bench.plan(write("new.txt", "new\n"))
    jobs, now = bench.container.jobs, bench.container.clock.now()
    job = jobs.claim(bench.container.processes.identity("me"), [f"plan:{plan.id}"], now=now)
    assert job is not None
    jobs.finish(job.id, job.fence, AttemptOutcome(JobState.FAILED, error="out of memory"), now=now)
    what = f"plan {plan.id} is queued, but its job has ended (failed)"
    assert told(bench.container, "plans") == [(WARN, what)]
    said = f"plan {plan.id} is failed now: its job has ended"
    assert told(bench.container, "plans", fix=True) == [(FIXED, said)]
    assert bench.now(plan).error == "out of memory"


def test_a_plan_whose_job_is_gone_can_be_resumed(bench: PlanBench) -> None:
    plan = bench.plan(write("new.txt", "new\n"))
    jobs = tables.jobs
    gone = delete(jobs).where(jobs.c.id == plan.job_id)
    bench.container.database.write(lambda connection: connection.execute(gone))
    [found] = looked(bench.container, "plans", fix=True)
    assert (found.verdict, found.finding.endswith("its job is gone")) == (WARN, True)
    assert bench.resume(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)


@contextmanager
def marked_process(marker: str) -> Iterator[int]:
    """A process that carries the marker; of its own session, as an orphan would be."""
    process = subprocess.Popen(
        ["sleep", "600"], env={**os.environ, MARKER_VARIABLE: marker}, start_new_session=True
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def claimed(container: Container) -> str:
    """The marker of a job that this process runs."""
    job = container.jobs.submit(NewJob("work"), now=container.clock.now())
    identity = container.processes.identity("me")
    taken = container.jobs.claim(identity, ["work"], now=container.clock.now())
    assert taken is not None
    return marker_of(job.id, taken.fence)


def test_processes_of_a_dead_worker_are_found_and_ended(home: Path) -> None:
    note = home / "marker"

    def work() -> None:
        with plan_bench(home) as doomed:
            marker = claimed(doomed.container)
            orphan = subprocess.Popen(
                ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
                env={**os.environ, MARKER_VARIABLE: marker},
                start_new_session=True,
            )
            note.write_text(f"{marker} {orphan.pid}")
            os.kill(os.getpid(), signal.SIGKILL)

    with plan_bench(home):
        pass
    die_in(work)
    marker, pid = note.read_text().split()
    with plan_bench(home) as bench:
        [(verdict, finding)] = told(bench.container, "processes")
        assert (verdict, finding.endswith(f" of job {marker}"), pid in finding) == (WARN, True, True)
        assert psutil.pid_exists(int(pid))
        [(verdict, finding)] = told(bench.container, "processes", fix=True)
        assert (verdict, finding.startswith("ended ")) == (FIXED, True)
        assert wait_gone([int(pid)]) == []
        assert told(bench.container, "processes", fix=True) == [(OK, CLEAN)]


def test_processes_of_living_workers_and_of_other_states_live_on(bench: PlanBench) -> None:
    """openai/codex#24703: a clean-up removed what another, living agent was working on."""
    with marked_process(claimed(bench.container)) as mine, marked_process("01FOREIGN:1") as foreign:
        assert told(bench.container, "processes", fix=True) == [(OK, CLEAN)]
        assert psutil.Process(mine).is_running()
        assert psutil.Process(foreign).is_running()


def test_the_doctor_does_not_end_the_shell_it_was_called_from(
    bench: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = claimed(bench.container)
    job_id, _, fence = marker.rpartition(":")
    now = bench.container.clock.now()
    bench.container.jobs.finish(job_id, int(fence), AttemptOutcome(JobState.SUCCEEDED), now=now)
    with marked_process(marker) as pid:
        monkeypatch.setenv(MARKER_VARIABLE, marker)
        [(verdict, finding)] = told(bench.container, "processes", fix=True)
        assert (verdict, "this command was started by one of them" in finding) == (WARN, True)
        assert psutil.Process(pid).is_running()


# ── Sandboxes ─────────────────────────────────────────────────────────────────────────────────────


def test_a_sandbox_that_was_half_made_is_removed_with_its_ref(home: Path) -> None:
    """anthropics/claude-code#63087: what was left over was never cleaned up."""
    plan = dead_run(home, "sandbox.create.after-checkout")
    with plan_bench(home) as bench:
        directory = bench.parts.sandboxes.directory / plan.id
        reason = "the process that made the sandbox died in state 'making'"
        what = f"the sandbox of plan {plan.id}: {reason}"
        before = snapshot(home)
        assert told(bench.container, "sandboxes") == [(WARN, what)]
        assert snapshot(directory) == {
            path.removeprefix(f"state/sandboxes/{plan.id}/"): facts
            for path, facts in before.items()
            if path.startswith(f"state/sandboxes/{plan.id}/")
        }
        said = f"removed the sandbox of plan {plan.id}: {reason}"
        assert told(bench.container, "sandboxes", fix=True) == [(FIXED, said)]
        assert (directory.exists(), refs(bench)) == (False, "")


def orphaned(bench: PlanBench) -> tuple[Plan, Path]:
    """A sandbox whose plan is gone; the plan had changed nothing."""
    plan = bench.done(write("b.txt", "alpha\n"))
    forget(bench, "plans", plan)
    return plan, bench.parts.sandboxes.directory / plan.id


def test_a_clean_sandbox_whose_plan_is_gone_is_removed(bench: PlanBench) -> None:
    plan, directory = orphaned(bench)
    what = f"the sandbox of plan {plan.id}: its plan is gone"
    assert told(bench.container, "sandboxes") == [(WARN, what)]
    assert directory.exists()
    [(verdict, said)] = told(bench.container, "sandboxes", fix=True)
    assert (verdict, said.startswith(f"removed the sandbox of plan {plan.id}")) == (FIXED, True)
    assert (directory.exists(), refs(bench)) == (False, "")


def test_a_sandbox_removed_by_another_process_is_not_reported(bench: PlanBench) -> None:
    whole, half = orphaned(bench)[0], bench.done(write("b.txt", "alpha\n"))
    bench.parts.lifecycle.reject(half)
    shutil.rmtree(bench.parts.sandboxes.directory / half.id)
    found = lost_sandboxes(bench.container)
    for plan in (whole, half):
        bench.parts.sandboxes.remove(plan.id)
    assert [left.fix() for left in found if left.fix] == ["", ""]


def test_sandboxes_fixed_together_are_listed_one_by_one(bench: PlanBench) -> None:
    plans = [bench.done(write(f"{n}.txt", "new\n")) for n in range(2)]
    for plan in plans:
        bench.parts.lifecycle.reject(plan)
        shutil.rmtree(bench.parts.sandboxes.directory / plan.id)
    said = [f"removed the sandbox of plan {plan.id}: the directory of the sandbox is gone" for plan in plans]
    assert told(bench.container, "sandboxes", fix=True) == [(FIXED, one) for one in said]
    assert told(bench.container, "sandboxes", fix=True) == [(OK, CLEAN)]


def test_a_sandbox_with_changes_is_never_removed(bench: PlanBench) -> None:
    """anthropics/claude-code#48927: a clean-up destroyed a whole tree."""
    _, directory = orphaned(bench)
    (directory / "tree" / "precious.txt").write_text("an hour's work\n")
    [found] = looked(bench.container, "sandboxes", fix=True)
    assert (found.verdict, "changes that exist nowhere else (precious.txt)" in found.finding) == (WARN, True)
    assert str(directory) in (found.remedy or "")
    assert (directory / "tree" / "precious.txt").read_text() == "an hour's work\n"
    assert refs(bench)


def test_a_sandbox_in_use_is_never_removed(bench: PlanBench) -> None:
    """openai/codex#24703: locks of living agents were not honoured."""
    plan, directory = orphaned(bench)
    with bench.sandbox(plan).writing():
        [(verdict, said)] = told(bench.container, "sandboxes", fix=True)
        assert (verdict, said.endswith("the sandbox is in use")) == (WARN, True)
    assert (directory / "tree" / "a.txt").exists()


def test_a_damaged_sandbox_with_unapplied_changes_is_never_removed(bench: PlanBench) -> None:
    """anthropics/claude-code#48927: a clean-up destroyed a whole tree."""
    plan = bench.done(write("new.txt", "new\n"))
    directory = bench.parts.sandboxes.directory / plan.id
    (directory / "sandbox.json").rename(directory / "elsewhere")
    [found] = looked(bench.container, "sandboxes", fix=True)
    assert (found.verdict, "the files exist" in (found.remedy or "")) == (WARN, True)
    (directory / "elsewhere").rename(directory / "sandbox.json")
    assert bench.apply(plan).state is PlanState.APPLIED


def test_a_missing_sandbox_is_kept_while_its_plan_may_need_it(bench: PlanBench) -> None:
    undecided, rejected, applied = (bench.done(write(f"{n}.txt", f"{n}\n")) for n in range(3))
    bench.parts.lifecycle.reject(rejected)
    bench.apply(applied)
    sandboxes = bench.parts.sandboxes.directory
    away = sandboxes.with_name("unplugged")
    sandboxes.rename(away)
    sandboxes.mkdir()
    rows = looked(bench.container, "sandboxes", fix=True)
    all_of_them = (undecided, rejected, applied)
    by_plan = {plan.id: next(row for row in rows if plan.id in row.finding) for plan in all_of_them}
    assert [by_plan[plan.id].verdict for plan in (undecided, applied)] == [WARN, WARN]
    assert f"`agents plan delete {undecided.id}`" in (by_plan[undecided.id].remedy or "")
    assert by_plan[rejected.id].verdict is FIXED
    for plan in (undecided, applied):
        (away / plan.id).rename(sandboxes / plan.id)
    assert bench.apply(undecided).state is PlanState.APPLIED
    assert bench.parts.apply.undo(bench.now(applied))[0].state is PlanState.UNDONE
    with pytest.raises(SandboxMissing):
        bench.sandbox(rejected)


def test_a_sandbox_of_which_the_database_knows_nothing_is_named_and_left(bench: PlanBench) -> None:
    plan = bench.done(write("new.txt", "new\n"))
    forget(bench, "sandboxes", plan)
    directory = bench.parts.sandboxes.directory / plan.id
    [found] = looked(bench.container, "sandboxes", fix=True)
    assert (found.verdict, plan.id in found.finding) == (WARN, True)
    assert (found.remedy or "").startswith(f"{directory}: ")
    assert (directory / "tree" / "new.txt").exists()


# ── Refs ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what_is_gone", [("sandboxes",), ("sandboxes", "plans")])
def test_a_ref_of_a_sandbox_that_is_gone_is_removed(bench: PlanBench, what_is_gone: tuple[str, ...]) -> None:
    """anthropics/claude-code#63087: what was left over was never cleaned up."""
    kept = bench.done(write("kept.txt", "kept\n"))
    plan = bench.done(write("new.txt", "new\n"))
    for table in what_is_gone:
        forget(bench, table, plan)
    shutil.rmtree(bench.parts.sandboxes.directory / plan.id)
    place = bench.repository / ".git"
    name = f"refs/cleveragents/base/{plan.id}"
    assert told(bench.container, "refs") == [(WARN, f"{name} in {place}: its sandbox is gone")]
    assert name in refs(bench)
    assert told(bench.container, "refs", fix=True) == [(FIXED, f"removed {name} from {place}")]
    assert refs(bench).split()[2:] == [f"refs/cleveragents/base/{kept.id}"]
    assert told(bench.container, "refs", fix=True) == [(OK, CLEAN)]


def test_a_ref_of_another_state_directory_is_left_alone_and_mentioned(bench: PlanBench, home: Path) -> None:
    """openai/codex#24703: a clean-up removed what another, living agent was working on."""
    bench.done(write("mine.txt", "mine\n"))
    (home / "other").mkdir()
    (home / "other" / "repository").symlink_to(bench.repository)
    with plan_bench(home / "other") as other:
        other.repository = bench.repository
        theirs = other.done(write("theirs.txt", "theirs\n"))
        [(verdict, said)] = told(bench.container, "refs", fix=True)
        assert verdict is OK
        name = f"refs/cleveragents/base/{theirs.id}"
        assert said == f"{CLEAN}; {name} in {bench.repository}/.git belongs to another state directory"
        assert name in refs(bench)
        assert other.apply(theirs).state is PlanState.APPLIED


def test_a_ref_of_a_running_plan_is_kept(bench: PlanBench) -> None:
    plan = bench.done(write("new.txt", "new\n"))
    forget(bench, "sandboxes", plan)
    shutil.rmtree(bench.parts.sandboxes.directory / plan.id)
    now = bench.container.clock.now()
    bench.parts.plans.move(bench.now(plan), (Phase.EXECUTE, PlanState.QUEUED), now=now)
    [(verdict, said)] = told(bench.container, "refs", fix=True)
    assert (verdict, said.endswith("the plan runs again")) == (WARN, True)
    assert refs(bench)


# ── Files ─────────────────────────────────────────────────────────────────────────────────────────


class Deadly(tuple[str, ...]):
    """Paths of which the second is the last thing that a process asks for."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        yield "node_modules"
        os.kill(os.getpid(), signal.SIGKILL)


def test_unfinished_setup_caches_are_removed_in_time(home: Path) -> None:
    """anthropics/claude-code#63087: what was left over was never cleaned up."""
    tree, cache = home / "tree", SetupCache(home / "setups")
    (tree / "node_modules").mkdir(parents=True)
    (tree / "node_modules" / "one.js").write_text("1")
    cache.keep("whole", tree, ["node_modules"])
    die_in(lambda: cache.keep("half", tree, Deadly()))
    [draft] = (home / "setups").glob("draft-*")
    now = time.time()
    assert setup_drafts(cache.directory, now) == []
    assert [left.what for left in setup_drafts(cache.directory, now + 2 * HOUR)] == [
        f"{draft}: never completed"
    ]
    assert draft.exists()

    def survey() -> list[Orphan]:
        return list(setup_drafts(cache.directory, now + 2 * HOUR))

    [row] = findings_of("setup cache", survey, fix=True)
    assert (row.verdict, row.finding) == (FIXED, f"removed {draft}: never completed")
    assert (draft.exists(), (home / "setups" / "whole" / "entry.json").exists()) == (False, True)


@pytest.fixture
def temporary(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = home / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def unnamed() -> Path:
    """One that does not say who made it."""
    made = make_directory()
    return made.rename(made.with_name(f"{PREFIX}{made.name.rpartition('-')[2]}"))


def swept(place: Path, hours: float) -> list[tuple[DoctorVerdict, str]]:
    now = time.time() + hours * HOUR
    rows = findings_of("temporary files", lambda: temporary_directories(place, now), fix=True)
    return [(row.verdict, row.finding) for row in rows]


def test_temporary_directories_of_killed_processes_are_removed_in_time(temporary: Path) -> None:
    die_in(unnamed)
    [left] = temporary.iterdir()
    assert swept(temporary, hours=23) == [(OK, CLEAN)]
    assert swept(temporary, hours=25) == [(FIXED, f"removed {left}: not in use")]
    assert list(temporary.iterdir()) == []


def test_the_directory_of_a_command_is_removed_at_once_when_its_maker_is_dead(temporary: Path) -> None:
    ours = make_directory()
    die_in(make_directory)
    [left] = set(temporary.iterdir()) - {ours}
    assert swept(temporary, hours=0) == [(FIXED, f"removed {left}: not in use")]
    assert swept(temporary, hours=1000) == [(OK, CLEAN)], "whoever lives keeps theirs, however long"
    assert list(temporary.iterdir()) == [ours]


def test_the_directory_of_a_command_of_another_machine_is_judged_by_its_age(temporary: Path) -> None:
    die_in(make_directory)
    [left] = temporary.iterdir()
    pid, ticks, _ = left.name.removeprefix(PREFIX).split(".")
    elsewhere = left.rename(temporary / f"{PREFIX}{pid}.{ticks}.00000000-x")
    assert owner_lives(elsewhere) is None
    assert swept(temporary, hours=23) == [(OK, CLEAN)]
    assert swept(temporary, hours=25) == [(FIXED, f"removed {elsewhere}: not in use")]


def test_the_directory_of_a_command_whose_maker_is_hidden_from_us_is_judged_by_its_age(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another user's is where /proc is mounted with hidepid=1."""
    die_in(make_directory)
    [left] = temporary.iterdir()
    maker = left.name.removeprefix(PREFIX).partition(".")[0]
    read_text = Path.read_text

    def read(path: Path, *how: Any, **more: Any) -> str:
        if str(path).startswith(f"/proc/{maker}/"):
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        return read_text(path, *how, **more)

    monkeypatch.setattr(Path, "read_text", read)
    assert owner_lives(left) is None
    assert swept(temporary, hours=23) == [(OK, CLEAN)]


def test_a_temporary_directory_that_is_used_or_young_or_no_directory_of_ours_stays(temporary: Path) -> None:
    """openai/codex#24703: a clean-up removed what another, living agent was working on."""
    lived_in, stood_in = unnamed(), unnamed()
    demo = temporary / "cleveragents-demo-1"
    demo.mkdir()
    (temporary / "elsewhere").mkdir()
    (temporary / "cleveragents-command-link").symlink_to(temporary / "elsewhere")
    (temporary / "cleveragents-command-file").write_text("not a directory")
    users = [
        subprocess.Popen(["sleep", "600"], env={**os.environ, "HOME": str(lived_in / "home")}),
        subprocess.Popen(["sleep", "600"], cwd=stood_in / "tmp"),
    ]
    try:
        assert swept(temporary, hours=2) == [(OK, CLEAN)]
        found = temporary_directories(temporary, time.time() + 48 * HOUR)
        assert [left.what for left in found] == [f"{demo}: not in use"]
    finally:
        for user in users:
            user.kill()
            user.wait()
    assert len(list(temporary.iterdir())) == 6


def test_a_temporary_directory_in_which_a_file_is_young_stays(temporary: Path) -> None:
    place = unnamed()
    made = place.stat().st_ctime
    while time.time() < made + 0.05:
        pass  # file systems tell time in steps
    (place / "home" / "young").write_text("just written")
    assert place.stat().st_ctime == made
    assert temporary_directories(temporary, made + 24 * HOUR + 0.01) == []
    assert len(temporary_directories(temporary, made + 25 * HOUR)) == 1


def test_a_directory_that_is_taken_into_use_meanwhile_stays(temporary: Path) -> None:
    place = unnamed()
    [left] = temporary_directories(temporary, time.time() + 25 * HOUR)
    user = subprocess.Popen(["sleep", "600"], cwd=place)
    try:
        assert left.fix is not None
        with pytest.raises(NotRemoved):
            left.fix()
    finally:
        user.kill()
        user.wait()
    assert place.exists()


# ── All of it ─────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_survey_or_fix_is_a_finding_and_stops_no_other() -> None:
    def broken() -> list[Orphan]:
        raise PermissionError("no")

    def cannot() -> str:
        raise PermissionError("no")

    [row] = findings_of("sandboxes", broken, fix=False)
    assert (row.verdict, row.finding) == (FAIL, "no")
    lost = [Orphan("one", cannot), Orphan("two", lambda: "removed two"), Orphan("three", lambda: "")]
    rows = findings_of("sandboxes", lambda: lost, fix=True)
    assert [(row.verdict, row.finding) for row in rows] == [(FAIL, "one: no"), (FIXED, "removed two")]


def test_of_very_many_orphans_all_are_fixed_and_some_are_shown() -> None:
    mended: list[int] = []

    def fix(number: int) -> str:
        mended.append(number)
        return f"removed {number}"

    lost = [Orphan(str(n), lambda n=n: fix(n)) for n in range(30)]
    rows = list(findings_of("refs", lambda: lost, fix=True))
    assert (len(mended), len(rows), rows[-1].finding) == (30, 21, "and 10 more")
    [row] = findings_of("refs", lambda: [Orphan(str(n), amiss=False) for n in range(30)], fix=False)
    assert row.finding == "no orphans; 0; 1; 2; and 27 more"


@pytest.mark.parametrize("option", ["--fix", "--mend"])
def test_the_command_changes_nothing_without_fix_or_its_earlier_name(
    option: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = dead_run(home, "sandbox.create.after-checkout")
    monkeypatch.setenv("HOME", str(home))
    before = signal.getsignal(signal.SIGTERM)

    def doctor(*options: str) -> list[dict[str, str]]:
        state = f"state.directory={home}/state"
        words = ["agents", "--set", state, "doctor", "--format", "json", *options]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main.run()
        assert ended.value.code in (None, 0)
        return [row for row in json.loads(capfd.readouterr().out) if row["check"] == "sandboxes"]

    try:
        kept = snapshot(home / "repository", with_git=True)
        assert [row["verdict"] for row in doctor()] == ["warn"]
        assert snapshot(home / "repository", with_git=True) == kept
        assert (home / "state" / "sandboxes" / plan.id).exists()
        [row] = doctor(option)
        assert (row["verdict"], row["finding"].startswith("removed the sandbox")) == ("fixed", True)
        assert not (home / "state" / "sandboxes" / plan.id).exists()
    finally:
        signal.signal(signal.SIGTERM, before)
