"""Plans from the command line, run as a user runs them: what is said, what is left to do, which exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import click
import pytest
from click.testing import CliRunner

from cleveragents.app.container import Container
from cleveragents.cli.output import progress
from cleveragents.cli.plan.work import asked_for
from cleveragents.cli.render.live_output import LiveOutput
from cleveragents.config.loader import load_configuration
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from tests.cli_bench import COMMAND, REPLACE, Agents, git
from tests.fork_server import Forked

pytestmark = pytest.mark.usefixtures("commands_are_forked")


class Breaking(StringIO):
    """A stderr in which writing certain words is interrupted, once, or answered with a signal."""

    def __init__(self, words: str, cause: BaseException | signal.Signals, rest: TextIO) -> None:
        super().__init__()
        self._words = words
        self._cause: BaseException | signal.Signals | None = cause
        self._rest = rest

    def write(self, text: str) -> int:
        if self._cause is not None and self._words in text:
            cause, self._cause = self._cause, None
            if isinstance(cause, BaseException):
                raise cause
            os.kill(os.getpid(), cause)
        return self._rest.write(text)


Interrupt = Callable[[str, BaseException | signal.Signals], AbstractContextManager[None]]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    @contextmanager
    def interrupted(words: str, cause: BaseException | signal.Signals) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", Breaking(words, cause, sys.stderr))
            yield

    return interrupted


@pytest.fixture
def container(repository: Path) -> Iterator[Container]:
    with Container(load_configuration(os.environ, repository).settings) as built:
        yield built


# ── Run ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_without_a_terminal_changes_nothing_and_prints_next_steps(
    agents: Agents, repository: Path
) -> None:
    ran = agents(*REPLACE, "--commit", "Spell it")
    assert ran.code == 3
    assert "2 files changed, 2 lines added, 2 lines removed" in ran.err
    assert f"agents plan apply {ran.id} --commit 'Spell it'" in ran.err
    assert "error" not in ran.err
    assert "ready: the result is ready for review" in ran.out
    assert git(repository, "status", "--short") == ""


def test_yes_applies_and_undo_takes_it_back(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--yes")
    assert ran.code == 0
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"
    assert f"agents plan undo {ran.id}" in agents("plan", "show", ran.id).out
    again = agents("plan", "apply", ran.id)
    assert (again.code, "already applied" in again.err) == (2, True)
    undone = agents("plan", "undo", ran.id)
    assert undone.code == 0
    assert f"undone in 2 files of {repository}" in undone.err
    assert git(repository, "status", "--short") == ""
    final = agents("plan", "apply", ran.id)
    assert (final.code, "already undone, which is final" in final.err) == (2, True)


def test_a_commit_is_made_and_its_undoing_too(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--yes", "--commit", "Spell it")
    assert ran.code == 0
    assert git(repository, "log", "-1", "--format=%s%n%(trailers:key=CleverAgents-Plan,valueonly)") == (
        f"Spell it\n{ran.id}\n\n"
    )
    assert agents("plan", "undo", ran.id, "--commit", "Back").code == 0
    assert git(repository, "log", "-1", "--format=%s") == "Back\n"
    assert git(repository, "status", "--short") == ""


@pytest.mark.parametrize(
    ("choices", "typed", "answer"),
    [
        (["tabs", "tabs"], "tabs\n", "tabs"),
        (["tabs ", "spaces"], "Tabs \n", "tabs "),
        (["Yes", "yes"], "YES\nyes\n", "yes"),
    ],
    ids=["twice", "white space at an end", "doubtful"],
)
def test_every_choice_can_be_chosen(choices: list[str], typed: str, answer: str) -> None:
    answers: list[str] = []
    command = click.Command("ask", callback=lambda: answers.append(asked_for({"choices": choices})))
    asked = CliRunner().invoke(command, input=typed)
    assert (asked.exception, answers) == (None, [answer])


def test_a_terminal_is_asked(agents: Agents, repository: Path) -> None:
    looked = agents(*REPLACE, typed="xdN")
    assert looked.code == 0
    assert "press y, n, d or r\n" in looked.err
    assert "Error" not in looked.err
    assert "+The color of it." in looked.out
    assert git(repository, "status", "--short") == ""
    kept = agents(*REPLACE, typed="rnn")
    assert (kept.err.count("Discard the result? [y]es, [n]o: n"), "status  ready" in kept.out) == (1, True)
    assert "status  discarded" in agents(*REPLACE, typed="ry").out
    assert git(repository, "status", "--short") == ""
    assert "status  applied" in agents(*REPLACE, typed="y").out
    assert (repository / "README.md").read_text() == "The color of it.\n"


@pytest.mark.parametrize(("pressed", "code"), [("", 0), ("\x03", 130)], ids=["ctrl-d", "ctrl-c"])
def test_an_unanswered_question_leaves_the_plan_undecided(agents: Agents, pressed: str, code: int) -> None:
    stopped = agents(*REPLACE, typed=pressed)
    assert stopped.code == code
    assert f"\nthe plan stays as it is\n  agents plan diff {stopped.id}" in stopped.err
    assert "ready: the result is ready for review" in agents("plan", "show", stopped.id).out


def test_a_plan_without_changes_reports_nothing_to_apply(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review")
    again = agents("plan", "resume", ran.id)
    assert (again.code, "nothing to do: the plan is already done" in again.err) == (0, True), again.err
    for name in agents("plan", "diff", ran.id, "--name-only").out.split():
        (repository / name).write_text((repository / name).read_text().replace("colour", "color"))
    applied = agents("plan", "apply", ran.id)
    assert (applied.code, "your files already contain the result; nothing changed" in applied.err) == (
        0,
        True,
    )


@pytest.mark.parametrize(("pressed", "code"), [("", 3), ("\x03", 130)], ids=["ctrl-d", "ctrl-c"])
def test_an_unanswered_approval_stays_pending(agents: Agents, pressed: str, code: int) -> None:
    stopped = agents(*REPLACE, "--profile", "manual", typed=pressed)
    assert (stopped.code, f"agents plan approve {stopped.id} 1" in stopped.err) == (code, True), stopped.err
    assert "waiting: needs your approval" in agents("plan", "show", stopped.id).out


def test_a_terminal_approves_a_call(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--profile", "manual", typed="xYy")
    assert ran.code == 0
    assert "press y or n" in ran.err
    assert "needs approval for edit" in ran.err
    assert ran.err.count(ran.id + ":") == 1
    assert (repository / "README.md").read_text() == "The color of it.\n"


def test_without_a_terminal_a_call_is_approved_later(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--profile", "manual", "--commit", "Spell it")
    assert ran.code == 3
    assert "pass the message again" in ran.err
    assert "status  waiting" in ran.out
    assert f"agents plan approve {ran.id}" in ran.err
    assert "waits for  call 1 needs approval for edit: replace" in agents("plan", "show", ran.id).out
    early = agents("plan", "apply", ran.id)
    assert (early.code, "needs approval for edit" in early.err) == (2, True)
    assert agents("plan", "resume", ran.id).code == 2
    assert agents("plan", "approve", ran.id).code == 3
    assert agents("plan", "apply", ran.id).code == 0
    assert (repository / "README.md").read_text() == "The color of it.\n"
    late = agents("plan", "approve", ran.id)
    assert (late.code, "no approval is pending" in late.err) == (2, True)


def test_an_answer_shows_its_call_and_is_to_that_call_alone(agents: Agents) -> None:
    ran = agents(*REPLACE, "--profile", "manual")
    assert f"agents plan approve {ran.id} 1" in ran.err
    wrong = agents("plan", "approve", ran.id, "2")
    assert (wrong.code, "call 2 is not pending; call 1 is" in wrong.err) == (2, True)
    assert agents("plan", "deny", ran.id, "2").code == 2
    right = agents("plan", "approve", ran.id, "1")
    assert (right.code, "approved: call 1, replace: " in right.err) == (3, True)


def test_the_goal_is_kept_without_secrets(agents: Agents, container: Container) -> None:
    ran = agents(*COMMAND, "true", "password=hunter2secret")
    assert "hunter2secret" not in container.plan_parts.plans.get(ran.id).goal


def test_a_denied_call_fails_the_plan(agents: Agents) -> None:
    ran = agents(*REPLACE, "--profile", "manual")
    denied = agents("plan", "deny", ran.id)
    assert denied.code == 0
    assert "denied" in denied.err
    assert "status  failed" in denied.out


def test_a_denial_that_is_interrupted_ends_as_every_interrupted_command(
    agents: Agents, interrupt: Interrupt
) -> None:
    ran = agents(*REPLACE, "--profile", "manual")
    with interrupt("plan ", KeyboardInterrupt()):
        stopped = agents("plan", "deny", ran.id)
    assert (stopped.code, f"plan {ran.id} is paused" in stopped.err) == (130, True)
    assert f"agents plan resume {ran.id}" in stopped.err
    assert "denied: stopped" not in stopped.err


def test_review_stops_before_apply_whatever_the_profile(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review", "--profile", "full-auto")
    assert ran.code == 0
    assert "ready: the result is ready for review" in ran.out
    assert git(repository, "status", "--short") == ""
    assert agents(*REPLACE, "--review", "--yes").code == 2


def test_a_profile_that_allows_it_applies(agents: Agents, repository: Path) -> None:
    assert agents(*REPLACE, "--profile", "ci").code == 0
    assert (repository / "README.md").read_text() == "The color of it.\n"


def test_nothing_changed_is_no_question(agents: Agents) -> None:
    ran = agents("run", "--action", "builtin/replace", "--arg", "pattern=zzz", "--arg", "replacement=y")
    assert (ran.code, "nothing was changed" in ran.err) == (0, True)
    assert "unchanged: no file was changed" in ran.out
    applied = agents("plan", "apply", ran.id)
    assert (applied.code, "there is nothing to apply" in applied.err) == (0, True)
    assert agents("plan", "diff", ran.id).out == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "missing goal"),
        (("--action", "builtin/nope"), "no action"),
        (("--action", "builtin/command"), "argv (list) is missing"),
        ((*REPLACE[1:], "--profile", "supervized"), "did you mean supervised?"),
        ((*REPLACE[1:], "--arg", "pattren=x"), "did you mean pattern?"),
    ],
)
def test_a_wrong_request_makes_no_plan(agents: Agents, arguments: tuple[str, ...], told: str) -> None:
    refused = agents("run", *arguments)
    assert (refused.code, told in refused.err) == (2, True), refused.err
    assert agents("plan", "list", "--here", "--format", "json").out == "[]\n"


def test_a_commit_outside_a_repository_is_refused_at_once(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.chdir(plain)
    refused = agents(*REPLACE, "--yes", "--commit", "x")
    assert (refused.code, "is not a git repository" in refused.err) == (2, True)


# ── A command, and what it prints ─────────────────────────────────────────────────────────────────


def test_command_output_is_shown_recorded_and_applied(agents: Agents, repository: Path) -> None:
    script = r"printf 'x' > new.txt; printf '10%%\r100%%\n\033[32mgreen\033[0m\nno end'"
    ran = agents("run", "--action", "builtin/command", "--yes", "--", "sh", "-c", script)
    assert ran.code == 0
    assert "\n  100%\n  green\n  no end\n" in ran.err
    assert (repository / "new.txt").read_text() == "x"
    told = agents("plan", "log", ran.id, "1").out
    assert "exit_code" in told
    assert "\noutput\n" in told
    assert "  no end\n" in told
    assert json.loads(agents("plan", "log", ran.id, "1", "--format", "json").out)["result"]["exit_code"] == 0
    assert agents("plan", "log", ran.id).out.splitlines()[1].split()[:4] == ["1", "command", "ended", "1"]


def test_a_failed_command_fails_the_plan_and_can_be_tried_again(agents: Agents, repository: Path) -> None:
    ran = agents(*COMMAND, "sh", "-c", "echo broken; exit 4")
    assert ran.code == 1
    assert "ended with exit code 4: broken" in ran.err
    assert ran.err.count(f"plan {ran.id} failed") == 1
    refused = agents("plan", "apply", ran.id)
    assert (refused.code, f"agents plan resume {ran.id}" in refused.err) == (2, True)
    assert agents("plan", "resume", ran.id).code == 1
    assert agents("plan", "reject", ran.id).code == 0
    assert git(repository, "status", "--short") == ""


def test_where_the_user_stands_is_where_the_command_starts(
    agents: Agents, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "src")
    ran = agents("run", "--action", "builtin/command", "--yes", "--", "touch", "here.txt")
    assert ran.code == 0
    assert (repository / "src/here.txt").exists()


def test_a_misspelled_status_and_an_unknown_call_are_named(agents: Agents) -> None:
    assert "; did you mean 'ready'?" in agents("plan", "list", "--status", "redy").err
    ran = agents(*REPLACE, "--review")
    unknown = agents("plan", "log", ran.id, "99")
    assert f"plan {ran.id} has no call 99" in unknown.err
    assert "List the calls" in unknown.err


def test_ctrl_c_pauses_a_plan_whose_work_was_not_begun(agents: Agents, interrupt: Interrupt) -> None:
    with interrupt("plan ", KeyboardInterrupt()):
        stopped = agents(*REPLACE)
    assert stopped.code == 130
    plan_id = stopped.out.split()[1]
    assert "paused" in agents("plan", "show", plan_id).out


def test_ctrl_c_ends_a_command_and_keeps_its_effects(
    agents: Agents, interrupt: Interrupt, repository: Path
) -> None:
    with interrupt("  up", signal.SIGINT):
        stopped = agents(*COMMAND, "sh", "-c", "touch half.txt; echo up; sleep 1000")
    assert stopped.code == 130
    assert "interrupted: pausing the plan …" in stopped.err
    assert f"agents plan cancel {stopped.id}" in stopped.err
    agents("plan", "cancel", stopped.id, "--reason", "enough")
    assert agents("plan", "diff", stopped.id, "--name-only").out == "half.txt\n"
    failed = agents("plan", "log", stopped.id, "1").out
    assert "error      cancelled: enough" in failed
    assert git(repository, "status", "--short") == ""


def test_sigterm_names_the_way_on(agents: Agents, interrupt: Interrupt) -> None:
    with interrupt("plan ", SystemExit(143)):
        stopped = agents(*REPLACE)
    assert stopped.code == 143
    [plan] = json.loads(agents("plan", "list", "--here", "--format", "json").out)
    assert f"agents plan resume {plan['id']}" in stopped.err
    assert "no worker is running the plan" in agents("plan", "show", plan["id"]).out
    refused = agents("plan", "apply", plan["id"])
    assert (refused.code, "still " in refused.err) == (2, True)
    assert agents("plan", "resume", plan["id"]).code == 3


def test_live_output_breaks_lines_that_never_end(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveOutput(progress)
    live(b"x" * 5000)
    live(b"\xff\x1b]0;title\x07\n")
    live.finish()
    assert capsys.readouterr().err == f"  {'x' * 5000}\n  \\xff\n"


def test_a_plan_whose_process_was_killed_is_found_without_its_id(
    agents: Agents, interrupt: Interrupt
) -> None:
    arguments = [sys.executable, "-m", "cleveragents", *COMMAND, "sh", "-c", "echo up; sleep 1000"]
    with Forked(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        plan_id = process.stderr.readline().split()[1].rstrip(":")
        while process.stderr.readline() != "  up\n":
            pass
        assert "can be resumed" in agents("plan", "resume").err
        assert "needs you" in agents("plan", "review").err
        [plan] = json.loads(agents("plan", "list", "--here", "--format", "json").out)
        assert plan["label"] == "running"
        process.kill()
    [plan] = json.loads(agents("plan", "list", "--here", "--format", "json").out)
    assert plan["label"] == "running (no worker)"
    assert "no worker is running the plan" in agents("plan", "show").out
    assert f"{plan_id[-6:]}  running" in agents("plan", "review").err
    with interrupt("  up", signal.SIGINT):
        resumed = agents("plan", "resume")
    assert resumed.code == 130
    assert f"plan {plan_id}: " in resumed.err


def test_a_replace_names_the_files_that_it_skipped(agents: Agents, repository: Path) -> None:
    (repository / "big.txt").write_text("colour\n" * ((8 << 20) // 7 + 1))
    git(repository, "add", "big.txt")
    ran = agents(*REPLACE, "--review")
    assert "skipped 1 file: big.txt: larger than 8 MiB\n" in ran.err


def test_a_plan_at_work_is_cancelled_from_elsewhere(agents: Agents, repository: Path) -> None:
    script = "touch half.txt; echo up; sleep 1000"
    arguments = [sys.executable, "-m", "cleveragents", *COMMAND, "sh", "-c", script]
    with Forked(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        plan_id = process.stderr.readline().split()[1].rstrip(":")
        while process.stderr.readline() != "  up\n":
            pass
        at_work = agents("plan", "show", plan_id)
        assert f"agents plan cancel {plan_id}" in at_work.out
        assert "nobody" not in at_work.out
        refused = agents("plan", "resume", plan_id)
        assert (refused.code, "already running" in refused.err) == (2, True)
        cancelled = agents("plan", "cancel", plan_id, "--reason", "enough")
        assert cancelled.code == 0
        assert "no process is left" in cancelled.err
        assert "cancelled: enough" in process.stderr.read()
    assert process.returncode == 130
    assert "created" in agents("plan", "show", plan_id).out
    assert git(repository, "status", "--short") == ""


def test_a_long_difference_goes_through_the_pager_of_a_terminal(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    (repository / "long.txt").write_text("colour\n" * 100)
    ran = agents(*REPLACE, "--review")
    environment = {**os.environ, "PAGER": f"sh -c 'cat > {tmp_path}/paged'", "TERM": "xterm", "LINES": "24"}
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "cleveragents", "plan", "diff", ran.id]
    with Forked(command, env=environment, stdin=follower, stdout=follower, stderr=follower) as shown:
        os.close(follower)
        assert shown.wait(60) == 0
    os.close(leader)
    assert (tmp_path / "paged").read_text().splitlines().count("+color") == 100


def test_a_short_difference_is_shown_as_it_is(
    agents: Agents, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = agents(*REPLACE, "--review")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "+The color of it.\n" in agents("plan", "diff", ran.id, "--format", "plain").out


@pytest.mark.parametrize("command", ["apply", "discard"])
def test_only_the_named_result_is_applied_or_discarded(
    agents: Agents, repository: Path, command: str
) -> None:
    plan = agents(*REPLACE, "--review").id

    def tree() -> str:
        return str(json.loads(agents("plan", "show", plan, "--format", "json").out)["tree"])

    seen = tree()
    assert agents("plan", "review", plan, "README.md").code == 0
    refused = agents("plan", command, plan, "--tree", seen)
    said = " ".join(refused.err.split())
    assert (refused.code, "has changed since you saw it" in said) == (3, True), refused.err
    assert f"agents plan diff {plan}" in said
    assert "ready" in agents("plan", "show", plan).out
    done = agents("plan", command, plan, "--tree", tree())
    assert done.code == 0, done.err
    assert (repository / "README.md").read_text() == "The colour of it.\n"
    assert ("color" in (repository / "src/paint.py").read_text()) is (command == "apply")


def test_a_diff_on_a_terminal_names_the_apply_of_exactly_this_result(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = agents(*REPLACE, "--review").id
    assert "--tree" not in agents("plan", "diff", plan).err  # a script reads the tree from the JSON of `show`
    tree = json.loads(agents("plan", "show", plan, "--format", "json").out)["tree"]
    with monkeypatch.context() as patched:
        patched.setattr(sys.stdout, "isatty", lambda: True)
        assert "--tree" not in agents("plan", "diff", plan, "--stat").err  # not all of it is shown
        assert "--tree" not in agents("plan", "diff", plan, "README.md").err
        shown = " ".join(agents("plan", "diff", plan).err.split())
    assert f"apply exactly this result with `agents plan apply {plan} --tree {tree}`" in shown
    assert agents("plan", "discard", plan).code == 0
    with monkeypatch.context() as patched:
        patched.setattr(sys.stdout, "isatty", lambda: True)
        assert "--tree" not in agents("plan", "diff", plan).err


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────


def test_show_prints_changes_for_people_and_all_fields_for_programs(agents: Agents) -> None:
    ran = agents(*REPLACE, "--check", "false")
    shown = agents("plan", "show", ran.id[-8:].lower()).out
    assert "changed  +1 -1  src/paint.py" in shown
    assert "false  failed   yes       exit code 1" in shown
    assert f"agents plan apply {ran.id}" in shown
    told = json.loads(agents("plan", "show", ran.id, "--format", "json").out)
    assert [(row["path"], row["change"], row["added"], row["removed"]) for row in told["changes"]] == [
        ("README.md", "changed", 1, 1),
        ("src/paint.py", "changed", 1, 1),
    ]
    assert [(row["name"], row["verdict"], row["required"]) for row in told["checks"]] == [
        ("false", "failed", True)
    ]
    (made,) = told["calls"]
    assert made.pop("what").startswith("pattern=colour, replacement=color")
    assert made.pop("approval") is None
    facts = {"number": 1, "tool": "replace", "state": "ended", "changed": 2}
    assert made == {**facts, "error": None, "reason": None, "rule": None}


def test_a_failed_check_is_reported_and_refuses_the_apply(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--check", "no-such-program")
    assert "check no-such-program: not run (required before apply" in ran.err
    assert "install the missing program, or run the goal again with another --check" in ran.err
    steps = (
        f"apply {ran.id}    run the checks again",
        "discard the result; start another plan with other checks",
    )
    assert [step in agents("plan", "show", ran.id).out for step in steps] == [True, True]
    refused = agents("plan", "apply", ran.id)
    assert refused.code == 3
    assert "status  blocked" in refused.out
    assert f"agents plan review {ran.id} PATH" in refused.err
    for said in (ran.err, agents("plan", "show", ran.id).out, refused.err):
        assert f"agents plan capture {ran.id}" in said
        assert "plan revise" not in said, "a plan of fixed steps has no agent"
    sandbox = json.loads(agents("plan", "show", ran.id, "--format", "json").out)["sandbox"]
    by_hand = (
        f"to fix the result yourself, edit the files in {sandbox}, then record the edits with `plan capture`"
    )
    assert by_hand in " ".join(ran.err.split())
    assert git(repository, "status", "--short") == ""


def test_a_failed_check_is_fixed_by_hand_and_applied(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--check", "grep -q fixed README.md", "--review")
    assert (ran.code, "edit the files in" in ran.err) == (3, True)
    sandbox = json.loads(agents("plan", "show", ran.id, "--format", "json").out)["sandbox"]
    Path(sandbox, "README.md").write_text("fixed\n")
    assert agents("plan", "capture", ran.id).code == 0
    assert agents("plan", "apply", ran.id).code == 0
    assert (repository / "README.md").read_text() == "fixed\n"


def test_a_run_commits_with_a_drafted_message(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--yes", "--commit")
    assert ran.code == 0, ran.err
    assert "commit message: Replace: pattern=colour replacement=color\n" in ran.err
    assert git(repository, "log", "-1", "--format=%s") == "Replace: pattern=colour replacement=color\n"
    left = agents(*(word.replace("colour", "The") for word in REPLACE), "--commit")
    assert (left.code, f"agents plan apply {left.id} --commit " in left.err) == (3, True), left.err
    wrong = agents("run", "--commit", "Add a flag")
    assert (wrong.code, "write the goal first" in " ".join(wrong.err.split())) == (2, True)


@pytest.mark.parametrize("options", [(), ("--yes",), ("--review",)])
@pytest.mark.parametrize("script", ["true", "echo x > c.txt"])
def test_a_run_with_a_failed_required_check_is_no_success(
    agents: Agents, repository: Path, options: tuple[str, ...], script: str
) -> None:
    """A pipeline looks at the exit code alone."""
    made = ("run", "--check", "false", *options, "--action", "builtin/command", "--", "sh", "-c", script)
    ran = agents(*made)
    assert ran.code == 3
    assert "check false: failed" in ran.err
    assert agents("plan", "apply", ran.id).code == 3
    assert git(repository, "status", "--short") == ""


def test_the_diff_is_a_patch_that_git_takes(agents: Agents, repository: Path) -> None:
    script = "mv README.md README; printf '\\0\\1' > data.bin; chmod +x src/paint.py; ln -s README link"
    ran = agents(*COMMAND, "sh", "-c", script)
    patch = agents("plan", "diff", ran.id).out
    git(repository, "init", "-q", "../other")
    subprocess.run(["git", "apply", "--check"], input=patch, text=True, cwd=repository, check=True)
    assert agents("plan", "diff", ran.id, "--name-only", "src").out == "src/paint.py\n"
    assert "data.bin" in agents("plan", "diff", ran.id, "--stat").out
    told = json.loads(agents("plan", "diff", ran.id, "--format", "json", "./src/").out)
    assert [(row["path"], row["after"]["mode"]) for row in told] == [("src/paint.py", "100755")]
    assert "mode 100755  src/paint.py" in ran.err
    assert agents("plan", "diff", ran.id, "--stat", "--name-only").code == 2
    assert agents("plan", "diff", ran.id, "nothing").err == "no changes at these paths\n"


def test_a_name_that_is_not_utf8_is_shown_to_people_and_programs(agents: Agents, repository: Path) -> None:
    ran = agents(*COMMAND, "sh", "-c", "touch \"$(printf 'bad\\377name')\"")
    assert "bad\ufffdname" in ran.err
    shown = json.loads(agents("plan", "show", ran.id, "--format", "json").out)["changes"][0]["path"]
    assert shown == "bad\ufffdname"  # as the API writes it
    for name in (shown, "bad\udcffname"):
        assert "diff --git a/bad" in agents("plan", "diff", ran.id, name).out
    assert agents("plan", "review", ran.id, shown).code == 0
    assert "is left out" in agents("plan", "diff", ran.id, shown).err
    assert agents("plan", "review", ran.id, "--accept", "bad\udcffname").code == 0
    assert agents("plan", "apply", ran.id).code == 0
    assert os.path.lexists(os.fsencode(repository) + b"/bad\xffname")


def test_the_list_ends_with_the_latest_and_continues_after_a_plan(agents: Agents) -> None:
    made = [agents(*REPLACE, "--review").id for _ in range(3)]

    def listed(*options: str) -> tuple[list[str], str]:
        ended = agents("plan", "list", "--here", "--format", "json", *options)
        return [row["id"] for row in json.loads(ended.out)], ended.err

    assert listed() == (made, "")
    assert listed("--limit", "2") == (
        made[1:],
        "only the latest 2 plans are shown; raise --limit to show more\n",
    )
    assert listed("--limit", "1", "--after", made[0]) == (
        [made[1]],
        f"there are more plans: pass --after {made[1]}\n",
    )
    assert listed("--after", made[1]) == ([made[2]], "")
    assert listed("--state", "applied") == ([], "")
    assert agents("plan", "list", "--here").out.splitlines()[0].split() == [
        "id",
        "status",
        "updated",
        "goal",
    ]


def test_a_list_on_a_terminal_shows_the_status(agents: Agents) -> None:
    agents(*REPLACE, "--review")
    seen = agents("plan", "list", "--here", "--format", "rich").out
    assert ("phase" in seen, "  ready  " in seen, "unchanged" in seen) == (False, True, False)
    agents(*COMMAND, "true")
    assert "unchanged" in agents("plan", "list", "--here", "--format", "rich").out


def test_a_list_can_be_narrowed_to_a_status(agents: Agents) -> None:
    ready = agents(*REPLACE, "--review").id
    unchanged = agents(*COMMAND, "true").id

    def listed(*options: str) -> list[str]:
        listed = agents("plan", "list", "--here", *options, "--format", "json").out
        return [row["id"] for row in json.loads(listed)]

    assert listed("--status", "ready") == [ready]
    assert listed("--status", "unchanged") == [unchanged]
    assert listed("--status", "ready", "--status", "unchanged") == [ready, unchanged]
    assert listed("--status", "blocked") == []
    assert listed("--state", "complete") == [ready, unchanged]  # the earlier option


def test_a_plan_is_found_by_either_end_of_its_id_unless_ambiguous(agents: Agents) -> None:
    agents(*REPLACE, "--review")
    ran = agents(*REPLACE, "--review")
    assert ran.id in agents("plan", "show", ran.id[-6:]).out
    unknown = agents("plan", "show", "nope")
    assert (unknown.code, "agents plan list" in unknown.err) == (2, True)
    ambiguous = agents("plan", "show", ran.id[:2])
    assert (ambiguous.code, "use more characters of the id" in ambiguous.err) == (2, True)


def test_many_files_are_counted_rather_than_listed(agents: Agents) -> None:
    ran = agents(*COMMAND, "sh", "-c", "for n in $(seq 25); do touch new$n; done; rm README.md")
    assert "  … and 6 more\n26 files changed, 1 line removed\n" in ran.err
    told = json.loads(agents("run", "--action", "builtin/command", "--format", "json", "--", "true").out)
    assert (told["state"], told["changes"]) == ("complete", [])


def test_an_inseparable_review_is_reported(agents: Agents, repository: Path) -> None:
    steps = "[{tool: edit, with: {path: README.md, old: colour, new: colr}}, "
    steps += "{tool: edit, with: {path: README.md, old: colr, new: color}}]"
    (repository / "twice.yaml").write_text(f"name: my/twice\nexecute: {{steps: {steps}}}\n")
    assert agents("action", "create", "--replace", "twice.yaml").code == 0
    ran = agents("run", "--action", "my/twice", "--review")
    first = json.loads(agents("plan", "log", ran.id, "--format", "json").out)[0]
    agents("plan", "review", ran.id, "--changeset", first["changeset"])
    shown = agents("plan", "show", ran.id)
    assert shown.code == 0
    assert "review" in shown.out
    refused = agents("plan", "apply", ran.id)
    assert refused.code != 0
    assert git(repository, "status", "--short") == "?? twice.yaml\n"


def test_secrets_in_requests_are_not_shown(agents: Agents) -> None:
    secret = "ghp_" + "a1B2" * 9
    ran = agents("run", "--action", "builtin/replace", "--arg", f"pattern={secret}", "--arg", "replacement=x")
    shown = [ran, agents("plan", "show", ran.id), agents("plan", "list", "--here")]
    shown += [agents("plan", "log", ran.id, "--format", "json")]
    assert not any(secret in ended.out + ended.err for ended in shown)


# ── Review, rollback, edits of one's own ──────────────────────────────────────────────────────────


def test_a_review_is_all_or_nothing_and_knows_directories(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review")
    wrong = agents("plan", "review", ran.id, "src", "nope")
    assert (wrong.code, "no file 'nope' among the changes of the plan" in wrong.err) == (2, True)
    assert agents("plan", "review", ran.id, "--changeset", "nope").code == 2
    assert agents("plan", "review", ran.id).code == 3
    assert "left_out" not in agents("plan", "show", ran.id).out
    reviewed = agents("plan", "review", ran.id, "src/")
    assert "to be applied: 1 file changed" in reviewed.err
    assert "left out         src/paint.py" in agents("plan", "show", ran.id).out
    assert agents("plan", "apply", ran.id).code == 0
    assert git(repository, "status", "--short") == " M README.md\n"
    late = agents("plan", "review", ran.id, "src")
    assert (late.code, "review a plan after its run and before its apply" in late.err) == (2, True)


def test_a_changeset_can_be_left_out_and_included_again(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review")
    [call] = json.loads(agents("plan", "log", ran.id, "--format", "json").out)
    assert agents("plan", "review", ran.id, "--changeset", call["changeset"]).code == 0
    refused = agents("plan", "apply", ran.id)
    assert (refused.code, "you rejected all changes" in refused.err) == (2, True)
    assert agents("plan", "review", ran.id, "--accept", "--changeset", call["changeset"]).code == 0
    assert agents("plan", "apply", ran.id).code == 0
    assert len(git(repository, "status", "--short").splitlines()) == 2


def test_a_rollback_says_how_to_go_on_and_an_edit_is_taken_in(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review", "--invariant", "never touch kept/", "--check", "true")
    assert "recorded as call 2: nothing was changed" in agents("plan", "rollback", ran.id, "1").err
    shown = agents("plan", "show", ran.id)
    assert " passed, out of date " in shown.out, shown.out
    assert agents("plan", "rollback", ran.id, "9").code == 2
    assert agents("plan", "resume", ran.id).code == 0
    assert agents("plan", "reread", ran.id).err == "no edits\n"
    place = json.loads(agents("plan", "show", ran.id, "--format", "json").out)["sandbox"]
    (Path(place) / "README.md").write_text("Mine.\n")
    taken = agents("plan", "reread", ran.id).err
    assert ("recorded the edits as call" in taken, "warning:" in taken) == (True, False), taken
    (Path(place) / "kept").mkdir()
    (Path(place) / "kept/new").touch()
    taken = agents("plan", "reread", ran.id).err
    assert "warning: kept/new was changed, which an invariant forbids: never touch kept/" in taken
    assert agents("plan", "apply", ran.id).code == 0
    assert (repository / "README.md").read_text() == "Mine.\n"
    assert agents("plan", "log", ran.id, "9").code == 2


def test_a_conflict_shows_both_sides_and_touches_nothing(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--review")
    (repository / "src/paint.py").write_text("colour = 5\nother = 2\n")
    before = git(repository, "status", "--porcelain=v2")
    refused = agents("plan", "apply", ran.id)
    assert refused.code == 3
    assert "src/paint.py" in refused.err
    assert "| colour = 5" in refused.err
    assert "| color = 1" in refused.err
    for step in (f"rebase {ran.id}", f"resolve {ran.id} --ours PATH", f"resolve {ran.id} --theirs PATH"):
        assert f"agents plan {step}" in refused.err
    assert git(repository, "status", "--porcelain=v2") == before
    again = agents("plan", "resume", ran.id, "--yes")
    assert again.code == 3
    assert agents("plan", "review", ran.id, "src/paint.py").code == 0
    assert agents("plan", "resume", ran.id, "--yes").code == 0
    assert (repository / "src/paint.py").read_text() == "colour = 5\nother = 2\n"


def test_an_undo_that_conflicts_touches_nothing(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--yes")
    (repository / "README.md").write_text("My own words.\n")
    refused = agents("plan", "undo", ran.id)
    assert (refused.code, "| My own words." in refused.err) == (3, True)
    assert (repository / "README.md").read_text() == "My own words.\n"
    assert (repository / "src/paint.py").read_text() == "color = 1\nother = 2\n"
    assert f"agents plan diff {ran.id} | git apply --reverse --reject" in refused.err
    patch = agents("plan", "diff", ran.id).out
    words = ["git", "apply", "--reverse", "--reject"]
    subprocess.run(words, cwd=repository, input=patch, text=True, capture_output=True, check=False)
    assert (repository / "README.md").read_text() == "My own words.\n"
    assert (repository / "src/paint.py").read_text() == "colour = 1\nother = 2\n"


# ── Ends ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_cancel_says_so(agents: Agents) -> None:
    ran = agents(*REPLACE, "--review")
    first = agents("plan", "cancel", ran.id, "--reason", "wrong branch", "--remove-sandbox")
    assert (first.code, "status  cancelled" in first.out) == (0, True)
    second = agents("plan", "cancel", ran.id)
    assert second.code == 0
    assert "is already cancelled (wrong branch); nothing changed" in second.err
    assert agents("plan", "resume", ran.id).code == 2
    assert agents("plan", "reject", ran.id).code == 2
    gone = agents("plan", "diff", ran.id)
    assert (gone.code, "was removed" in gone.err) == (2, True)


def test_a_cancelled_plan_shows_its_reason_and_the_way_to_its_changes(agents: Agents) -> None:
    ran = agents(*REPLACE, "--review")
    cancelled = agents("plan", "cancel", ran.id, "--reason", "wrong branch")
    step = f"agents plan diff {ran.id}"
    assert step in cancelled.err
    shown = agents("plan", "show", ran.id).out
    assert "reason     wrong branch\n" in shown
    assert "error" not in shown
    assert f"{step}  show the changes it had made; a pipe gets a patch for `git apply`" in shown
    assert agents("plan", "diff", ran.id).out.startswith("diff --git ")


def test_a_second_discard_says_so(agents: Agents) -> None:
    ran = agents(*REPLACE, "--review")
    assert agents("plan", "discard", ran.id).code == 0
    second = agents("plan", "discard", ran.id)
    assert (second.code, "status  discarded" in second.out) == (0, True)
    assert second.err == f"plan {ran.id} is already discarded; nothing changed\n"


def test_a_plan_without_a_worker_is_cancelled_at_once(
    agents: Agents, container: Container, repository: Path
) -> None:
    plan = container.plan_parts.lifecycle.create(PlanDraft("g", "builtin/command", str(repository), {}))
    assert "status  cancelled" in agents("plan", "cancel", plan.id).out
    assert container.plan_parts.plans.get(plan.id).phase_state == (Phase.STRATEGIZE, PlanState.CANCELLED)
    assert agents("plan", "diff", plan.id).err == "no changes\n"


def test_the_exit_codes_of_a_result_that_is_left_to_its_user_are_those_of_the_help(agents: Agents) -> None:
    told = " ".join(agents("run", "--help").out.split())
    assert "elsewhere the exit code is 3. With --review there is no question, and the exit code is 0" in told
    assert agents(*REPLACE).code == 3
    ran = agents(*REPLACE, "--review")
    assert ran.code == 0
    assert "3 for a result to review" in " ".join(agents("plan", "watch", "--help").out.split())
    assert agents("plan", "watch", ran.id).code == 3
    assert "If a required check did not pass, the exit code is 3, also with --review." in told
    assert agents(*REPLACE, "--review", "--check", "false").code == 3


def test_unapplied_changes_are_not_deleted_unasked(agents: Agents) -> None:
    ran = agents(*REPLACE, "--review")
    kept = agents("plan", "delete", ran.id)
    assert (kept.code, "never applied" in kept.err) == (3, True)
    assert agents("plan", "delete", ran.id, typed="\n").code == 130
    assert agents("plan", "delete", ran.id, typed="y\n").code == 0
    assert agents("plan", "show", ran.id).code == 2
    other = agents(*REPLACE, "--review")
    assert agents("plan", "delete", other.id, "--yes").code == 0


def edited_by_hand(agents: Agents, plan_id: str) -> Path:
    """A file that somebody put into the plan's sandbox."""
    place = json.loads(agents("plan", "show", plan_id, "--format", "json").out)["sandbox"]
    mine = Path(place) / "mine.txt"
    mine.write_text("by hand\n")
    return mine


