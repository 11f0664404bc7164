"""`agents doctor` on what applies left in a repository and no open journal tells of."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from cleveragents.cli.doctor.apply_orphans import forgotten_asides
from cleveragents.cli.doctor.checks import DoctorCheck, DoctorVerdict
from cleveragents.cli.doctor.orphans import NotRemoved
from cleveragents.cli.doctor.state_checks import state_findings
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Plan
from cleveragents.testing.clock import CrashAt
from tests.apply_bench import git
from tests.cli_bench import command_line, use_home
from tests.plan_bench import PlanBench, edit, plan_bench

NAME = "apply files"


def looked(bench: PlanBench, *, fix: bool = False) -> list[DoctorCheck]:
    return [check for check in state_findings(bench.container, fix=fix) if check.name == NAME]


def dead_apply(home: Path, point: str) -> Plan:
    """A plan whose apply was killed at that point, by `kill -9`, in a process of its own."""
    with plan_bench(home) as bench:
        plan = bench.done(edit("a.txt", "one", "ONE"), edit("b.txt", "alpha", "ALPHA"))
    pid = os.fork()
    if pid == 0:
        try:
            with plan_bench(home, faults=CrashAt(point)) as doomed:
                doomed.apply(plan)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    return plan


def given_up(bench: PlanBench, plan: Plan) -> Path:
    """Where the apply of a plan that was deleted in the middle of it has left its files."""
    bench.parts.cleanup.delete(bench.parts.apply.give_up(bench.now(plan)))
    other = bench.done(edit("a.txt", "two", "TWO"))  # the repository is still one that plans are made for
    assert bench.now(other)
    [place] = (bench.repository / ".git/cleveragents").iterdir()
    return place


def test_directories_with_an_open_journal_are_left_to_recovery(tmp_path: Path) -> None:
    dead_apply(tmp_path, "apply.move.after")
    with plan_bench(tmp_path) as bench:
        assert len(list((bench.repository / ".git/cleveragents").iterdir())) == 1
        assert list(forgotten_asides(bench.container)) == []
        assert [check.verdict for check in looked(bench, fix=True)] == [DoctorVerdict.OK]


def test_the_only_copy_of_a_file_is_named_and_kept(tmp_path: Path) -> None:
    plan = dead_apply(tmp_path, "apply.move.after")
    with plan_bench(tmp_path) as bench:
        place = given_up(bench, plan)
        for fix in (False, True):
            [found] = looked(bench, fix=fix)
            assert (found.verdict, "may hold the only copy of new/" in found.finding) == (
                DoctorVerdict.WARN,
                True,
            )
            assert found.remedy == f"look at {place}, then delete it"
        assert place.is_dir()


def test_committed_files_are_removed_and_applies_work_again(tmp_path: Path) -> None:
    plan = dead_apply(tmp_path, "apply.move.after")
    with plan_bench(tmp_path) as bench:
        place = given_up(bench, plan)
        # The user took the half that was applied, and wrote the other half by hand.
        for path in ("a.txt", "b.txt"):
            kept = place / "new" / path
            text = kept.read_text().replace("one", "ONE").replace("alpha", "ALPHA")
            (bench.repository / path).write_text(text)
        git(bench.repository, "commit", "-qam", "both halves")
        for path in ("a.txt", "b.txt"):
            (place / "new" / path).write_text((bench.repository / path).read_text())
        [found] = looked(bench)
        assert (found.verdict, found.remedy) == (DoctorVerdict.WARN, "`agents doctor --fix`")
        assert place.is_dir()
        [mended] = looked(bench, fix=True)
        assert (mended.verdict, str(place) in mended.finding) == (DoctorVerdict.FIXED, True)
        assert not place.parent.exists()
        assert [check.verdict for check in looked(bench)] == [DoctorVerdict.OK]
        assert bench.apply(bench.done(edit("b.txt", "ALPHA", "omega"))).state.value == "applied"


def skeleton(bench: PlanBench, name: str) -> Path:
    """A directory like an apply's before it put anything aside."""
    place = bench.repository / ".git/cleveragents" / name
    for part in ("old", "new"):
        (place / part).mkdir(parents=True)
    return place


