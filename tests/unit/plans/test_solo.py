"""`builtin/solo`: one actor that reads files, writes code and gets the results of its checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cleveragents.api.plans.create import PlanSpec, requested_plan
from cleveragents.core.actions.model import Check
from cleveragents.core.errors import PlanError
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.model.plan import Phase, PlanState
from tests.actor_plan_bench import (
    ActorPlanBench,
    accept,
    actor_plan_bench,
    reviews,
    revise,
    rule,
    says,
    steps,
    strategizes,
)
from tests.cli_bench import git

ALONE = (None, "builtin/solo", None)
COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
CHECK = Check("size", "sh check.sh")
CODE = "def size():\n    return 1\n\n\ndef name():\n    return 'goal'\n"
COUNTS = Check(
    "size",
    "sh check.sh || { grep -q goal goal.py && echo '1 failed, 1 passed in 0.1s'"
    " || echo '2 failed in 0.1s'; exit 1; }",
)
WORSE = "goal.py\n```python\ndef size():\n    return 9\n\n\ndef name():\n    return 'other'\n```\n"
RIGHT = "It is too small.\n\ngoal.py\n```python\ndef size():\n    return 2\n```\n"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ActorPlanBench]:
    with actor_plan_bench(tmp_path) as made:
        root = made.repository
        (root / "goal.py").write_text(CODE)
        (root / "check.sh").write_text(
            'grep -q "return 2" goal.py || { echo "the size of a goal is 2"; exit 1; }\n'
        )
        git(root, "add", ".")
        git(root, "commit", "-qm", "Measure a goal")
        yield made


def test_the_first_task_has_the_failures_of_the_checks(bench: ActorPlanBench) -> None:
    """The script answers only a model that was shown the file and the output of the check."""
    when = {"first_user": r"(?s)return 'goal'.*the size of a goal is 2"}
    plan = bench.reached(rule(says(RIGHT), when=when), cast=ALONE, checks=[CHECK])
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["show_files", "edit_blocks"]
    assert [one.entry.path for one in bench.parts.history.changes(plan.id)] == ["goal.py"]


def test_paths_in_the_output_of_a_check_are_those_of_tools_or_ignored(bench: ActorPlanBench) -> None:
    """Programs print absolute paths: of the sandbox, and of libraries outside it."""
    check = Check("size", 'sh check.sh || { echo "$PWD/goal.py:2, from /usr/lib/run.py ../up.py"; exit 1; }')
    when = {"first_user": r"\ngoal\.py:2, from /usr/lib/run\.py \.\./up\.py"}
    plan = bench.reached(rule(says(RIGHT), when=when), cast=ALONE, checks=[check])
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["show_files", "edit_blocks"]


def test_a_block_that_cannot_be_applied_is_written_again(bench: ActorPlanBench) -> None:
    wrong = "goal.py\n```python\ndef size():\n    # ... rest unchanged\n    return 2\n```\n"
    plan = bench.reached(
        rule(says(RIGHT), when={"first_user": r"size is incomplete"}), rule(says(wrong)), cast=ALONE
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["show_files", "edit_blocks", "edit_blocks"]
    assert plan.answer is not None
    assert plan.answer.startswith("It is too small.")


def test_an_explanation_without_code_is_no_fix(bench: ActorPlanBench) -> None:
    again = {"first_user": r"It could not be applied as it is"}
    plan = bench.reached(
        rule(says(RIGHT), when=again), rule(says("It is too small.")), cast=ALONE, checks=[CHECK]
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["show_files", "edit_blocks", "edit_blocks"]


def test_code_that_is_the_same_as_before_is_no_fix(bench: ActorPlanBench) -> None:
    other = {"first_user": r"The code must differ"}
    same = f"goal.py\n```python\n{CODE}```\n"
    plan = bench.reached(rule(says(RIGHT), when=other), rule(says(same)), cast=ALONE, checks=[CHECK])
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan) == ["show_files", "edit_blocks", "edit_blocks"]


def test_paths_comments_and_docstrings_are_no_lines_to_correct(bench: ActorPlanBench) -> None:
    """The schema of a correction lists the lines that a model may choose."""
    (bench.repository / "goal.py").write_text(
        '"""The size\nof a goal."""\n# one or two\nwords = """\nsmall"""\n' + CODE
    )
    git(bench.repository, "commit", "-qam", "Describe it")
    plan = bench.reached(
        rule(says(correction(2)), when={"first_user": "This is fix attempt 1"}),
        rule(says(WORSE)),
        cast=ALONE,
        checks=[COUNTS],
    )
    assert plan.phase_state == COMPLETE, plan.error
    shown = [call.result for call in bench.calls(plan) if call.tool == "show_files"]
    assert "one or two" in str(shown[0])
    lines = [line.strip() for line in cast("dict[str, str]", shown[-1])["text"].splitlines() if line]
    assert lines[lines.index('words = """') :] == [
        *('words = """', 'small"""', "def size():", "return 1", "def name():", "return 'goal'")
    ]
    assert "goal.py" not in lines


