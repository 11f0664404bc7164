"""Checks say what holds of a tree and leave no trace in it; only a pass is a pass; set-ups are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleveragents.cli.plan.sections import in_short
from cleveragents.core.actions.model import CheckVerdict, Setup, in_a_line
from cleveragents.core.errors import ApplyConflict, CheckFailed, NeedsHuman, ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.processes.own_checkout import imports_from
from tests.plan_bench import PlanBench, check, command, edit, write

SETUP = Setup("mkdir -p kept && cat key.txt >> kept/made; echo ran >> ran.log", ("key.txt",), ("kept",))


def verdicts(plans: PlanBench, plan: Plan) -> list[CheckVerdict]:
    return [run.verdict for run in plans.parts.check_runs.of_plan(plan.id)]


def test_checks_run_at_the_end_of_execute_on_what_the_plan_made(plans: PlanBench) -> None:
    plan = plans.done(
        edit("b.txt", "alpha", "beta"), checks=[check("grep beta b.txt"), check("grep alpha b.txt")]
    )
    assert plan.state is PlanState.COMPLETE
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.FAILED]


@pytest.mark.parametrize(
    ("text", "verdict", "said"),
    [
        ("echo first; echo why; exit 3", CheckVerdict.FAILED, "exit code 3: why"),
        ("no-such-program-at-all", CheckVerdict.NOT_RUN, "could not be run"),
        ("./b.txt", CheckVerdict.NOT_RUN, "could not be run"),
    ],
)
def test_only_a_pass_is_a_pass(plans: PlanBench, text: str, verdict: CheckVerdict, said: str) -> None:
    """A required check that fails or cannot run keeps the user's files as they are."""
    plan = plans.done(edit("b.txt", "alpha", "beta"), checks=[check(text)])
    assert verdicts(plans, plan) == [verdict]
    with pytest.raises(CheckFailed, match=said):
        plans.apply(plan)
    assert plans.text("b.txt") == "alpha\n"
    plan = plans.now(plan)
    assert plan.phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    assert said in str(plan.error)


def test_a_check_is_told_in_a_line_with_the_last_that_it_printed() -> None:
    """A person reads why it failed, not only that it did."""
    assert in_a_line("exit code 1\n") == "exit code 1"
    assert in_a_line("exit code 1\na\nb\n\n") == "exit code 1: b"
    assert in_a_line(f"exit code 1\n{'x' * 201}") == f"exit code 1: {'x' * 200}…"
    row: dict[str, JsonValue] = {"name": "tests", "verdict": "failed", "details": "exit code 1\na\nb\n"}
    assert in_short(row)["what"] == "exit code 1: b"
    assert in_short({**row, "name": "review", "details": "no\n- because"})["what"] == "no"
    assert in_short({**row, "verdict": "passed"})["what"] == ""


def test_a_check_that_could_not_be_started_did_not_run(plans: PlanBench) -> None:
    def refused(*asked: object) -> None:
        raise ToolRefused("command", "it cannot be isolated")

    plans.parts.own_checkout = refused
    plan = plans.done(checks=[check("true")])
    assert verdicts(plans, plan) == [CheckVerdict.NOT_RUN]


def test_a_check_that_takes_too_long_has_failed(plans: PlanBench) -> None:
    plan = plans.done(checks=[check("sleep 60", timeout_seconds=0.3)])
    assert verdicts(plans, plan) == [CheckVerdict.FAILED]
    assert "longer than 0.3 s" in plans.parts.check_runs.of_plan(plan.id)[0].details


def test_an_informational_check_keeps_nothing_back(plans: PlanBench) -> None:
    plan = plans.done(edit("b.txt", "alpha", "beta"), checks=[check("false", required=False)])
    assert plans.apply(plan).state is PlanState.APPLIED