def test_edits_by_hand_are_not_deleted_nor_collected_unasked(agents: Agents) -> None:
    ran = agents("run", "--action", "builtin/command", "--", "true")
    mine = edited_by_hand(agents, ran.id)
    kept = agents("plan", "delete", ran.id)
    assert (kept.code, "unrecorded edits in mine.txt" in kept.err) == (3, True)
    agents("plan", "cancel", ran.id)
    collected = agents("gc", "--older-than", "0m").err
    assert f"plan {ran.id} keeps its sandbox: unrecorded edits in mine.txt" in collected
    assert agents("plan", "delete", ran.id).code == 3
    assert mine.exists()
    assert agents("plan", "delete", ran.id, "--yes").code == 0
    assert not mine.exists()


def test_a_rollback_asks_before_it_throws_edits_away_and_names_them(agents: Agents) -> None:
    ran = agents(*REPLACE, "--review")
    mine = edited_by_hand(agents, ran.id)
    refused = agents("plan", "rollback", ran.id, "1")
    assert refused.code == 3
    assert f"Discard the edits: agents plan rollback {ran.id} --yes 1" in refused.err
    assert agents("plan", "rollback", ran.id, "1", typed="n\n").code == 130
    assert mine.exists()
    assert agents("plan", "rollback", ran.id, "1", typed="y\n").code == 0
    assert not mine.exists()
    mine.write_text("again\n")
    thrown = agents("plan", "rollback", ran.id, "1", "--yes").err
    assert "discarded: unrecorded edits in the sandbox: mine.txt" in thrown
    assert not mine.exists()