def correction(number: int) -> str:
    return json.dumps({"wrong_line": "return 1", "corrected_line": f"return {number}"})


def test_if_no_test_passes_solo_corrects_two_lines_and_then_writes_the_function_again(
    bench: ActorPlanBench,
) -> None:
    wrong = "goal.py\n```python\ndef size():\n    return 9\n```\n"
    rules = [
        rule(says(correction(100 + number)), when={"first_user": rf"This is fix attempt {number} of 30"})
        for number in (1, 2)
    ]
    right = rule(says(RIGHT), when={"first_user": r"This is fix attempt 3 of 30"})
    check = Check("size", "sh check.sh || { echo '2 failed in 0.1s'; exit 1; }")
    plan = bench.reached(right, *rules, rule(says(wrong)), cast=ALONE, checks=[check])
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan).count("correct_line") == 2


def test_a_fix_after_which_fewer_tests_pass_is_undone(bench: ActorPlanBench) -> None:
    """The next attempt corrects a line of the original function."""
    right = rule(
        says(correction(2)), when={"first_user": r"(?s)return 1\n.*'goal'.*This is fix attempt 1 of 30"}
    )
    plan = bench.reached(right, rule(says(WORSE)), cast=ALONE, checks=[COUNTS])
    assert plan.phase_state == COMPLETE, plan.error
    assert "undo" in bench.tools_of(plan)
    assert list(bench.parts.history.states(plan.id)) == ["goal.py"]


@pytest.mark.parametrize("killed", ["undo-1", "undo-2"])
def test_a_fix_is_undone_even_if_the_process_died_before(
    bench: ActorPlanBench, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    """The process dies after the first edit, or after the first correction. Both break a test that passed."""
    undo = ToolExecution.undo

    def dying(self: ToolExecution, step: str, states: Any, reason: str) -> Any:
        if step == killed:
            raise PlanError(self.sandbox.plan_id, "the process dies")
        return undo(self, step, states, reason)

    monkeypatch.setattr(ToolExecution, "undo", dying)
    wrong = {"wrong_line": "return 'goal'", "corrected_line": "return 'other'"}
    plan = bench.reached(
        rule(
            says(correction(2)), when={"first_user": r"(?s)return 1\n.*'goal'.*This is fix attempt 2 of 30"}
        ),
        rule(says(json.dumps(wrong)), when={"first_user": r"This is fix attempt"}),
        rule(says(WORSE)),
        cast=ALONE,
        checks=[COUNTS],
    )
    assert plan.error is not None
    assert "the process dies" in plan.error
    monkeypatch.undo()
    plan = bench.work(bench.resume(plan))
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan).count("undo") == 2
    assert "'other'" not in bench.diff(plan)
    assert bench.tools_of(plan).count("correct_line") == 2


