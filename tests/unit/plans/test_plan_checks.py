"""Checks judge a tree and leave no trace in it; only a pass is a pass; setups are cached."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from cleveragents.cli.plan.sections import in_short
from cleveragents.core.actions.model import CheckVerdict, Setup, failure_line
from cleveragents.core.errors import ApplyConflict, CheckFailed, NeedsHuman, ToolRefused
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.processes.own_checkout import imports_from
from tests.plan_bench import PlanBench, check, command, edit, write

SETUP = Setup("mkdir -p kept && cat key.txt >> kept/made; echo ran >> ran.log", ("key.txt",), ("kept",))


def verdicts(plans: PlanBench, plan: Plan) -> list[CheckVerdict]:
    return [run.verdict for run in plans.parts.check_runs.of_plan(plan.id)]


def test_checks_run_after_execute_on_the_result(plans: PlanBench) -> None:
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
    """A required check that fails or cannot run keeps the user's files unchanged."""
    plan = plans.done(edit("b.txt", "alpha", "beta"), checks=[check(text)])
    assert verdicts(plans, plan) == [verdict]
    with pytest.raises(CheckFailed, match=said):
        plans.apply(plan)
    assert plans.text("b.txt") == "alpha\n"
    plan = plans.now(plan)
    assert plan.phase_state == (Phase.APPLY, PlanState.CONSTRAINED)
    assert said in str(plan.error)


def test_reports_a_check_with_its_last_output() -> None:
    """A person sees why it failed, not only that it failed."""
    assert failure_line("exit code 1\n") == "exit code 1"
    assert failure_line("exit code 1\na\nb\n\n") == "exit code 1: b"
    assert failure_line(f"exit code 1\n{'x' * 201}") == f"exit code 1: {'x' * 200}…"
    row: dict[str, JsonValue] = {"name": "tests", "verdict": "failed", "details": "exit code 1\na\nb\n"}
    assert in_short(row)["what"] == "exit code 1: b"
    assert in_short({**row, "name": "review", "details": "no\n- because"})["what"] == "no"
    assert in_short({**row, "verdict": "passed"})["what"] == ""


def test_a_check_that_cannot_start_counts_as_not_run(plans: PlanBench) -> None:
    def refused(*asked: object) -> None:
        raise ToolRefused("command", "isolation is required")

    plans.parts.own_checkout = refused
    plan = plans.done(checks=[check("true")])
    assert verdicts(plans, plan) == [CheckVerdict.NOT_RUN]


def test_a_check_that_times_out_fails(plans: PlanBench) -> None:
    plan = plans.done(checks=[check("sleep 60", timeout_seconds=0.3)])
    assert verdicts(plans, plan) == [CheckVerdict.FAILED]
    assert "longer than 0.3 s" in plans.parts.check_runs.of_plan(plan.id)[0].details


def test_the_first_and_the_last_output_of_a_failed_check_are_kept(plans: PlanBench) -> None:
    """An agent fixes the first failure, and the summary of a test run comes last."""
    secret = "password=" + "hunter2" * 4  # at the place of the cut
    script = f"echo first; seq 1 1000 | cut -c1-2; printf '%s' {secret}; seq 1 9000; echo last; exit 1"
    plan = plans.done(checks=[check(script)])
    details = plans.parts.check_runs.of_plan(plan.id)[0].details
    assert details.startswith("exit code 1\nfirst\n")
    assert details.endswith("\nlast\n")
    assert "characters omitted …" in details
    assert "hunter2" not in details
    assert len(details) < 6_200


def test_an_informational_check_blocks_nothing(plans: PlanBench) -> None:
    plan = plans.done(edit("b.txt", "alpha", "beta"), checks=[check("false", required=False)])
    assert plans.apply(plan).state is PlanState.APPLIED


def test_a_check_of_the_users_own_checkout_is_void(plans: PlanBench) -> None:
    """As with an editable install: Python finds the package in the user's directory."""
    plans.parts.own_checkout = lambda *asked: "it looks elsewhere"
    plan = plans.done(write("x.txt", ""), checks=[check("touch was-run.log")])
    assert verdicts(plans, plan) == [CheckVerdict.VOID]
    assert not (plans.sandbox(plan).root / "was-run.log").exists()
    with pytest.raises(CheckFailed, match="void: it looks elsewhere"):
        plans.apply(plan)
    assert not (plans.repository / "x.txt").exists()


def test_a_check_of_the_sandbox_is_not_void(plans: PlanBench) -> None:
    plans.parts.own_checkout = imports_from
    plan = plans.done(checks=[check("true")])
    assert verdicts(plans, plan) == [CheckVerdict.PASSED]


