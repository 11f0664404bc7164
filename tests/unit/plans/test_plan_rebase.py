"""Rebases: the agent resolves conflicts with the repository, and nothing is applied from an old decision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.actors.model.actor import Actor, CommandNode, StateKey
from cleveragents.apply.ports import Preparation
from cleveragents.changes.model.merge_conflict import REBASE, Take
from cleveragents.changes.model.review import HunkId, Review, ReviewKind
from cleveragents.core.errors import (
    ApplyConflict,
    ApplyRefused,
    NeedsHuman,
    PlanError,
    ResultChanged,
    StalePlan,
)
from cleveragents.core.tool import CallState
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    rule,
    says,
    steps,
    strategizes,
)
from tests.agent_bench import agent_bench
from tests.apply_bench import git
from tests.plan_bench import PlanBench, check, command, plan_bench, write

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
BLOCKED = (Phase.APPLY, PlanState.CONSTRAINED)
THINKS = strategizes(steps({"title": "do it", "instructions": "at once"}))
CONFLICTS = {"first_user": "(?s)Conflicts came up.*current files of the repository"}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[PlanBench]:
    with plan_bench(tmp_path, isolation="off") as made:
        yield made


@pytest.fixture
def actors(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        yield made


def blocked(bench: PlanBench, plan: Plan) -> Plan:
    """Return the plan after an apply that failed because of a conflict."""
    with pytest.raises(ApplyConflict):
        bench.apply(plan)
    now = bench.now(plan)
    assert now.phase_state == BLOCKED
    return now


def rebased(bench: PlanBench, plan: Plan) -> Plan:
    return bench.work(bench.parts.rebase.rebase(bench.now(plan)))


def writes(bench: ActorPlanBench, *rules: dict[str, Any], **facts: Any) -> Plan:
    """Return a blocked plan: the agent and the user wrote `mine.txt`."""
    does = executes(answer(call("write", path="mine.txt", content="by the agent\n")), says("done"))
    plan = bench.reached(THINKS, *rules, does, reviews(accept()), **facts)
    assert plan.phase_state == COMPLETE, plan.error
    (bench.repository / "mine.txt").write_text("by the user\n")
    return blocked(bench, plan)


def test_the_agent_resolves_the_conflict_and_the_checks_run_again(actors: ActorPlanBench) -> None:
    resolves = executes(
        answer(call("write", path="mine.txt", content="by both\n")),
        answer(call("resolve", path="mine.txt", take="edited")),
        says("both are in"),
        when=CONFLICTS,
    )
    plan = rebased(actors, writes(actors, resolves, checks=[check("test -f mine.txt")]))
    assert plan.phase_state == COMPLETE, (plan.error, plan.waiting_for)
    assert actors.tools_of(plan) == ["write", "rebase", "write", "resolve"]
    assert (actors.repository / "mine.txt").read_text() == "by the user\n"
    runs = actors.parts.check_runs.of_plan(plan.id)
    assert [run.verdict.value for run in runs if not run.is_review] == ["passed", "passed"]
    actors.ensure_consistent(plan)
    assert actors.apply(plan).state is PlanState.APPLIED
    assert (actors.repository / "mine.txt").read_text() == "by both\n"


def blocked_by(bench: ActorPlanBench, plan: Plan, path: str, text: str) -> Plan:
    """Return the plan after a conflict with this text of the user."""
    assert plan.phase_state == COMPLETE, plan.error
    (bench.repository / path).write_text(text)
    return blocked(bench, plan)


@pytest.mark.parametrize(
    ("resolution", "resolved"),
    [("echo 'by both' > mine.txt", True), ("echo >> mine.txt", False), ("rm mine.txt", False)],
    ids=["marks removed", "marks left", "deleted"],
)
def test_an_external_agent_resolves_a_conflict_by_removing_its_marks(
    tmp_path: Path, resolution: str, resolved: bool
) -> None:
    script = f"if grep -q '^<<<<<<<' mine.txt; then {resolution}; else echo 'by the agent' > mine.txt; fi"
    node = CommandNode(name="work", argv=("/bin/sh", "-c", script), prompt="${task}", output="report")
    actor = Actor(name="tests/external", entry="work", nodes=(node,), state=(StateKey("report"),))
    with agent_bench(tmp_path) as bench:
        plan = bench.work(bench.task(actor, profile="full-auto"))
        plan = rebased(bench, blocked_by(bench, plan, "mine.txt", "by the user\n"))
        bench.ensure_consistent(plan)
        if not resolved:
            assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
            return
        assert plan.phase_state == COMPLETE, (plan.error, plan.waiting_for)
        assert bench.tools_of(plan) == ["agent", "rebase", "agent", "resolve"]
        assert bench.apply(plan).state is PlanState.APPLIED
        assert bench.text("mine.txt") == "by both\n"


def test_an_agent_that_forgets_to_call_resolve_has_resolved_what_it_edited(actors: ActorPlanBench) -> None:
    edits = answer(call("write", path="mine.txt", content="by both\n"))
    plan = rebased(actors, writes(actors, executes(edits, says("both are in"), when=CONFLICTS)))
    assert plan.phase_state == COMPLETE, (plan.error, plan.waiting_for)
    (back,) = [one for one in actors.calls(plan) if one.tool == "resolve"]
    actors.parts.sandbox_edits.rollback(plan, back.number)
    assert actors.parts.sub_plan_merge.open_conflicts(plan.id), "a rollback opens the conflict again"


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("def size():\n    return 5\n\n\ndef name():\n    return 'goal'\n", True),
        ("def size():\n    return 5\n", False),
    ],
    ids=["whole file", "one function"],
)
def test_solo_resolves_a_conflict_with_a_whole_file(
    actors: ActorPlanBench, written: str, resolved: bool
) -> None:
    code = "def size():\n    return 1\n\n\ndef name():\n    return 'goal'\n"
    (actors.repository / "goal.py").write_text(code)
    git(actors.repository, "add", ".")
    git(actors.repository, "commit", "-qm", "Measure a goal")

    def block(text: str) -> str:
        return f"goal.py\n```python\n{text}```\n"

    resolves = rule(says(block(written)), when=CONFLICTS)
    does = rule(says(block("def size():\n    return 2\n")))
    plan = actors.reached(resolves, does, cast=(None, "builtin/solo", None))
    plan = rebased(actors, blocked_by(actors, plan, "goal.py", code.replace("1", "3")))
    if not resolved:
        assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING), "no function is lost"
        assert "<<<<<<<" in (actors.sandbox(plan).root / "goal.py").read_text()
        return
    assert plan.phase_state == COMPLETE, (plan.error, plan.waiting_for)
    assert actors.apply(plan).state is PlanState.APPLIED
    assert actors.text("goal.py") == written


def test_a_conflict_that_the_agent_leaves_open_goes_to_a_person(actors: ActorPlanBench) -> None:
    leaves = executes(says("I cannot say"), when=CONFLICTS)
    plan = rebased(actors, writes(actors, leaves))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    waited = actors.waited(plan)
    assert (waited["for"], waited["what"]) == (
        "conflict",
        "the plan and the repository conflict in mine.txt",
    )
    with pytest.raises(PlanError, match="conflicts are not resolved"):
        actors.parts.rebase.rebase(plan)
    actors.parts.manual_resolution.resolve(plan, "mine.txt", Take.OURS)
    plan = actors.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert actors.apply(plan).state is PlanState.APPLIED
    assert (actors.repository / "mine.txt").read_text() == "by the agent\n"


def test_a_check_that_fails_after_a_rebase_is_fixed(actors: ActorPlanBench) -> None:
    """A fix attempt from before the rebase does not count as one after it."""
    does = executes(answer(call("write", path="mine.txt", content="one\n")), says("done"))
    copies = answer(call("command", script="cp wanted.txt fixed.txt"))
    fixes = executes(copies, says("fixed"), when={"first_user": "does not pass"})
    checks = [check('test "$(cat fixed.txt)" = "$(cat wanted.txt)"')]
    (actors.repository / "wanted.txt").write_text("1\n")
    plan = actors.reached(THINKS, fixes, does, reviews(accept()), checks=checks)
    assert plan.phase_state == COMPLETE, plan.error
    (actors.repository / "wanted.txt").write_text("2\n")
    plan = rebased(actors, plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert (actors.sandbox(plan).root / "fixed.txt").read_text() == "2\n"


def test_changes_of_the_repository_break_no_invariant(bench: PlanBench) -> None:
    plan = bench.done(write("new.txt", "new\n"), invariants=("only_paths: new.txt",))
    assert plan.phase_state == COMPLETE, plan.error
    (bench.repository / "theirs.txt").write_text("theirs\n")
    plan = rebased(bench, plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.diff(plan, "--name-only").split() == ["new.txt"]


def test_an_apply_prepared_before_a_rebase_is_stale(bench: PlanBench) -> None:
    """The tree stays the same here; only its base moves."""
    plan = bench.done(write("a.txt", "mine\n"))
    apply, rebase = bench.parts.apply, bench.parts.rebase
    theirs = bench.repository / "a.txt"
    theirs.write_text("mine\n")

    class RebasesFirst:
        """The applier, after another process rebased the plan and was killed before it queued it."""

        @contextmanager
        def prepare(self, *about: Any, **options: Any) -> Iterator[Preparation]:
            assert rebase.merge(plan) is not None
            with apply.applier.prepare(*about, **options) as preparation:
                yield preparation

        def __getattr__(self, name: str) -> Any:
            return getattr(apply.applier, name)

    late: Any = RebasesFirst()
    with pytest.raises(StalePlan):
        replace(apply, applier=late).apply(plan, CancellationToken())
    assert bench.now(plan).phase_state == BLOCKED


def test_a_rebase_from_an_earlier_decision_is_stale(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    (bench.repository / "b.txt").write_text("theirs\n")
    bench.parts.rebase.rebase(plan)
    with pytest.raises((StalePlan, PlanError)):
        bench.parts.rebase.rebase(plan)
    assert [made.tool for made in bench.calls(plan)].count(REBASE) == 1


def test_another_apply_during_a_rebase_is_merged_by_the_next_one(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    (bench.repository / "b.txt").write_text("one\n")
    assert rebased(bench, plan).phase_state == COMPLETE
    (bench.repository / "a.txt").write_text("theirs\n")
    plan = rebased(bench, blocked(bench, plan))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    bench.parts.manual_resolution.resolve(plan, "a.txt", Take.THEIRS)
    plan = bench.resume(plan)
    assert (plan.phase_state, bench.diff(plan)) == (COMPLETE, "")


def test_a_rebase_that_was_not_queued_continues(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"), checks=[check("test -f b.txt")])
    (bench.repository / "a.txt").write_text("theirs\n")
    plan = blocked(bench, plan)
    bench.parts.rebase.merge(plan)
    with pytest.raises(PlanError, match="conflicts are not resolved"):
        bench.parts.rebase.merge(plan)
    with pytest.raises(PlanError, match="conflicts are not resolved"):
        bench.apply(plan)
    assert rebased(bench, plan).phase_state == (Phase.EXECUTE, PlanState.WAITING)
    assert [made.tool for made in bench.calls(plan)].count(REBASE) == 1


def test_only_a_conflict_that_was_seen_is_resolved(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    (bench.repository / "a.txt").write_text("theirs\n")
    plan = blocked(bench, plan)

    def captured(path: str) -> str:
        """Change a file by hand, and return the result from before."""
        seen = bench.parts.result.tree(plan, bench.sandbox(plan))
        (bench.sandbox(plan).root / path).write_text("by hand\n")
        bench.parts.sandbox_edits.reread(plan)
        return seen

    with pytest.raises(ResultChanged):
        bench.parts.rebase.merge(plan, path="a.txt", of=captured("a.txt"))
    bench.parts.rebase.merge(plan, path="a.txt", of=bench.parts.result.tree(plan, bench.sandbox(plan)))
    resolve, seen = bench.parts.manual_resolution.resolve, captured("b.txt")
    with pytest.raises(ResultChanged):
        resolve(plan, "a.txt", Take.OURS, tree=seen)
    resolve(plan, "a.txt", Take.OURS, tree=bench.parts.result.tree(plan, bench.sandbox(plan)))
    assert not bench.parts.sub_plan_merge.open_conflicts(plan.id)
    assert "+by hand" in bench.diff(plan)


@pytest.mark.parametrize("theirs", ["a.txt", "b.txt"])
def test_a_rebase_of_a_finished_plan_that_was_not_queued_continues(bench: PlanBench, theirs: str) -> None:
    """With and without a conflict. Once the plan has run, there is nothing to continue."""
    plan = bench.done(write("a.txt", "mine\n"), checks=[check("test -f b.txt")])
    (bench.repository / theirs).write_text("theirs\n")
    bench.parts.rebase.merge(plan)
    plan = rebased(bench, plan)
    if theirs == "a.txt":
        assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
        bench.parts.manual_resolution.resolve(plan, "a.txt", Take.OURS)
        plan = bench.resume(plan)
    else:  # with a side taken, the files are those that were checked
        assert len(bench.parts.check_runs.of_plan(plan.id)) == 2
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.parts.rebase.rebase(plan) == plan
    assert [made.tool for made in bench.calls(plan)].count(REBASE) == 1


def test_unrecorded_edits_are_not_overwritten(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    (bench.repository / "b.txt").write_text("theirs\n")
    edited = bench.sandbox(plan).root / "a.txt"
    edited.write_text("edited by hand\n")
    with pytest.raises(NeedsHuman, match="unrecorded edits"):
        bench.parts.rebase.rebase(plan)
    assert edited.read_text() == "edited by hand\n"


def test_changesets_before_a_rebase_cannot_be_left_out_after_it(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    (bench.repository / "b.txt").write_text("theirs\n")
    plan = rebased(bench, plan)
    for made in bench.calls(plan):
        with pytest.raises(PlanError, match="merged that changeset"):
            bench.parts.result.review(plan, ReviewKind.CHANGESET, str(made.changeset_id), accepted=False)
    bench.parts.result.review(plan, ReviewKind.PATH, "a.txt", accepted=False)
    assert bench.diff(plan) == ""


def leave_out_the_last_line(bench: PlanBench, plan: Plan) -> None:
    """Leave out the only hunk of `a.txt`, an eighth line."""
    sandbox, result = bench.sandbox(plan), bench.parts.result
    now = result.states(plan, sandbox)["a.txt"]
    before = sandbox.base_states(["a.txt"])["a.txt"]
    assert now is not None
    assert before is not None
    hunk = HunkId("a.txt", before.content, now.content, 5, 3, 5, 4)
    result.reviews.set(Review(plan.id, ReviewKind.HUNK, hunk.subject, False), now=result.clock.now())


def test_a_hunk_left_out_before_a_rebase_stays_out_without_a_new_verdict(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", bench.text("a.txt") + "unwanted\n"), write("c.txt", "c\n"))
    before = bench.text("a.txt")
    leave_out_the_last_line(bench, plan)
    (bench.repository / "b.txt").write_text("theirs\n")
    plan = rebased(bench, plan)
    bench.sandbox(plan).root.joinpath("a.txt").write_text(f"first\n{before}")
    bench.parts.sandbox_edits.reread(plan)
    assert bench.apply(plan).state is PlanState.APPLIED
    assert bench.text("a.txt") == f"first\n{before}"


def test_a_hunk_whose_file_changed_is_decided_before_a_rebase(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", bench.text("a.txt") + "unwanted\n"))
    leave_out_the_last_line(bench, plan)
    file = bench.sandbox(plan).root / "a.txt"
    file.write_text(f"first\n{file.read_text()}")
    bench.parts.sandbox_edits.reread(plan)
    (bench.repository / "b.txt").write_text("theirs\n")
    with pytest.raises(NeedsHuman, match="accept or reject these hunks again"):
        bench.parts.rebase.rebase(plan)
    with pytest.raises(NeedsHuman, match="accept or reject these hunks again"):
        bench.parts.apply.commit_apart(plan, "published")


def test_only_the_result_that_was_seen_is_committed_apart(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    seen = bench.parts.result.tree(plan, bench.sandbox(plan))
    with pytest.raises(ResultChanged):
        bench.parts.apply.commit_apart(plan, "published", "0" * len(seen))
    assert bench.parts.apply.commit_apart(plan, "published", seen)


def test_a_failed_write_of_the_files_leaves_the_result_as_it_was(
    bench: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bench.done(write("a.txt", "mine\n"), command("true"))
    before = bench.diff(plan)
    (bench.repository / "b.txt").write_text("theirs\n")
    with monkeypatch.context() as broken:

        def fails(*about: object) -> None:
            raise OSError("no space left")

        broken.setattr("cleveragents.plans.conflicts.rebase.restore_states", fails)
        with pytest.raises(OSError, match="no space"):
            bench.parts.rebase.rebase(plan)
    with pytest.raises(PlanError, match="the rebase was interrupted"):
        bench.apply(plan)
    assert bench.diff(plan) == before
    plan = rebased(bench, plan)
    assert plan.phase_state == COMPLETE, plan.error
    states = [made.state for made in bench.calls(plan) if made.tool == REBASE]
    assert states == [CallState.FAILED, CallState.ENDED]
    bench.ensure_consistent(plan)


def test_ignored_files_of_the_user_stay_out_of_the_sandbox(bench: PlanBench) -> None:
    """A plan can remove a rule and write the file, so that both sides would be in its conflict."""
    (bench.repository / ".git/info/exclude").write_text(".env\n")
    plan = bench.done(write(".gitignore", "!.env\n"), write(".env", "X=1\n"), write("a.txt", "mine\n"))
    (bench.repository / ".env").write_text("tulip-42\n")
    (bench.repository / "b.txt").write_text("theirs\n")
    for now in (plan, blocked(bench, plan)):
        assert "tulip-42" not in str(now.waiting_for)
        for act in (bench.parts.rebase.merge, bench.parts.rebase.rebase):
            with pytest.raises(ApplyRefused, match=r"not rebased: git ignores your \.env") as caught:
                act(bench.now(plan))
            assert [remedy.options for remedy in caught.value.remedies] == [{"reject": ".env"}]
    assert (bench.sandbox(plan).root / ".env").read_text() == "X=1\n"
    assert [made.tool for made in bench.calls(plan)] == ["write"] * 3
    bench.parts.result.review(plan, ReviewKind.PATH, ".env", accepted=False)
    plan = rebased(bench, plan)
    assert plan.phase_state == COMPLETE, plan.error
    bench.ensure_consistent(plan)
    assert bench.apply(plan).state is PlanState.APPLIED
    assert [bench.text(path) for path in (".env", "a.txt", "b.txt")] == ["tulip-42\n", "mine\n", "theirs\n"]


def test_a_file_that_the_user_ignores_since_the_base_leaves_the_sandbox(bench: PlanBench) -> None:
    plan = bench.done(write("a.txt", "mine\n"))
    git(bench.repository, "rm", "-q", "--cached", "b.txt")
    (bench.repository / ".gitignore").write_text("b.txt\n")
    (bench.repository / "b.txt").write_text("tulip-42\n")
    plan = rebased(bench, plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert not (bench.sandbox(plan).root / "b.txt").exists()
    bench.ensure_consistent(plan)
    assert bench.apply(plan).state is PlanState.APPLIED
    assert bench.text("b.txt") == "tulip-42\n"


def linked(bench: PlanBench, commit: str | None) -> None:
    """Set the commit of the submodule `sub` in the index of the user, or remove the submodule."""
    if commit is None:
        git(bench.repository, "rm", "-q", "--cached", "sub")
        (bench.repository / "sub").rmdir()
        return
    (bench.repository / "sub").mkdir(exist_ok=True)
    git(bench.repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")


@pytest.mark.parametrize(("before", "after"), [("1" * 40, "2" * 40), ("1" * 40, None), (None, "2" * 40)])
def test_changes_of_submodules_stay_with_the_repository(
    bench: PlanBench, before: str | None, after: str | None
) -> None:
    if before is not None:
        linked(bench, before)
    plan = bench.done(write("a.txt", "mine\n"))
    linked(bench, after)
    assert bench.parts.rebase.merge(plan) is None
    (bench.repository / "b.txt").write_text("theirs\n")
    plan = rebased(bench, plan)
    assert plan.phase_state == COMPLETE, plan.error
    bench.ensure_consistent(plan)
    assert bench.diff(plan, "--name-only").split() == ["a.txt"]
    assert bench.apply(plan).state is PlanState.APPLIED
    listed = git(bench.repository, "ls-files", "-s", "sub")
    assert (after or "") in listed
    assert bool(listed) == (after is not None)


def test_files_in_the_place_of_a_submodule_refuse_a_rebase(bench: PlanBench) -> None:
    linked(bench, "1" * 40)
    plan = bench.done(write("a.txt", "mine\n"))
    linked(bench, None)
    (bench.repository / "sub").mkdir()
    (bench.repository / "sub/x").write_text("x\n")
    with pytest.raises(ApplyRefused, match="sub is no longer a submodule; start a new plan"):
        bench.parts.rebase.rebase(plan)
    assert [made.tool for made in bench.calls(plan)] == ["write"]


def test_two_changes_of_a_submodule_refuse_a_rebase(bench: PlanBench) -> None:
    linked(bench, "1" * 40)
    plan = bench.done(command("rmdir sub"))
    linked(bench, "2" * 40)
    with pytest.raises(ApplyRefused, match="you and the plan both changed the submodule sub"):
        bench.parts.rebase.rebase(plan)
    linked(bench, None)
    (bench.repository / "b.txt").write_text("theirs\n")
    plan = rebased(bench, plan)
    assert plan.phase_state == COMPLETE, plan.error
    bench.ensure_consistent(plan)
    assert bench.apply(plan).state is PlanState.APPLIED