def test_an_interrupted_attempt_is_judged_only_after_its_end(
    bench: ActorPlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between two edits of a task. The first one alone breaks a test."""
    call = ToolExecution.call
    edits: list[str] = []

    def dying(self: ToolExecution, request: CallRequest) -> Any:
        edits.extend([request.step] if request.tool == "edit_blocks" else [])
        if len(edits) == 2:
            raise PlanError(self.sandbox.plan_id, "the process dies")
        return call(self, request)

    monkeypatch.setattr(ToolExecution, "call", dying)
    renamed = "goal.py\n```python\ndef name():\n    return 'other'\n```\n\n"
    incomplete = "goal.py\n```python\ndef size():\n    # ... rest unchanged\n    return 2\n```\n"
    plan = bench.reached(
        rule(says(RIGHT), when={"first_user": r"size is incomplete"}),
        rule(says(renamed + incomplete)),
        cast=ALONE,
        checks=[COUNTS],
    )
    assert plan.error is not None
    monkeypatch.undo()
    plan = bench.work(bench.resume(plan))
    assert plan.phase_state == COMPLETE, plan.error
    assert [tool for tool in bench.tools_of(plan) if tool != "show_files"] == ["edit_blocks", "edit_blocks"]
    assert "'other'" in bench.diff(plan)


def test_edits_of_a_person_are_not_undone_as_a_failed_fix(
    bench: ActorPlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(self: ToolExecution, step: str, states: Any, reason: str) -> Any:
        raise PlanError(self.sandbox.plan_id, "the process dies")

    monkeypatch.setattr(ToolExecution, "undo", dying)
    own = {"wrong_line": "return 9", "corrected_line": "return 2"}
    plan = bench.reached(
        rule(says(json.dumps(own)), when={"first_user": r"(?s)return 9.*This is fix attempt"}),
        rule(says(WORSE)),
        cast=ALONE,
        checks=[COUNTS],
    )
    assert plan.error is not None
    monkeypatch.undo()
    (bench.sandbox(plan).root / "notes.txt").write_text("mine\n")
    bench.parts.sandbox_edits.reread(plan)
    plan = bench.work(bench.resume(plan))
    assert plan.phase_state == COMPLETE, plan.error
    assert "undo" not in bench.tools_of(plan)
    assert set(bench.parts.history.states(plan.id)) == {"goal.py", "notes.txt"}


def test_changes_stay_if_the_number_of_passing_tests_is_unknown(bench: ActorPlanBench) -> None:
    """The output of the first check has a count, that of the second has none, as after a crash."""
    worse = "goal.py\n```python\ndef size():\n    return 9\n```\n"
    right = rule(says(RIGHT), when={"first_user": r"(?s)return 9.*This is fix attempt 3 of 30"})
    no_line = rule(
        says(json.dumps({"wrong_line": "no", "corrected_line": "line"})), when={"first_user": "JSON"}
    )
    check = Check("size", "sh check.sh || { grep -q 'return 9' goal.py || echo '2 failed in 0.1s'; exit 1; }")
    plan = bench.reached(right, no_line, rule(says(worse)), cast=ALONE, checks=[check])
    assert plan.phase_state == COMPLETE, plan.error
    assert "undo" not in bench.tools_of(plan)


def test_work_that_passed_the_checks_is_not_undone_with_a_later_fix(bench: ActorPlanBench) -> None:
    """The reviewer sends back a result that passes. The fix for that breaks every test, and is all that the
    next attempt has to correct.
    """
    again = {"wrong_line": "return 9", "corrected_line": "return 2"}
    plan = bench.reached(
        reviews(accept(), when={"first_user": "other"}),
        reviews(revise("rename it")),
        rule(says(WORSE), when={"first_user": r"rename it"}),
        rule(says(json.dumps(again)), when={"first_user": r"(?s)'other'.*This is fix attempt 2 of 30"}),
        rule(says(RIGHT)),
        cast=(None, "builtin/solo", "builtin/reviewer"),
        checks=[COUNTS],
    )
    assert plan.phase_state == COMPLETE, plan.error
    edits = [tool for tool in bench.tools_of(plan) if tool != "show_files"]
    assert edits == ["edit_blocks", "edit_blocks", "correct_line"]


def test_a_step_that_makes_no_test_pass_is_not_undone_by_the_next_one(bench: ActorPlanBench) -> None:
    renamed = "goal.py\n```python\ndef name():\n    return 'other'\n```\n"
    check = Check("size", "sh check.sh || { echo '1 failed, 1 passed in 0.1s'; exit 1; }")
    plan = bench.reached(
        strategizes(
            steps({"title": "Name", "instructions": "Name it"}, {"title": "Size", "instructions": "Grow"})
        ),
        rule(says(renamed), when={"first_user": r"Name  <- this one"}),
        rule(says(RIGHT)),
        cast=("builtin/strategist", "builtin/solo", None),
        checks=[check],
    )
    assert plan.phase_state == COMPLETE, plan.error
    assert [tool for tool in bench.tools_of(plan) if tool != "show_files"] == ["edit_blocks", "edit_blocks"]


def test_a_line_is_not_corrected_for_ever(bench: ActorPlanBench) -> None:
    """After two corrections that did not help, a model must correct another line."""
    (bench.repository / "goal.py").write_text(CODE + "\n\nLEFT = 1\nRIGHT = 1\n")
    git(bench.repository, "commit", "-qam", "Add sides")
    same = {"wrong_line": "LEFT = 1", "corrected_line": "LEFT = 3"}
    rules = [
        rule(says(correction(2)), when={"first_user": r"Tried: LEFT = 1"}),
        rule(says(json.dumps(same)), when={"first_user": r"This is fix attempt"}),
    ]
    check = Check("size", "sh check.sh || { echo '1 failed, 1 passed in 0.1s'; exit 1; }")
    plan = bench.reached(*rules, rule(says(RIGHT.replace("2", "9"))), cast=ALONE, checks=[check])
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.tools_of(plan).count("correct_line") == 3


def test_tests_come_before_the_files_to_work_on(bench: ActorPlanBench) -> None:
    """A model server keeps what it computed for the beginning of a prompt, and tests do not change."""
    (bench.repository / "test_goal.py").write_text("def test_a_goal():\n    assert size() == 2\n")
    when = {"first_user": r"(?s)They are right:.*test_goal\.py.*to work on:.*return 'goal'"}
    plan = bench.reached(rule(says(RIGHT), when=when), cast=ALONE)
    assert plan.phase_state == COMPLETE, plan.error


def test_a_question_is_answered_and_changes_nothing(bench: ActorPlanBench) -> None:
    plan = bench.reached(rule(says("The size is 1: `goal.py`, line 2.")), cast=ALONE)
    assert plan.phase_state == COMPLETE, plan.error
    assert plan.answer == "The size is 1: `goal.py`, line 2."
    assert not bench.parts.history.changes(plan.id)


def test_goals_of_a_model_without_native_tool_calls_run_solo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")

    prices = tmp_path / "prices.toml"
    listed = [f'[models."openai/{name}"]\ntool_calls = "{name}"\n' for name in ("text", "none", "native")]
    prices.write_text("".join(listed))

    def actor_for(model: str, **facts: Any) -> object:
        spec = PlanSpec(None, ("a goal",), (), (), None, False, (), None, False, model=model, **facts)
        return requested_plan(bench.parts, spec, bench.repository).request["actor"]

    with actor_plan_bench(
        tmp_path, models={"prices": str(prices), "base_url": "http://127.0.0.1:9/v1"}
    ) as bench:
        assert actor_for("openai/text") == "builtin/solo"
        assert actor_for("openai/none") == "builtin/solo"
        assert actor_for("openai/native") is None
        assert actor_for("openai/text", actor="builtin/executor") == "builtin/executor"