def test_a_check_of_the_users_own_checkout_is_void(plans: PlanBench) -> None:
    """As an editable install has it: Python finds the package in the user's directory."""
    plans.parts.own_checkout = lambda *asked: "it looks elsewhere"
    plan = plans.done(write("x.txt", ""), checks=[check("touch was-run.log")])
    assert verdicts(plans, plan) == [CheckVerdict.VOID]
    assert not (plans.sandbox(plan).root / "was-run.log").exists()
    with pytest.raises(CheckFailed, match="void: it looks elsewhere"):
        plans.apply(plan)
    assert not (plans.repository / "x.txt").exists()


def test_a_check_of_the_sandbox_itself_is_none_of_the_users_checkout(plans: PlanBench) -> None:
    plans.parts.own_checkout = imports_from
    plan = plans.done(checks=[check("true")])
    assert verdicts(plans, plan) == [CheckVerdict.PASSED]


def test_what_a_check_does_to_files_is_no_part_of_the_result(plans: PlanBench) -> None:
    mess = check("echo junk > junk.txt; rm a.txt; echo junk >> b.txt; test -f junk.txt")
    plan = plans.done(write("x.txt", "1\n"), checks=[mess, check("! test -e junk.txt")])
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.PASSED]
    plans.ensure_consistent(plan)
    assert plans.apply(plan).state is PlanState.APPLIED
    assert not (plans.repository / "junk.txt").exists()
    assert (plans.repository / "a.txt").exists()


def test_a_check_does_not_pass_on_files_that_are_never_applied(plans: PlanBench) -> None:
    """A step makes an ignored file that the result needs; the user would not have it."""
    plan = plans.done(
        command("echo 1 > made.log; cp made.log x.txt"),
        checks=[check("test -e made.log"), check("test -e x.txt"), check("! test -e made.log")],
    )
    assert verdicts(plans, plan) == [CheckVerdict.FAILED, CheckVerdict.PASSED, CheckVerdict.PASSED]
    made = plans.sandbox(plan).root / "made.log"
    assert made.read_text() == "1\n", "it is there for whoever goes on with the plan"
    with pytest.raises(CheckFailed, match=r"made\.log"):
        plans.apply(plan)
    assert made.read_text() == "1\n"


def test_a_check_of_the_merged_result_does_not_see_such_files_either(plans: PlanBench) -> None:
    """Nor if a rule that hides them is gone from the user's files meanwhile."""
    plan = plans.done(
        command("echo 1 > made.log; echo 2 > x.txt"), checks=[check("! test -e made.log && ! test -e b.txt")]
    )
    assert verdicts(plans, plan) == [CheckVerdict.FAILED]
    (plans.repository / "b.txt").unlink()
    (plans.repository / ".gitignore").write_text("nothing\n")
    assert plans.apply(plan).state is PlanState.APPLIED
    assert (plans.sandbox(plan).root / "made.log").read_text() == "1\n"
    plans.ensure_consistent(plan)


def test_checks_see_what_the_setup_made_and_what_the_one_before_them_made(plans: PlanBench) -> None:
    """All that run at once are one look at the result; nothing ignored is left of them."""
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    checks = [check("test -e kept/made && touch first.log"), check("test -e first.log")]
    plan = plans.done(write("x.txt", ""), setup=SETUP, checks=checks)
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.PASSED]
    assert not (plans.sandbox(plan).root / "first.log").exists()
    assert plans.sandbox(plan).ignored_entries() == ()


def test_only_what_did_not_pass_yet_runs_again(plans: PlanBench) -> None:
    problems: list[str | None] = [None, "not yet", None]
    plans.parts.own_checkout = lambda *asked: problems.pop()
    plan = plans.done(write("x.txt", ""), checks=[check("true"), check("true; true")])
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.VOID]
    assert plans.apply(plan).state is PlanState.APPLIED
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.VOID, CheckVerdict.PASSED]


def test_a_verdict_holds_for_its_tree_and_for_no_other(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "two", "2"), checks=[check("true")])
    assert len(verdicts(plans, plan)) == 1
    (plans.repository / "b.txt").write_text("the user's\n")
    plans.apply(plan)
    # The merge with what the user did meanwhile is another tree.
    assert len(verdicts(plans, plan)) == 2
    same = plans.done(edit("a.txt", "three", "3"), checks=[check("true")])
    plans.apply(same)
    assert len(verdicts(plans, same)) == 1


