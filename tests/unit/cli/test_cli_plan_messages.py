"""What a newcomer is told about plans: in time, once, and with what to do next."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.access.model.user import Role
from cleveragents.api.access import Access
from cleveragents.api.plans.hints import hints_of, looks_like_no_network
from cleveragents.app.container import Container
from cleveragents.cli import prompts
from cleveragents.config.loader import load_configuration
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.processes.bubblewrap import shared_probe
from tests.cli_bench import COMMAND, REPLACE, Agents, git, paint_shop, use_home

OTHER = ("run", "--action", "builtin/replace", "--arg", "pattern=other", "--arg", "replacement=o")
STEPS = """\
name: team/steps
execute:
  steps:
    - {tool: write, with: {path: a.txt, content: "a"}}
    - {tool: write, with: {path: b.txt, content: "b"}}
    - {name: say it, tool: command, with: {argv: [sh, -c, "echo it is said"]}}
"""


@pytest.fixture
def repository(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, state)
    # Who the tests are run by is nobody here.
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    root = paint_shop(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def container(repository: Path) -> Iterator[Container]:
    with Container(load_configuration(os.environ, repository).settings) as built:
        yield built


def plans_known(agents: Agents) -> str:
    return agents("plan", "list", "--here", "--format", "json").out


def regex(pattern: str, replacement: str) -> tuple[str, ...]:
    given = (f"pattern={pattern}", f"replacement={replacement}", "regex=true")
    return ("--action", "builtin/replace", *(word for pair in given for word in ("--arg", pair)))


# ── Before the start ──────────────────────────────────────────────────────────────────────────────


def test_a_commit_without_an_author_is_refused_first(agents: Agents, repository: Path) -> None:
    git(repository, "config", "--unset", "user.name")
    git(repository, "config", "--unset", "user.email")
    ran = agents(*REPLACE, "--yes", "--commit", "Spell it")
    assert (ran.code, "git config --global user.email" in ran.err) == (2, True)
    assert plans_known(agents) == "[]\n"
    plan = agents(*REPLACE)
    applied = agents("plan", "apply", plan.id, "--commit", "Spell it")
    assert (applied.code, "git has no user name and address" in applied.err) == (2, True)
    assert "ready" in agents("plan", "show", plan.id).out
    assert agents("plan", "apply", plan.id).code == 0
    undone = agents("plan", "undo", plan.id, "--commit", "Back")
    assert (undone.code, "git has no user name and address" in undone.err) == (2, True)
    assert "color" in (repository / "README.md").read_text()


def test_a_signed_commit_is_refused_first(agents: Agents, repository: Path) -> None:
    git(repository, "config", "commit.gpgSign", "true")
    ran = agents(*REPLACE, "--yes", "--commit", "Spell it")
    assert (ran.code, "then commit the changes yourself" in ran.err) == (2, True)
    assert plans_known(agents) == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--yes", "--review"), "not both"),
        ((), "missing goal"),
        (("--action", "builtin/command", "--profile", "nix", "--", "true"), "profile 'nix': does not exist"),
        (("--action", "builtin/command", "--arg", "timeout_seconds=-1", "--", "true"), "greater than 0"),
        (regex("(", "x"), "unterminated subpattern"),
        (regex("x", r"\2"), "invalid group reference 2"),
    ],
)
def test_an_invalid_request_is_reported_without_opening_the_database(
    agents: Agents,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.setenv("CLEVERAGENTS_STATE_DIRECTORY", str(tmp_path / "unopened"))
    wrong = agents("run", *arguments)
    assert (wrong.code, told in wrong.err) == (2, True), wrong.err
    assert not (tmp_path / "unopened").exists()


def test_a_step_that_may_fail_is_not_judged_beforehand(agents: Agents, tmp_path: Path) -> None:
    step = '{tool: grep, with: {pattern: "("}, continue_on_failure: true}'
    (tmp_path / "a.yaml").write_text(f"name: team/loose\nexecute: {{steps: [{step}]}}\n")
    assert agents("action", "create", str(tmp_path / "a.yaml")).code == 0
    assert agents("run", "--action", "team/loose").code == 0
    strict = step.replace(", continue_on_failure: true", "")
    (tmp_path / "a.yaml").write_text(f"name: team/strict\nexecute: {{steps: [{strict}]}}\n")
    assert agents("action", "create", str(tmp_path / "a.yaml")).code == 0
    assert agents("run", "--action", "team/strict").code == 2


# ── While it runs ─────────────────────────────────────────────────────────────────────────────────


def test_a_step_is_announced_once_despite_several_approvals(agents: Agents, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(STEPS)
    assert agents("action", "create", str(tmp_path / "a.yaml")).code == 0
    ran = agents("run", "--action", "team/steps", "--profile", "manual", typed="y\ny\ny\nn\n")
    assert ran.code == 0, ran.err
    assert [ran.err.count(f"step {number} of 3: ") for number in (1, 2, 3)] == [1, 1, 1], ran.err
    assert ran.err.count("  it is said\n") == 1


def test_a_foreground_worker_takes_no_job_after_a_question(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say again what was said before."""
    at_work: list[list[str]] = []

    def answered(_: str) -> str:
        at_work.append([one.name for one in threading.enumerate() if one.name.startswith("run-")])
        return "y" if len(at_work) == 1 else "n"

    monkeypatch.setattr(prompts, "read_key", answered)
    ran = agents(*REPLACE, "--profile", "manual", typed="nobody reads this\n")
    assert (ran.code, at_work) == (0, [[], []]), ran.err


needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason="nothing is cut off without bubblewrap"
)
NOT_RESOLVED = "echo curl: Could not resolve host: example.org; exit 6"


@needs_bubblewrap
@pytest.mark.parametrize(
    "arguments",
    [(*COMMAND, "sh", "-c", NOT_RESOLVED), (*REPLACE, "--check", NOT_RESOLVED)],
    ids=["a command", "a check"],
)
def test_a_missing_network_names_profiles_that_allow_it(agents: Agents, arguments: tuple[str, ...]) -> None:
    allowing = "the profile trusted or full-auto"
    ran = agents(*arguments)
    assert ran.code != 0
    assert f"no network under the profile supervised; to allow the network, run it with {allowing}" in ran.err
    allowed = agents(arguments[0], "--profile", "trusted", *arguments[1:])
    assert allowed.code != 0
    assert "hint:" not in allowed.err


@needs_bubblewrap
@pytest.mark.parametrize("kind", ["a check", "a command", "a script"])
def test_a_program_that_isolation_hides_is_named_with_the_remedy(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    program = tmp_path / "tool" / "bin" / "lint"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    commands = {
        "a check": (*REPLACE, "--check", f"{program} ."),
        "a command": (*COMMAND, "timeout", "5", str(program)),
        "a script": (*COMMAND, "sh", "-c", f"{program} ."),
    }
    said = f"hint: {program} exists, but isolated commands see only the system directories"
    ran = agents(*commands[kind])
    assert (ran.code != 0, said in ran.err) == (True, True), ran.err
    assert f"add {program.parent} to PATH" in ran.err
    assert "exists" not in json.dumps([one["details"] for one in checks_of(agents, ran.id)])
    with Container(load_configuration(os.environ, Path.cwd()).settings) as container:
        user = container.users.add(f"ada-{kind[2:]}", Role.ADMIN, now=container.clock.now())
        plan = container.plan_parts.plans.get(ran.id)
        assert hints_of(Access(container, user), plan) == []  # a user of a server
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert "hint:" not in agents(*commands[kind]).err
    program.unlink()
    assert "hint:" not in agents(*commands[kind]).err


def checks_of(agents: Agents, plan: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(agents("plan", "show", plan, "--format", "json").out)["checks"]
    return found


@needs_bubblewrap
def test_an_action_that_allows_no_network_is_named_for_it(agents: Agents, tmp_path: Path) -> None:
    step = f"{{tool: command, with: {{script: '{NOT_RESOLVED}'}}}}"
    (tmp_path / "a.yaml").write_text(f"name: team/shut\nprofile: ci\nexecute: {{steps: [{step}]}}\n")
    assert agents("action", "create", str(tmp_path / "a.yaml")).code == 0
    ran = agents("run", "--action", "team/shut")
    assert (ran.code, "the action's own profile, ci, denies the network" in ran.err) == (1, True)


def test_other_failures_give_no_network_hint(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "hint:" not in agents(*COMMAND, "sh", "-c", "echo wrong; exit 6").err
    monkeypatch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
    assert "hint:" not in agents(*COMMAND, "sh", "-c", NOT_RESOLVED).err


@pytest.mark.parametrize(
    "output",
    [
        "fatal: unable to access 'https://example.org/': Could not resolve host: example.org",
        "[Errno -3] Temporary failure in name resolution",
        "connect: Network is unreachable",
        "npm ERR! getaddrinfo EAI_AGAIN registry.npmjs.org",
        "dial tcp: lookup proxy.golang.org: no such host",
    ],
)
def test_network_errors_of_programs_are_recognized(output: str) -> None:
    assert looks_like_no_network(output)
    assert not looks_like_no_network("resolved 3 conflicts in network.py")


def test_a_step_without_a_name_is_spelt_as_it_would_be_typed(agents: Agents) -> None:
    ran = agents(*COMMAND, "sh", "-c", "exit 3")
    assert "step 1 of 1: command sh -c 'exit 3'\n" in ran.err
    assert """step "command sh -c 'exit 3'" ended with exit code 3""" in ran.err


def test_a_cancel_reports_its_progress(agents: Agents, container: Container, repository: Path) -> None:
    request = {"arguments": {}, "profile": "supervised"}
    made = container.plan_parts.lifecycle.create(
        PlanDraft("wait", "builtin/command", str(repository), request)
    )
    cancelled = agents("plan", "cancel", made.id)
    assert (cancelled.code, f"stopping plan {made.id}" in cancelled.err) == (0, True)
    assert "stopping" not in agents("plan", "cancel", made.id).err


# ── Afterwards ────────────────────────────────────────────────────────────────────────────────────


def test_an_undo_reports_that_the_commit_stays(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--yes", "--commit", "Spell it")
    commit = git(repository, "rev-parse", "HEAD").strip()
    undone = agents("plan", "undo", ran.id)
    assert undone.code == 0
    assert f"commit {commit} stays in the history; only your files changed" in undone.err
    git(repository, "checkout", "--", ".")
    again = agents("run", "--action", "builtin/replace", "--arg", "pattern=color", "--arg", "replacement=hue")
    assert agents("plan", "apply", again.id, "--commit", "Another").code == 0
    commit = git(repository, "rev-parse", "HEAD").strip()
    undone = agents("plan", "undo", again.id, "--commit", "Back")
    assert undone.err.endswith(f"commit {commit} stays in the history\n"), undone.err
    uncommitted = agents(*OTHER)
    assert agents("plan", "apply", uncommitted.id).code == 0
    assert "stays in the history" not in agents("plan", "undo", uncommitted.id).err


def test_an_undo_of_restored_files_changes_nothing(agents: Agents, repository: Path) -> None:
    ran = agents(*REPLACE, "--yes", "--commit", "Spell it")
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    undone = agents("plan", "undo", ran.id)
    assert (undone.code, "status  undone" in undone.out) == (0, True)
    assert undone.err.endswith("your files no longer contain the result; nothing changed\n"), undone.err
    assert git(repository, "status", "--short") == ""
    assert agents("plan", "undo", ran.id).code == 2


def test_gc_names_lost_actions_and_they_are_not_offered_afterwards(agents: Agents, repository: Path) -> None:
    applied = agents(*REPLACE, "--yes", "--commit", "Spell it")
    commit = git(repository, "rev-parse", "HEAD").strip()
    rejected = agents(*OTHER)
    assert agents("plan", "reject", rejected.id).code == 0
    assert f"agents plan undo {applied.id}" in agents("plan", "show", applied.id).out
    dry = agents("gc", "--older-than", "0m", "--dry-run")
    assert f"{applied.id}  applied" in dry.out
    assert "undo or diff" in dry.out
    assert "could no longer be undone" in dry.err
    assert "removing" not in dry.err
    done = agents("gc", "--older-than", "0m")
    removed = "removing the sandbox of plan"
    assert f"{removed} {applied.id} (applied); afterwards, undo or diff is no longer possible" in done.err
    assert f"{removed} {rejected.id} (discarded); afterwards, diff is no longer possible" in done.err
    assert "can no longer be undone" in done.err
    shown = agents("plan", "show", applied.id).out
    assert "removed; diff and undo are no longer possible" in shown
    assert "agents plan" not in shown
    undo = agents("plan", "undo", applied.id)
    assert (undo.code, f"`git revert {commit}`" in undo.err) == (2, True)
    for form in ("plain", "json"):
        diff = agents("plan", "diff", applied.id, "--format", form)
        assert (diff.code, diff.out, "can no longer be shown" in diff.err) == (2, "", True)
    assert agents("plan", "log", applied.id).code == 0


def test_a_plan_without_changes_is_shown_as_such_after_gc(agents: Agents) -> None:
    ran = agents(*COMMAND, "true")
    assert agents("gc", "--older-than", "0m").code == 0
    diff = agents("plan", "diff", ran.id)
    assert (diff.code, "no changes" in diff.err) == (0, True)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_plan_with_a_missing_repository_names_next_steps(
    agents: Agents, repository: Path, emptied: bool
) -> None:
    plan = agents(*REPLACE)
    away = repository.with_name("away")
    os.chdir("/")
    repository.rename(away)
    if emptied:
        repository.mkdir()  # as an unmounted disk leaves it
    for command in (("apply", "--commit", "x"), ("diff",), ("rollback", "1"), ("reread",), ("review", "a")):
        refused = agents("plan", command[0], plan.id, *command[1:])
        assert (refused.code, "agents doctor" in refused.err) == (3, True), command
        assert f"{repository} is out of reach" in refused.err
    shown = agents("plan", "show", plan.id)
    assert (shown.code, "out of reach; see `agents doctor`" in shown.out) == (0, True)
    told = json.loads(agents("plan", "show", plan.id, "--format", "json").out)
    assert (told["id"], told["out_of_reach"]) == (plan.id, str(repository))
    if emptied:
        repository.rmdir()
    away.rename(repository)
    assert agents("plan", "apply", plan.id).code == 0
    repository.rename(away)
    undo = agents("plan", "undo", plan.id)
    assert (undo.code, "is out of reach" in undo.err) == (3, True)


def test_a_plan_with_a_missing_repository_shows_its_reason(agents: Agents, repository: Path) -> None:
    waits = agents(*REPLACE, "--profile", "manual")
    failed = agents(*COMMAND, "false")
    os.chdir("/")
    repository.rename(repository.with_name("away"))
    for command in (("approve", waits.id), ("deny", waits.id), ("resume", failed.id)):
        refused = agents("plan", *command)
        assert (refused.code, "is out of reach" in refused.err) == (3, True), command