def test_a_rollback_is_refused_if_the_plan_changed_during_the_question(
    agents: Agents, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = agents(*REPLACE, "--review")
    mine = edited_by_hand(agents, ran.id)
    plans, asked = container.plan_parts.plans, click.prompt

    def changed(*words: Any, **options: Any) -> Any:
        plan = plans.get(ran.id)
        plans.move(plan, plan.phase_state, now=container.clock.now())
        return asked(*words, **options)

    monkeypatch.setattr(click, "prompt", changed)
    for command in (("plan", "rollback", ran.id, "1"), ("plan", "rollback", "1")):
        refused = agents(*command, typed="y\ny\n")
        assert (refused.code, "no longer at version" in refused.err) == (75, True), refused.err
    assert mine.exists()


def test_gc_removes_the_sandboxes_of_ended_plans_only(agents: Agents) -> None:
    kept = agents(*REPLACE, "--review")
    over = agents(*REPLACE, "--review")
    agents("plan", "reject", over.id)
    dry = agents("gc", "--older-than", "0m", "--dry-run", "--format", "json")
    assert over.id in dry.out
    assert kept.id not in dry.out
    assert "would be removed" in dry.err
    assert "freed" in agents("gc", "--older-than", "0m").err
    nothing = agents("gc", "--older-than", "0m").err
    told = "nothing to remove: no sandbox of a plan that ended more than 0m ago"
    assert nothing == f"examining sandboxes …\n{told}\n"
    assert "ended more than 14d ago" in agents("gc", "--older-than", "2w").err
    assert agents("plan", "apply", kept.id).code == 0
    assert agents("gc", "--older-than", "1y").code == 2


def test_ignored_files_come_along_only_where_the_repository_is_trusted_in_that(
    agents: Agents, repository: Path
) -> None:
    (repository / ".gitignore").write_text(".env\n")
    (repository / ".env").write_text("PLACE=here\n")
    (repository / ".worktreeinclude").write_text(".env\n")
    command = ("run", "--review", "--action", "builtin/command", "--", "cat", ".env")
    assert agents(*command).code == 1
    assert agents("trust", "--yes").code == 0
    trusted = agents(*command)
    assert (trusted.code, "PLACE=here" in trusted.err) == (0, True)


def test_a_file_that_git_refuses_does_not_end_a_plan_for_good(agents: Agents, repository: Path) -> None:
    ran = agents("run", "--review", "--action", "builtin/command", "--", "touch", "GIT~1")
    assert ran.code == 1
    assert "GIT~1" in ran.err
    rolled = agents("plan", "rollback", ran.id, "1", "--yes")
    assert rolled.code == 0, rolled.err
    assert agents("plan", "diff", ran.id).out == ""