def test_a_verdict_that_holds_again_is_the_last_that_is_kept(plans: PlanBench) -> None:
    """As after a correction whose mending came back to the same files: nobody is shown another tree's."""
    runs: list[object] = []
    plans.parts.own_checkout = lambda *asked: runs.append(asked)
    plan = plans.done(write("x.txt", ""), checks=[check("true"), check("true; true")])
    first, _ = plans.parts.check_runs.of_plan(plan.id)
    elsewhere = replace(first, tree="another", verdict=CheckVerdict.FAILED)
    plans.parts.check_runs.record(elsewhere)
    plans.apply(plan)
    assert len(runs) == 2
    *_, last = plans.parts.check_runs.of_plan(plan.id)
    assert (last.command, last.verdict, last.tree) == ("true", CheckVerdict.PASSED, first.tree)
    assert len(verdicts(plans, plan)) == 4


def test_a_pass_is_none_once_the_check_failed_on_the_same_tree(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""), checks=[check("true")])
    (passed,) = plans.parts.check_runs.of_plan(plan.id)
    plans.parts.check_runs.record(replace(passed, verdict=CheckVerdict.FAILED))
    plans.parts.own_checkout = lambda *asked: "it looks elsewhere"
    with pytest.raises(CheckFailed, match="looks elsewhere"):
        plans.apply(plan)


def test_a_failed_check_is_tried_again(plans: PlanBench) -> None:
    problems: list[str | None] = [None, "not yet", "not yet"]
    plans.parts.own_checkout = lambda *asked: problems.pop()
    plan = plans.done(write("x.txt", ""), checks=[check("true")])
    with pytest.raises(CheckFailed, match="not yet"):
        plans.apply(plan)
    assert plans.apply(plan).state is PlanState.APPLIED


def test_checks_of_an_apply_leave_the_sandbox_as_the_plan_recorded_it(plans: PlanBench) -> None:
    """They run on the merge with the user's present files, which are no change of the plan."""
    plan = plans.done(edit("a.txt", "two", "2"), checks=[check("grep user b.txt")])
    (plans.repository / "b.txt").write_text("by the user\n")
    (plans.repository / "theirs.txt").write_text("untracked\n")
    plans.apply(plan)
    assert verdicts(plans, plan) == [CheckVerdict.FAILED, CheckVerdict.PASSED]
    plans.ensure_consistent(plan)


