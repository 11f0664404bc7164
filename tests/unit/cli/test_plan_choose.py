"""Commands that name no plan, the list of one repository, and decisions about all waiting plans."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cleveragents import connect
from cleveragents.api.client import LocalClient
from cleveragents.api.plans.local import LocalPlans
from cleveragents.cli import prompts
from cleveragents.cli.prompts import confirmed, prompt_choice, prompt_key
from cleveragents.core.actions.model import REVIEW, CheckRun, CheckVerdict
from cleveragents.core.errors import ResultChanged, UnknownPlan
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from tests.cli_bench import COMMAND, REPLACE, Agents, git, paint_shop, use_home

pytestmark = pytest.mark.usefixtures("commands_are_forked")
OTHER = ("run", "--action", "builtin/replace", "--arg", "pattern=The", "--arg", "replacement=A")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show", "needs you"),
        ("diff", "has a result to review"),
        ("apply", "has a result to apply"),
        ("discard", "has a result to discard"),
        ("approve", "waits for approval"),
        ("deny", "waits for approval"),
        ("resume", "can be resumed"),
    ],
)
def test_without_a_candidate_a_plan_must_be_named(agents: Agents, command: str, words: str) -> None:
    ended = agents("plan", command)
    assert (ended.code, ended.out) == (2, "")
    assert f"error: no plan of this repository {words}; pass a PLAN\n" in ended.err


def test_the_only_candidate_is_taken_and_named(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--profile", "manual")
    assert ran.id in agents("plan", "show").out
    assert "no plan of this repository has a result to apply" in agents("plan", "apply").err
    approved = agents("plan", "approve")
    assert f"plan {ran.id}: replace" in approved.err
    assert "+color = 1" in agents("plan", "diff").out
    (repository / "src").joinpath("below").mkdir()
    applied = agents("plan", "apply")
    assert (applied.code, (repository / "README.md").read_text()) == (0, "The color of it.\n")
    assert "no plan of this repository has a result to apply" in agents("plan", "apply").err


def test_without_a_plan_a_request_is_shown_and_asked_for_before_it_is_approved(agents: Agents) -> None:
    ran = agents(*REPLACE, "--profile", "manual").id
    declined = agents("plan", "approve", typed="n\n")
    assert declined.code == 130
    before = declined.err.partition("Approve? [y/N]")[0]
    assert "replace: pattern=colour, replacement=color, glob" in before, declined.err
    assert "waiting" in agents("plan", "show", ran).out
    assert "approved: call 1" in agents("plan", "approve", typed="y\nn\n").err


def test_of_several_candidates_one_is_chosen(agents: Agents, repository: Path) -> None:
    first, second = agents(*REPLACE, "--review").id, agents(*OTHER, "--review").id
    listed = agents("plan", "apply")
    assert (listed.code, listed.out) == (2, "")
    assert "2 plans of this repository have a result to apply; pass one as PLAN:\n" in listed.err
    assert f"  {first[-6:]}  ready  replace: pattern=colour" in listed.err
    assert git(repository, "status", "--short") == ""
    chosen = agents("plan", "discard", typed="3\n2\n")
    assert chosen.code == 0, chosen.err
    assert "'3' is not a valid answer; type 1 or 2" in chosen.err
    assert f"plan    {second}" in chosen.out
    assert first in agents("plan", "show").out


def test_plans_of_other_repositories_are_no_candidates(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = agents(*REPLACE, "--review").id
    monkeypatch.chdir(paint_shop(tmp_path / "elsewhere"))
    assert "no plan of this repository needs you" in agents("plan", "show").err
    there = agents(*REPLACE, "--review").id
    assert there in agents("plan", "show").out
    monkeypatch.chdir(tmp_path / "repository" / "src")
    assert here in agents("plan", "show").out
    monkeypatch.chdir(tmp_path)
    assert "no plan of this repository needs you" in agents("plan", "show").err


def test_undo_takes_the_plan_applied_last_after_a_confirmation(agents: Agents, repository: Path) -> None:
    assert "no plan was applied in this repository; pass a PLAN" in agents("plan", "undo").err
    agents(*REPLACE, "--yes")
    last = agents(*OTHER, "--yes").id
    refused = agents("plan", "undo")
    assert (refused.code, f"pass a PLAN: {last}" in refused.err) == (2, True)
    assert agents("plan", "undo", typed="n\n").code == 130
    assert (repository / "README.md").read_text() == "A color of it.\n"
    assert agents("plan", "undo", typed="y\n").code == 0
    assert (repository / "README.md").read_text() == "The color of it.\n"
    assert agents("plan", "undo", "--yes").code == 0
    assert git(repository, "status", "--short") == ""


def test_an_id_without_an_answer_is_not_sent_as_the_answer(agents: Agents) -> None:
    ran = agents(*REPLACE, "--review").id
    for word in (ran, ran[-6:], ran[:4]):
        refused = agents("plan", "answer", word)
        assert (refused.code, "names a plan; pass PLAN and TEXT" in refused.err) == (2, True)
    assert "no plan of this repository has a question" in agents("plan", "answer", "yes").err
    assert "quote the answer" in agents("plan", "answer", ran, "keep", "it").err


def test_a_commit_without_a_message_gets_a_drafted_one(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review").id
    wrong = agents("plan", "apply", "--commit", ran[-6:])
    assert (wrong.code, "names a plan; write the PLAN before --commit" in wrong.err) == (2, True)
    applied = agents("plan", "apply", ran, "--commit", "--format", "json")
    assert "commit message: Replace: pattern=colour replacement=color\n" in applied.err
    message = git(repository, "log", "-1", "--format=%B")
    assert message.startswith(
        "Replace: pattern=colour replacement=color\n\n- Change README.md\n- Change src/"
    )
    agents(*OTHER, "--review")
    assert agents("plan", "apply", "--commit", "In my words").code == 0
    assert git(repository, "log", "-1", "--format=%s") == "In my words\n"


def test_plans_models_and_actors_are_completed(
    agents: Agents, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = agents(*REPLACE, "--review").id
    monkeypatch.setenv("_AGENTS_COMPLETE", "zsh_complete")

    def completed(*words: str) -> str:
        monkeypatch.setenv("COMP_WORDS", " ".join(["agents", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return agents().out.rstrip()

    assert f"{ran}\nready: replace: pattern=colour" in completed("plan", "show", ran[:3])
    assert ran in completed("plan", "log", ran[-6:])
    assert completed("plan", "show", "nope") == ""
    assert "openai/gpt-4.1-mini" in completed("plan", "resume", "--model", "openai/gpt-4.1")
    assert "builtin/executor" in completed("run", "--actor", "builtin/ex")
    monkeypatch.setenv("CLEVERAGENTS_SERVER_ADDRESS", "http://127.0.0.1:9")
    assert completed("plan", "show", "") == ""  # an unreachable server is no error


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "function")]
)
def test_the_completion_script_of_a_shell_is_printed(agents: Agents, shell: str, words: str) -> None:
    ended = agents("completion", shell)
    assert (ended.code, words in ended.out) == (0, True)
    assert f"_AGENTS_COMPLETE={shell}_complete" in ended.out
    assert agents("completion", "tcsh").code == 2


def test_the_list_defaults_to_this_repository(
    agents: Agents, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = agents(*REPLACE, "--review").id
    there = paint_shop(tmp_path / "elsewhere")
    monkeypatch.chdir(there)
    other = agents(*REPLACE, "--review").id
    monkeypatch.chdir(repository)
    listed = agents("plan", "list", "--format", "json")
    assert [row["id"] for row in json.loads(listed.out)] == [here]
    others = len(json.loads(agents("plan", "list", "--all", "--format", "json").out)) - 1
    assert others > 0
    plural = "" if others == 1 else "s"
    assert listed.err == f"{others} plan{plural} of other repositories not listed; pass --all\n"
    everything = agents("plan", "list", "--all").out.splitlines()
    assert everything[0].split() == ["id", "status", "updated", "repository", "goal"]
    rows = {row.split()[0]: row.split()[3] for row in everything[1:]}
    assert (rows[here], rows[other]) == ("repository", "elsewhere")
    narrowed = agents("plan", "list", "--status", "ready", "--format", "json")
    assert "only plans of this repository are listed; pass --all for all\n" in narrowed.err
    monkeypatch.chdir(tmp_path)
    outside = agents("plan", "list")
    assert here in outside.out
    assert outside.err == "not in a git repository, so the plans of all repositories are listed\n"


def test_three_waiting_plans_take_three_answers_and_a_confirmed_discard(
    agents: Agents, repository: Path
) -> None:
    approval = agents(*REPLACE, "--profile", "manual").id
    agents(*OTHER, "--review")
    dropped = agents(*OTHER, "--review").id
    ended = agents("plan", "review", typed="y\nyry")  # Enter after a key does no harm
    assert "[1/3] replace: pattern=colour replacement=color" in ended.err
    assert "3 decisions\n" in ended.err
    assert "Discard the result? [y]es, [n]o: y\ndiscarded\n" in ended.err
    assert (repository / "README.md").read_text() == "A colour of it.\n"
    assert "discarded" in agents("plan", "show", dropped).out
    assert "status     ready" in agents("plan", "show", approval).out


def test_a_round_of_decisions_shows_skips_and_ends(agents: Agents, repository: Path) -> None:
    assert "no plan of this repository needs you" in agents("plan", "review").err
    for _ in range(3):
        agents(*REPLACE, "--review")
    listed = agents("plan", "review")
    assert listed.code == 3
    assert "3 plans of this repository to review, but no terminal to ask in; pass one as PLAN" in listed.err
    # A wrong key, the diff, a discard that is not confirmed, not now; then the input ends.
    ended = agents("plan", "review", typed="xdrnn")
    assert ended.code == 0, ended.err
    assert "press y, d, r, n or q" in ended.err
    assert "+color = 1" in ended.out
    assert "Apply? [y]es, [n]ot now, show the [d]iff, [r] discard, [q]uit: r\n" in ended.err
    assert "discarded" not in ended.err
    assert "[2/3]" in ended.err
    assert "[3/3]" not in ended.err
    assert "0 decisions, 3 left\n" in ended.err
    assert git(repository, "status", "--short") == ""


@pytest.mark.parametrize("command", [("plan", "review"), REPLACE])
def test_only_the_diff_that_was_shown_is_applied(
    agents: Agents, repository: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    if command != REPLACE:
        agents(*REPLACE, "--review")
    keys = iter("dyy")

    def key(question: str) -> str:
        click.echo(question, nl=False, err=True)
        pressed = next(keys)
        if pressed == "y" and not changed:
            with connect() as client:  # another person changes the result after the diff was shown
                changed.append(client.plans.list().items[0].id)
                client.plans.review(changed[0], reject=["README.md"])
        return pressed

    changed: list[str] = []
    monkeypatch.setattr(prompts, "read_key", key)
    ended = agents(*command, typed="")
    assert ended.code == 0, ended.err
    assert "has changed since you saw it; nothing was applied" in " ".join(ended.err.split())
    shown = ended.out.split("diff --git a/README.md")
    assert "+color = 1" in shown[-1]
    assert ended.out.count("+color = 1") == 2
    assert (repository / "README.md").read_text() == "The colour of it.\n"
    assert "color" in next((repository / "src").glob("*")).read_text()


def test_a_review_mentions_the_plans_of_other_repositories(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    assert agents("plan", "review").err == "no plan of this repository needs you\n"
    monkeypatch.chdir(paint_shop(tmp_path / "elsewhere"))
    agents(*REPLACE, "--review")
    monkeypatch.chdir(tmp_path)
    ended = agents("plan", "review")
    assert ended.code == 0
    assert "1 plan of other repositories needs you: list the plans with `agents plan list --all`" in ended.err
    monkeypatch.chdir(tmp_path / "elsewhere")
    agents(*OTHER, "--review")
    monkeypatch.chdir(tmp_path)
    assert "2 plans of other repositories need you: " in agents("plan", "review").err


def test_a_blocked_plan_that_was_rolled_back_is_resumed(agents: Agents, repository: Path) -> None:
    plan = agents(*REPLACE, "--review").id
    (repository / "README.md").write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3
    rolled = agents("plan", "rollback", plan, "1")
    assert f"agents plan resume {plan}" in rolled.err
    assert "unchanged: all changes were rolled back" in rolled.out
    shown = agents("plan", "show", plan).out
    assert "error" not in shown
    for gone in ("apply", "rebase", "resolve", "review"):
        assert f"agents plan {gone} {plan}" not in shown
    assert json.loads(agents("plan", "show", plan, "--format", "json").out)["error"] is None
    assert plan in agents("plan", "list", "--status", "unchanged").out
    assert plan not in agents("plan", "list", "--status", "blocked").out
    refused = agents("plan", "apply", plan)
    assert "nothing to apply" in refused.err
    assert f"agents plan resume {plan}" in refused.err
    assert f"agents plan resume {plan}" in shown
    resumed = agents("plan", "resume", plan)
    assert "step 1 of 1: replace" in resumed.err
    assert "+color = 1" in agents("plan", "diff", plan).out


@pytest.mark.parametrize(("key", "kept"), [("o", "color"), ("m", "By hand.")])
def test_the_conflicts_of_a_blocked_plan_are_decided_with_one_key(
    agents: Agents, repository: Path, key: str, kept: str
) -> None:
    plan = agents(*REPLACE, "--review").id
    (repository / "README.md").write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3
    ended = agents("plan", "review", typed=f"{key}y")
    assert ended.code == 0, ended.err
    assert "current: the repository; proposed: this plan" in ended.err
    assert "resolved: README.md" in ended.err
    assert agents("plan", "show", plan, "--format", "json").out.count('"status": "applied"') == 1
    assert kept in (repository / "README.md").read_text()
    assert "color" in (repository / "src/paint.py").read_text()


def test_several_conflicts_are_decided_with_one_key(agents: Agents, repository: Path) -> None:
    plan = agents(*REPLACE, "--review").id
    for name in ("README.md", "src/paint.py"):
        (repository / name).write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3
    (repository / "README.md").write_text(git(repository, "show", "HEAD:README.md"))
    ended = agents("plan", "review", typed="oy")
    assert ended.code == 0, ended.err
    assert "resolved: src/paint.py (ours)" in ended.err
    assert "1 decision\n" in ended.err
    assert "color" in (repository / "src/paint.py").read_text()
    assert "color" in (repository / "README.md").read_text()


def test_only_conflicts_that_were_shown_are_decided(agents: Agents, repository: Path) -> None:
    plan = agents(*REPLACE, "--review").id
    (repository / "README.md").write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3
    (repository / "src/paint.py").write_text("Later.\n")
    ended = agents("plan", "review", typed="onq")
    assert ended.code == 0, ended.err
    assert "resolved: README.md (ours)" in ended.err
    assert "resolved: src/paint.py" not in ended.err
    assert "src/paint.py: " in ended.err.partition("resolved: README.md")[2]
    assert (repository / "src/paint.py").read_text() == "Later.\n"


def test_a_conflict_that_changed_after_it_was_shown_is_shown_again(
    agents: Agents, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = agents(*REPLACE, "--review").id
    (repository / "README.md").write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3

    def changed(question: str) -> str:
        """Another person leaves a file out before the first key is pressed."""
        monkeypatch.setattr(prompts, "read_key", lambda _: "q")
        with connect() as client:
            client.plans.review(plan, reject=["src/paint.py"])
        return "o"

    monkeypatch.setattr(prompts, "read_key", changed)
    ended = agents("plan", "review", typed="")
    before, _, after = " ".join(ended.err.split()).partition("has changed since you saw it")
    assert ("By hand." in before, "By hand." in after) == (True, True), ended.err
    assert "resolved" not in ended.err


def test_resume_ends_an_apply_whose_process_died(agents: Agents) -> None:
    plan = agents(*REPLACE, "--review").id
    with connect() as client:
        assert isinstance(client, LocalClient)
        container = client.access.container
        stored = container.plan_parts.plans
        for state in (PlanState.QUEUED, PlanState.PROCESSING):
            stored.move(stored.get(plan), (Phase.APPLY, state), PlanFacts(), now=container.clock.now())
    ended = agents("plan", "resume", plan)
    assert ended.code == 75, ended.err  # the apply was abandoned, so there is a new version
    assert f"agents plan apply {plan}" in ended.err
    assert "an apply cannot be resumed" not in ended.err


def test_a_blocked_plan_for_review_is_not_applied_by_resume(agents: Agents, repository: Path) -> None:
    plan = agents(*REPLACE, "--review").id
    before = (repository / "README.md").read_text()
    (repository / "README.md").write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3
    (repository / "README.md").write_text(before)
    refused = agents("plan", "resume", plan)
    assert (refused.code, f"agents plan apply {plan}" in refused.err) == (3, True), refused.err
    assert (repository / "README.md").read_text() == before
    assert agents("plan", "resume", plan, "--yes").code == 0
    assert (repository / "README.md").read_text() != before


def test_a_plan_for_review_whose_apply_failed_is_not_applied_by_resume(
    agents: Agents, repository: Path
) -> None:
    plan = agents(*REPLACE, "--review").id
    before = (repository / "README.md").read_text()
    with connect() as client:
        assert isinstance(client, LocalClient)
        container = client.access.container
        stored = container.plan_parts.plans
        for state in (PlanState.QUEUED, PlanState.PROCESSING, PlanState.ERRORED):
            facts = PlanFacts(error="the disk is full") if state is PlanState.ERRORED else PlanFacts()
            stored.move(stored.get(plan), (Phase.APPLY, state), facts, now=container.clock.now())
    refused = agents("plan", "resume", plan)
    assert (refused.code, f"agents plan apply {plan}" in refused.err) == (3, True), refused.err
    assert (repository / "README.md").read_text() == before
    assert agents("plan", "resume", plan, "--yes").code == 0
    assert (repository / "README.md").read_text() != before


def test_resume_does_not_apply_a_blocked_result_that_the_reviewer_rejected(
    agents: Agents, repository: Path
) -> None:
    plan = agents(*REPLACE, "--review").id
    before = (repository / "README.md").read_text()
    with connect() as client:
        assert isinstance(client, LocalClient)
        container = client.access.container
        tree = client.plans.get(plan).tree
        failed, now = CheckVerdict.FAILED, container.clock.now()
        review = CheckRun(plan, REVIEW, "builtin/reviewer", False, failed, "Keep it.", tree, now)
        container.plan_parts.check_runs.record(review)
    (repository / "README.md").write_text("By hand.\n")
    assert agents("plan", "apply", plan).code == 3
    (repository / "README.md").write_text(before)
    refused = agents("plan", "resume", plan, "--yes")
    assert refused.code == 3, refused.err
    assert "the reviewer rejected the result: Keep it." in refused.err
    assert (repository / "README.md").read_text() == before
    assert agents("plan", "apply", plan).code == 0


def test_a_rollback_of_captured_edits_does_not_propose_to_repeat_them(agents: Agents) -> None:
    plan = agents(*REPLACE, "--review").id
    sandbox = json.loads(agents("plan", "show", plan, "--format", "json").out)["sandbox"]
    Path(sandbox, "README.md").write_text("Mine.\n")
    assert agents("plan", "capture", plan).code == 0
    rolled = agents("plan", "rollback", plan, "2")
    assert rolled.code == 0
    assert f"plan resume {plan}" not in rolled.err


def test_an_undo_below_a_later_plan_names_that_plan(agents: Agents, repository: Path) -> None:
    plan = agents(*REPLACE, "--yes").id
    more = ("--arg", "pattern=color", "--arg", "replacement=hue")
    later = agents("run", "--action", "builtin/replace", *more, "--yes").id
    refused = agents("plan", "undo", plan)
    assert refused.code == 3
    assert "your edits" not in refused.err
    assert f"Undo the later plan first: agents plan undo {later}" in " ".join(refused.err.split())
    assert agents("plan", "undo", later).code == 0
    assert agents("plan", "undo", plan).code == 0
    assert git(repository, "status", "--short") == ""


def test_a_failed_action_does_not_end_the_round(agents: Agents, repository: Path) -> None:
    agents(*REPLACE, "--review")
    agents(*OTHER, "--review")
    (repository / "README.md").write_text("By hand.\n")
    ended = agents("plan", "review", typed="yyq")
    assert ended.code == 0, ended.err
    assert ended.err.count("nothing was changed") == 2
    assert "0 decisions, 2 left" in ended.err


def test_a_review_of_a_plan_without_a_request_says_so(agents: Agents) -> None:
    plan = agents("run", "--action", "builtin/command", "--review", "--", "true").id
    ended = agents("plan", "review", plan)
    assert (ended.code, "nothing to decide: unchanged" in ended.err) == (0, True), ended.err


def test_a_result_that_cannot_be_shown_again_does_not_end_the_round(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = agents(*REPLACE, "--review").id, agents(*OTHER, "--review").id

    def refuse(_plan: object, plan_id: str, **_: object) -> None:
        raise ResultChanged(plan_id)

    def remove(_plans: object, plan_id: str, *_: object, **_more: object) -> None:
        raise UnknownPlan(plan_id)

    monkeypatch.setattr(LocalPlans, "apply", refuse)
    monkeypatch.setattr(LocalPlans, "patch", remove)
    ended = agents("plan", "review", typed="yyq")
    assert ended.code == 0, ended.err
    assert first in ended.err
    assert second in ended.err


def test_denied_plans_and_one_named_plan_are_decided(agents: Agents) -> None:
    ran = agents(*REPLACE, "--profile", "manual").id
    refused = agents("plan", "review", ran)
    assert (refused.code, "no terminal to ask in" in refused.err) == (3, True)
    assert f"agents plan approve {ran}" in refused.err
    assert "need a PLAN" in agents("plan", "review", "--changeset", ran).err
    ended = agents("plan", "review", ran, typed="n")
    assert "Approve? [y]es, [n]o, [s]kip, [q]uit: n\n" in ended.err
    assert "1 decision\n" in ended.err
    assert "failed" in agents("plan", "show", ran).out


def test_nothing_is_left_to_decide_about_an_applied_plan(agents: Agents) -> None:
    ran = agents(*REPLACE, "--yes").id
    ended = agents("plan", "review", ran)
    assert (ended.code, ended.err) == (0, "nothing is left to decide: the plan is applied\n")


def test_several_approved_plans_continue_together(agents: Agents) -> None:
    made = [agents(*REPLACE, "--profile", "manual").id for _ in range(2)]
    ended = agents("plan", "review", typed="yy")
    assert ended.code == 3, ended.err
    for plan in made:
        assert "status     ready" in agents("plan", "show", plan).out


def test_a_plan_deleted_meanwhile_does_not_end_the_round(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    approved = agents(*REPLACE, "--profile", "manual").id
    deleted = agents(*REPLACE, "--review").id

    def key(_: str) -> str:
        with connect() as client:
            client.plans.delete(deleted, force=True)
        return "y"

    monkeypatch.setattr(prompts, "read_key", key)
    ended = agents("plan", "review", typed="n\n")
    assert deleted in ended.err, ended.err
    assert "1 decision, 1 left" in ended.err
    assert "status     ready" in agents("plan", "show", approved).out


def test_after_an_interrupt_the_decisions_stay(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [agents(*REPLACE, "--profile", "manual").id for _ in range(2)]
    keys = iter("y")

    def key(_: str) -> str:
        for typed in keys:
            return typed
        raise KeyboardInterrupt

    monkeypatch.setattr(prompts, "read_key", key)
    ended = agents("plan", "review", typed="")
    assert ended.code == 130
    assert f"plan {made[0]} was not continued; run\n`agents plan resume {made[0]}`" in ended.err
    assert agents("plan", "resume", made[0]).code == 3
    assert "waiting" in agents("plan", "show", made[1]).out


def test_the_end_of_input_is_a_key_or_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(prompts, "read_key", ended)
    assert prompt_key("Which", ["a", "q"], end="q") == "q"
    with pytest.raises(click.Abort):
        prompt_key("Which", ["a", "q"])


def test_a_key_counts_from_the_moment_the_question_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = os.openpty()
    monkeypatch.setattr(click, "echo", lambda *_, **__: os.write(keyboard, b"y"))
    os.write(keyboard, b"n\n")  # typed ahead: dropped
    assert select.select([terminal], [], [], 60)[0]  # the kernel delivers it later, and only then drops it
    with os.fdopen(terminal) as stdin, os.fdopen(keyboard):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert prompts.read_key("Apply? ") == "y"


def test_commands_about_one_plan_need_no_id(agents: Agents) -> None:
    assert "no plan of this repository is running" in agents("plan", "watch").err
    assert "is running or needs you" in agents("plan", "log").err
    plan = agents(*REPLACE, "--review").id
    assert plan in agents("plan", "log").err
    assert "replace" in agents("plan", "log", "1").out
    assert "no decisions" in agents("plan", "tree").err
    assert "no comments" in agents("plan", "comments").err
    assert "rolled back to checkpoint 1" in agents("plan", "rollback", "1", typed="y\n").err
    assert "no plan of this repository is running or paused" in agents("plan", "cancel").err
    assert f"pass the PLAN: {plan}" in agents("plan", "rollback").err, "nothing is guessed without a terminal"


def test_a_failed_plan_without_changes_is_closed(agents: Agents) -> None:
    failed = agents(*COMMAND, "sh", "-c", "exit 3")
    assert "close the plan" in failed.err
    reviewed = agents("plan", "review", typed="ry")
    assert "Close the plan?" in reviewed.err
    assert "discarded" in agents("plan", "show", failed.id).out


@pytest.mark.parametrize("ask", [confirmed, partial(prompt_choice, choices=["y"])])
def test_a_question_does_not_control_the_terminal(ask: Callable[[str], object]) -> None:
    """It may quote the subject of a commit, or the name of a file in a sandbox."""

    @click.command()
    def command() -> None:
        ask("push 1 commit (fix \x1b[2K\rnothing)?")

    ended = CliRunner().invoke(command, input="y\n")
    assert ended.exit_code == 0
    assert "\x1b" not in ended.output
    assert "\r" not in ended.output
    assert "nothing)?" in ended.output