def test_changes_of_a_check_are_not_part_of_the_result(plans: PlanBench) -> None:
    mess = check("echo junk > junk.txt; rm a.txt; echo junk >> b.txt; test -f junk.txt")
    plan = plans.done(write("x.txt", "1\n"), checks=[mess, check("! test -e junk.txt")])
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.PASSED]
    plans.ensure_consistent(plan)
    assert plans.apply(plan).state is PlanState.APPLIED
    assert not (plans.repository / "junk.txt").exists()
    assert (plans.repository / "a.txt").exists()


def test_checks_do_not_see_ignored_files(plans: PlanBench) -> None:
    """A step makes an ignored file that the result needs; the user would not have it."""
    plan = plans.done(
        command("echo 1 > made.log; cp made.log x.txt"),
        checks=[check("test -e made.log"), check("test -e x.txt"), check("! test -e made.log")],
    )
    assert verdicts(plans, plan) == [CheckVerdict.FAILED, CheckVerdict.PASSED, CheckVerdict.PASSED]
    made = plans.sandbox(plan).root / "made.log"
    assert made.read_text() == "1\n", "it stays for a resumed plan"
    with pytest.raises(CheckFailed, match=r"made\.log"):
        plans.apply(plan)
    assert made.read_text() == "1\n"


def test_checks_of_the_merged_result_do_not_see_ignored_files(plans: PlanBench) -> None:
    """Also if the rule that hides them is missing in the user's files."""
    plan = plans.done(
        command("echo 1 > made.log; echo 2 > x.txt"), checks=[check("! test -e made.log && ! test -e b.txt")]
    )
    assert verdicts(plans, plan) == [CheckVerdict.FAILED]
    (plans.repository / "b.txt").unlink()
    (plans.repository / ".gitignore").write_text("nothing\n")
    assert plans.apply(plan).state is PlanState.APPLIED
    assert (plans.sandbox(plan).root / "made.log").read_text() == "1\n"
    plans.ensure_consistent(plan)


def test_checks_see_output_of_the_setup_and_of_earlier_checks(plans: PlanBench) -> None:
    """All checks of a run share one view of the result; their ignored files are removed afterwards."""
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    checks = [check("test -e kept/made && touch first.log"), check("test -e first.log")]
    plan = plans.done(write("x.txt", ""), setup=SETUP, checks=checks)
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.PASSED]
    assert not (plans.sandbox(plan).root / "first.log").exists()
    assert plans.sandbox(plan).unapplied().ignored == ()


def test_only_checks_that_did_not_pass_run_again(plans: PlanBench) -> None:
    problems: list[str | None] = [None, "not yet", None]
    plans.parts.own_checkout = lambda *asked: problems.pop()
    plan = plans.done(write("x.txt", ""), checks=[check("true"), check("true; true")])
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.VOID]
    assert plans.apply(plan).state is PlanState.APPLIED
    assert verdicts(plans, plan) == [CheckVerdict.PASSED, CheckVerdict.VOID, CheckVerdict.PASSED]


def test_a_verdict_holds_only_for_its_tree(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "two", "2"), checks=[check("true")])
    assert len(verdicts(plans, plan)) == 1
    (plans.repository / "b.txt").write_text("the user's\n")
    plans.apply(plan)
    # A merge with the user's changes is another tree.
    assert len(verdicts(plans, plan)) == 2
    same = plans.done(edit("a.txt", "three", "3"), checks=[check("true")])
    plans.apply(same)
    assert len(verdicts(plans, same)) == 1


def test_a_verdict_that_holds_again_is_recorded_last(plans: PlanBench) -> None:
    """As after a correction whose fix led back to the same files: the other verdict is not shown."""
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


def test_a_later_failure_on_the_same_tree_replaces_a_pass(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""), checks=[check("true")])
    (passed,) = plans.parts.check_runs.of_plan(plan.id)
    plans.parts.check_runs.record(replace(passed, verdict=CheckVerdict.FAILED))
    plans.parts.own_checkout = lambda *asked: "it looks elsewhere"
    with pytest.raises(CheckFailed, match="looks elsewhere"):
        plans.apply(plan)


def test_a_failed_check_runs_again(plans: PlanBench) -> None:
    problems: list[str | None] = [None, "not yet", "not yet"]
    plans.parts.own_checkout = lambda *asked: problems.pop()
    plan = plans.done(write("x.txt", ""), checks=[check("true")])
    with pytest.raises(CheckFailed, match="not yet"):
        plans.apply(plan)
    assert plans.apply(plan).state is PlanState.APPLIED