def test_a_cancelled_check_says_nothing(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    strategy = replace(plans.strategies[plan.id], checks=(check("sleep 60"),))
    token = CancellationToken()
    checks = plans.parts.checks(plans.repository)

    def stops(*asked: object) -> None:
        token.cancel("enough")

    held = replace(plan, strategy=strategy.to_json())
    apply = replace(plans.parts.apply, checks=lambda resource: replace(checks, own_checkout=stops))
    with pytest.raises(Exception, match="enough"):
        apply.apply(held, token)
    assert verdicts(plans, plan) == []
    assert plans.now(plan).error == "applying it was interrupted"
    assert plans.apply(plan).state is PlanState.APPLIED


def test_a_setup_runs_once_and_is_then_taken_from_what_was_kept(plans: PlanBench) -> None:
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    show = command("cat kept/made >> out.txt")
    first = plans.done(show, setup=SETUP)
    second = plans.done(show, setup=SETUP)
    for plan in (first, second):
        assert plan.state is PlanState.COMPLETE, plan.error
        assert (plans.sandbox(plan).root / "out.txt").read_text() == f"{plans.repository}\n"
        assert list(plans.parts.history.differences(plan.id)) == ["out.txt"]
        plans.ensure_consistent(plan)
    assert (plans.sandbox(first).root / "ran.log").exists()
    assert not (plans.sandbox(second).root / "ran.log").exists()
    assert [call.step for call in plans.calls(second)] == ["setup", "1"]


def test_a_setup_is_not_repeated_nor_kept_under_the_key_of_later_files(plans: PlanBench) -> None:
    """A step changes the file that the key is made of, and then the plan is resumed."""
    (plans.repository / "key.txt").write_text(f"old {plans.repository}\n")
    changed = f"new {plans.repository}\n"
    plan = plans.done(write("key.txt", changed), command("test -e ready.log"), setup=SETUP)
    assert plan.state is PlanState.ERRORED
    (plans.sandbox(plan).root / "ready.log").touch()
    assert plans.resume(plan).state is PlanState.COMPLETE
    assert (plans.sandbox(plan).root / "ran.log").read_text() == "ran\n"
    (plans.repository / "key.txt").write_text(changed)
    fresh = plans.done(command("cat kept/made > out.txt"), setup=SETUP)
    assert (plans.sandbox(fresh).root / "out.txt").read_text() == changed


def test_the_environment_of_a_hostile_branch_does_not_reach_another_branch(plans: PlanBench) -> None:
    """The branches share the key files, and the setup runs a script that differs."""
    setup = Setup("mkdir -p kept && sh build.sh > kept/made", ("key.txt",), ("kept",))
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    show = command("cat kept/made > out.txt")
    for script in ("echo poisoned", "echo clean"):
        (plans.repository / "build.sh").write_text(f"{script}\n")
        plan = plans.done(show, setup=setup)
        assert (plans.sandbox(plan).root / "out.txt").read_text() == script.split()[1] + "\n"


def test_a_setup_that_was_kept_is_not_looked_for_again(plans: PlanBench) -> None:
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    plans.answer(plans.done(setup=SETUP, profile="supervised"), True)
    plan = plans.done(command("exit 1"), setup=SETUP, profile="supervised")
    assert [call.tool for call in plans.calls(plan)] == ["setup", "command"]
    # Had it to be made anew, it would have to ask for leave to install something.
    assert plans.resume(plan).state is PlanState.ERRORED


def test_a_setup_that_fails_ends_the_plan_and_is_tried_again(plans: PlanBench) -> None:
    broken = Setup("test -e ready.log && mkdir -p kept", (str(plans.repository),), ("kept",))
    plan = plans.done(write("x.txt", ""), setup=broken)
    assert plan.state is PlanState.ERRORED
    assert "setup" in str(plan.error)
    assert plans.states_of(plan) == ["ended"]
    # Whoever runs it again without having decided so gets the same answer.
    (plans.sandbox(plan).root / "ready.log").touch()
    assert plans.resume(plan).state is PlanState.COMPLETE


def test_a_setup_asks_for_leave(plans: PlanBench) -> None:
    (plans.repository / "key.txt").write_text(f"asked {plans.repository}\n")
    plan = plans.done(write("x.txt", ""), setup=SETUP, profile="supervised")
    assert plan.state is PlanState.WAITING
    assert "install" in str(plan.waiting_for)
    assert plans.answer(plan, True).state is PlanState.COMPLETE


def test_edits_by_hand_are_not_thrown_away_by_an_apply(plans: PlanBench) -> None:
    """Its checks would bring the sandbox to what is recorded."""
    plan = plans.done(write("x.txt", "1\n"), checks=[check("true")])
    mine = plans.sandbox(plan).root / "x.txt"
    mine.write_text("mine\n")
    with pytest.raises(NeedsHuman, match=r"x\.txt changed in its sandbox"):
        plans.apply(plan)
    assert plans.now(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert plans.parts.sandbox_edits.reread(plans.now(plan)) is not None
    plans.apply(plan)
    assert plans.text("x.txt") == "mine\n"


def test_a_conflict_names_the_place_and_leaves_everything(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "two", "2"))
    (plans.repository / "a.txt").write_text("one\nzwei\nthree\nfour\nfive\nsix\nseven\n")
    with pytest.raises(ApplyConflict) as conflict:
        plans.apply(plan)
    assert conflict.value.paths == ("a.txt",)
    assert "zwei" in conflict.value.details
    assert plans.now(plan).state is PlanState.CONSTRAINED
    assert plans.text("a.txt").startswith("one\nzwei\n")