def applied_id(bench: PlanBench) -> str:
    """The id of an apply that was done."""
    plan = bench.done(edit("a.txt", "one", "ONE"))
    return bench.parts.apply.apply(bench.now(plan), CancellationToken())[1].id


def test_a_directory_of_another_state_is_named_and_kept(tmp_path: Path) -> None:
    with plan_bench(tmp_path) as bench:
        bench.done(edit("a.txt", "one", "ONE"))
        place = skeleton(bench, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
        (bench.repository / ".git/cleveragents/notes").mkdir()
        (bench.repository / ".cleveragents-mine").mkdir()
        for fix in (False, True):
            [found] = looked(bench, fix=fix)
            assert (found.verdict, "of another state" in found.finding) == (DoctorVerdict.WARN, True)
        assert place.is_dir()


def test_an_empty_directory_is_removed_unless_an_apply_runs(tmp_path: Path) -> None:
    with plan_bench(tmp_path) as bench:
        place = skeleton(bench, applied_id(bench))
        [left] = forgotten_asides(bench.container)
        assert left.fix is not None
        holder = os.open(bench.repository, os.O_RDONLY)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            assert list(forgotten_asides(bench.container)) == []
            with pytest.raises(NotRemoved, match="is being applied"):
                left.fix()
        finally:
            os.close(holder)
        (place / "old/0").write_text("written at the last moment")
        with pytest.raises(NotRemoved, match="only copy"):
            left.fix()
        (place / "old/0").unlink()
        (bench.repository / ".git/index.lock").write_text(f"cleveragents {place.name}\n")
        assert left.fix().startswith(f"removed {place}")
        assert not (bench.repository / ".git/index.lock").exists()
        assert left.fix() == ""
        beside = bench.repository / f".cleveragents-{place.name}"
        (beside / "old").mkdir(parents=True)
        assert [check.verdict for check in looked(bench, fix=True)] == [DoctorVerdict.FIXED]
        assert not beside.exists()


def test_links_and_special_files_are_kept(tmp_path: Path) -> None:
    with plan_bench(tmp_path) as bench:
        place = skeleton(bench, applied_id(bench))
        (place / "old/0").symlink_to("nowhere")
        [left] = forgotten_asides(bench.container)
        assert (left.fix, "only copy of old/0" in left.what) == (None, True)
        (place / "old/0").unlink()
        (place / "old/1").write_text("x")
        git(bench.repository, "update-ref", "-d", "HEAD")
        [left] = forgotten_asides(bench.container)
        assert (left.fix, "old/1" in left.what) == (None, True)
        (bench.repository / ".git").rename(bench.repository / ".no-git")
        plain = bench.repository / f".cleveragents-{place.name}"
        (plain / "old").mkdir(parents=True)
        (plain / "old/1").write_text("x")
        [left] = forgotten_asides(bench.container)
        assert (left.fix, str(plain) in left.what) == (None, True)


def test_a_plan_that_is_stuck_on_an_absent_repository_names_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = dead_apply(tmp_path, "apply.move.after")
    (tmp_path / "repository").rename(tmp_path / "away")
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    with command_line(monkeypatch, capfd) as agents:
        for command in ("apply", "cancel", "delete", "undo", "resume"):
            stuck = agents("plan", command, plan.id)
            assert (stuck.code, "is out of reach" in stuck.err) == (3, True), (command, stuck.err)
            assert ": agents doctor" in stuck.err
        assert "out of reach; see `agents doctor`" in agents("plan", "show", plan.id).out
        given_up = agents("plan", "delete", plan.id, "--yes")
        assert (given_up.code, "would be abandoned" in given_up.err) == (0, True)