def test_checks_of_an_apply_restore_the_sandbox(plans: PlanBench) -> None:
    """They run on the merge with the user's present files, which are not changes of the plan."""
    plan = plans.done(edit("a.txt", "two", "2"), checks=[check("grep user b.txt")])
    (plans.repository / "b.txt").write_text("by the user\n")
    (plans.repository / "theirs.txt").write_text("untracked\n")
    plans.apply(plan)
    assert verdicts(plans, plan) == [CheckVerdict.FAILED, CheckVerdict.PASSED]
    plans.ensure_consistent(plan)


def test_a_cancelled_check_has_no_verdict(plans: PlanBench) -> None:
    plan = plans.done(write("x.txt", ""))
    strategy = changed(plans.strategies[plan.id], checks=(check("sleep 60"),))
    token = CancellationToken()
    checks = plans.parts.checks(plans.repository)

    def stops(*asked: object) -> None:
        token.cancel("enough")

    held = changed(plan, strategy=strategy.to_json())
    apply = changed(plans.parts.apply, checks=lambda resource: changed(checks, own_checkout=stops))
    with pytest.raises(Exception, match="enough"):
        apply.apply(held, token)
    assert verdicts(plans, plan) == []
    assert plans.now(plan).error == "the apply was interrupted"
    assert plans.apply(plan).state is PlanState.APPLIED


def test_a_setup_runs_once_and_then_comes_from_the_cache(plans: PlanBench) -> None:
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


def test_a_setup_is_cached_under_the_key_of_its_own_files(plans: PlanBench) -> None:
    """A step changes the file that the key is made from, and then the plan is resumed."""
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
    """The branches share the key files, but the setup runs a script that differs."""
    setup = Setup("mkdir -p kept && sh build.sh > kept/made", ("key.txt",), ("kept",))
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    show = command("cat kept/made > out.txt")
    for script in ("echo poisoned", "echo clean"):
        (plans.repository / "build.sh").write_text(f"{script}\n")
        plan = plans.done(show, setup=setup)
        assert (plans.sandbox(plan).root / "out.txt").read_text() == script.split()[1] + "\n"


def test_a_cached_setup_is_not_looked_up_again(plans: PlanBench) -> None:
    (plans.repository / "key.txt").write_text(f"{plans.repository}\n")
    plans.answer(plans.done(setup=SETUP, profile="supervised"), True)
    plan = plans.done(command("exit 1"), setup=SETUP, profile="supervised")
    assert [call.tool for call in plans.calls(plan)] == ["setup", "command"]
    # Running it again would need approval to install something.
    assert plans.resume(plan).state is PlanState.ERRORED


def test_a_failed_setup_fails_the_plan_and_runs_again_on_resume(plans: PlanBench) -> None:
    broken = Setup("test -e ready.log && mkdir -p kept", (str(plans.repository),), ("kept",))
    plan = plans.done(write("x.txt", ""), setup=broken)
    assert plan.state is PlanState.ERRORED
    assert "setup" in str(plan.error)
    assert plans.states_of(plan) == ["ended"]
    # A repeated run without a decision gets the same answer.
    (plans.sandbox(plan).root / "ready.log").touch()
    assert plans.resume(plan).state is PlanState.COMPLETE


def test_a_setup_needs_approval(plans: PlanBench) -> None:
    (plans.repository / "key.txt").write_text(f"asked {plans.repository}\n")
    plan = plans.done(write("x.txt", ""), setup=SETUP, profile="supervised")
    assert plan.state is PlanState.WAITING
    assert "install" in str(plan.waiting_for)
    assert plans.answer(plan, True).state is PlanState.COMPLETE


def test_an_apply_refuses_unrecorded_edits(plans: PlanBench) -> None:
    """Its checks would reset the sandbox to the records."""
    plan = plans.done(write("x.txt", "1\n"), checks=[check("true")])
    mine = plans.sandbox(plan).root / "x.txt"
    mine.write_text("mine\n")
    with pytest.raises(NeedsHuman, match=r"unrecorded edits in the sandbox: x\.txt"):
        plans.apply(plan)
    assert plans.now(plan).phase_state == (Phase.EXECUTE, PlanState.COMPLETE)
    assert plans.parts.sandbox_edits.reread(plans.now(plan)) is not None
    plans.apply(plan)
    assert plans.text("x.txt") == "mine\n"


def test_a_conflict_names_its_place_and_changes_nothing(plans: PlanBench) -> None:
    plan = plans.done(edit("a.txt", "two", "2"))
    (plans.repository / "a.txt").write_text("one\nzwei\nthree\nfour\nfive\nsix\nseven\n")
    with pytest.raises(ApplyConflict) as conflict:
        plans.apply(plan)
    assert conflict.value.paths == ("a.txt",)
    assert "zwei" in conflict.value.details
    assert plans.now(plan).state is PlanState.CONSTRAINED
    assert plans.text("a.txt").startswith("one\nzwei\n")
