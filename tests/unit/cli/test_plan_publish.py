"""`agents plan publish`: a branch on the remote, and a pull request with the program of the forge."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from cleveragents import connect
from cleveragents.api.publish import PublishView, web_address
from cleveragents.cli.plan.publish import _command, _environment, _opened
from cleveragents.core.errors import PlanError, ResultChanged, StalePlan
from cleveragents.plans.apply import PlanApply
from tests.cli_bench import REPLACE, Agents, git

pytestmark = pytest.mark.usefixtures("commands_are_forked")
GITHUB = "https://me:secret@github.com/team/shop.git"


@pytest.fixture
def remote(tmp_path: Path, repository: Path) -> Path:
    """A bare repository that stands for a remote at GitHub; its default branch is `main`."""
    bare = tmp_path / "remote.git"
    git(repository, "branch", "-M", "main")
    git(tmp_path, "init", "-q", "--bare", "--initial-branch=main", str(bare))
    git(repository, "config", f"url.{bare}.insteadOf", GITHUB)
    git(repository, "remote", "add", "origin", GITHUB)
    git(repository, "push", "-q", "origin", "main")
    return bare


def stub(directory: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program on PATH, before all others."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_a_result_is_pushed_and_a_pull_request_opened(
    agents: Agents, repository: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = agents(*REPLACE, "--review").id
    (repository / "mine.txt").write_text("My own work.\n")
    said = tmp_path / "said"
    script = f'pwd > {said}; printf "%s\\n" "$@" >> {said}; echo https://github.com/p/7'
    stub(tmp_path / "bin", "gh", script, monkeypatch)
    ended = agents("plan", "publish", "--format", "json")
    assert ended.code == 0, ended.err
    made, branch = json.loads(ended.out), f"agents/{plan}"
    assert (made["branch"], made["base"], made["pull_request"]) == (branch, "main", "https://github.com/p/7")
    assert "secret" not in ended.out + ended.err
    assert git(remote, "show", f"{branch}:README.md") == "The color of it.\n"
    assert git(remote, "rev-parse", f"{branch}^") == git(repository, "rev-parse", "main")
    assert f"CleverAgents-Plan: {plan}" in git(remote, "log", "-1", "--format=%B", branch)
    assert said.read_text().splitlines()[:9] == [
        *(str(repository), "pr", "create", "--head", branch, "--base", "main", "--title"),
        "Replace: pattern=colour replacement=color",
    ]
    # Nothing of the user changed, and the plan stays ready.
    assert git(repository, "status", "--short") == "?? mine.txt\n"
    assert git(repository, "branch", "--format=%(refname:short)") == "main\n"
    assert "status     ready" in agents("plan", "show", plan).out
    assert "plan.published" in agents("events", "tail").out


@pytest.mark.parametrize("committed", [False, True])
def test_an_applied_plan_is_published_with_git(
    agents: Agents, repository: Path, remote: Path, committed: bool
) -> None:
    plan = agents(*REPLACE, "--review").id
    assert agents("plan", "apply", plan, *(["--commit", "Paint"] if committed else [])).code == 0
    refused = agents("plan", "publish", plan)
    said = " ".join(refused.err.split())
    assert (refused.code, "plan undo" in said) == (2, False)
    how = "push that commit" if committed else "commit them on a new branch and push it with git"
    assert "cannot publish: already applied" in said
    assert how in said


def test_a_plain_directory_is_not_published(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "README.md").write_text("The colour of it.\n")
    monkeypatch.chdir(plain)
    plan = agents(*REPLACE, "--review").id
    refused = agents("plan", "publish", plan)
    assert (refused.code, "--commit" in refused.err) == (2, False)
    assert f"cannot publish: {plain} is not a git repository" in " ".join(refused.err.split())


def test_a_second_publish_updates_the_branch_and_no_other_branch_is_written(
    agents: Agents, repository: Path, remote: Path
) -> None:
    plan = agents(*REPLACE, "--review").id
    assert "published" not in agents("plan", "show", plan).out
    first = agents("plan", "publish", plan, "--no-pull-request")
    assert (first.code, "pull request" in first.err) == (0, False)
    pushed = git(remote, "rev-parse", f"agents/{plan}").strip()
    assert f"branch agents/{plan} of origin, commit {pushed}" in agents("plan", "show", plan).out
    same = agents("plan", "publish", plan, "--no-pull-request")
    assert (same.code, f"branch agents/{plan} of " in same.err) == (0, True)
    assert "already has this result\n" in same.err
    assert git(remote, "rev-parse", f"agents/{plan}").strip() == pushed
    again = agents("plan", "publish", plan, "--message", "In my words", "--no-pull-request")
    assert again.code == 0, again.err
    assert git(remote, "log", "-1", "--format=%s", f"agents/{plan}") == "In my words\n"
    assert json.loads(agents("plan", "show", plan, "--format", "json").out)["published"] == {
        "branch": f"agents/{plan}",
        "remote": "origin",
        "commit": git(remote, "rev-parse", f"agents/{plan}").strip(),
    }
    git(repository, "push", "-q", "origin", "main:theirs")
    for branch, why in {
        "main": "is the default branch of origin",
        "theirs": "already has the branch",
    }.items():
        refused = agents("plan", "publish", plan, "--branch", branch)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert agents("plan", "publish", plan, "--branch", "-x").code == 2
    heads = git(remote, "rev-parse", "main", "theirs").split()
    assert heads == [git(repository, "rev-parse", "main").strip()] * 2


def test_a_branch_is_unchanged_only_if_git_could_read_it(
    agents: Agents, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = agents(*REPLACE, "--review").id
    assert agents("plan", "publish", plan, "--no-pull-request").code == 0
    monkeypatch.setattr("cleveragents.api.publish._Git.content", lambda git, commit: [])
    again = agents("plan", "publish", plan, "--message", "In my words", "--no-pull-request")
    assert (again.code, "already has" in again.err) == (0, False)
    assert git(remote, "log", "-1", "--format=%s", f"agents/{plan}") == "In my words\n"


def test_an_amended_commit_of_a_teammate_is_never_overwritten(
    agents: Agents, repository: Path, remote: Path, tmp_path: Path
) -> None:
    plan = agents(*REPLACE, "--review").id
    assert agents("plan", "publish", plan, "--no-pull-request").code == 0
    theirs = tmp_path / "theirs"
    git(tmp_path, "clone", "-q", "-b", f"agents/{plan}", str(remote), str(theirs))
    (theirs / "fix.txt").write_text("A fix.\n")
    git(theirs, "add", "-A")
    git(theirs, "commit", "-q", "--amend", "--no-edit")
    git(theirs, "push", "-qf", "origin", f"agents/{plan}")
    git(repository, "fetch", "-q")
    refused = agents("plan", "publish", plan, "--no-pull-request")
    assert refused.code == 2
    assert "with a commit that this plan did not publish; choose another name" in refused.err
    assert git(remote, "show", f"agents/{plan}:fix.txt") == "A fix.\n"
    assert agents("plan", "publish", plan, "--branch", "again", "--no-pull-request").code == 0
    assert agents("plan", "publish", plan, "--branch", "again", "--no-pull-request").code == 0


def test_no_tag_is_pushed_with_a_result(agents: Agents, repository: Path, remote: Path) -> None:
    git(repository, "config", "push.followTags", "true")
    git(repository, "tag", "-a", "v1", "-m", "Mine.")
    assert agents(*REPLACE, "--review").code == 0
    assert agents("plan", "publish", "--no-pull-request").code == 0
    assert git(remote, "tag") == ""


def test_commits_that_were_never_pushed_are_named_before_they_are_pushed(
    agents: Agents, repository: Path, remote: Path
) -> None:
    (repository / "wip.txt").write_text("Work in progress.\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "WIP do not push")
    plan = agents(*REPLACE, "--review").id
    refused = agents("plan", "publish", plan, "--no-pull-request")
    assert refused.code == 3
    assert "origin does not have 1 commit of yours (" in refused.err
    assert "WIP do not push)" in refused.err
    assert f"agents plan publish {plan} --with-commits" in refused.err
    assert agents("plan", "publish", plan, "--no-pull-request", typed="n\n").code == 130
    assert git(remote, "branch", "--format=%(refname:short)") == "main\n"
    assert agents("plan", "publish", plan, "--no-pull-request", typed="y\n").code == 0
    assert git(remote, "show", f"agents/{plan}:wip.txt") == "Work in progress.\n"
    named = agents("plan", "publish", plan, "--branch", "b", "--no-pull-request", "--with-commits")
    assert named.code == 0


@pytest.mark.parametrize("change", ["commit", "result"])
def test_only_what_was_confirmed_is_published(
    agents: Agents, repository: Path, remote: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    commit(repository, "wip.txt")
    plan = agents(*REPLACE, "--review").id

    def answered(question: str, **_: Any) -> str:
        assert "1 commit of yours" in question
        if change == "commit":
            commit(repository, "secret.txt")
        else:
            with connect() as client:
                client.plans.review(plan, reject=["README.md"])
        return "y"

    monkeypatch.setattr(click, "prompt", answered)
    ended = agents("plan", "publish", plan, "--no-pull-request", typed="")
    branches = git(remote, "branch", "--format=%(refname:short)").split()
    if change == "commit":
        assert ended.code == 0, ended.err
        assert "wip.txt" in git(remote, "ls-tree", "--name-only", f"agents/{plan}").split()
        assert "secret.txt" not in git(remote, "ls-tree", "--name-only", f"agents/{plan}").split()
    else:
        assert (ended.code, branches) == (3, ["main"])
        assert "has changed since you saw it" in " ".join(ended.err.split())
        assert f"agents plan diff {plan}" in ended.err


@pytest.mark.parametrize("action", ["apply", "discard"])
@pytest.mark.parametrize("options", [(), ("--with-commits",)])
def test_a_plan_that_ends_before_the_push_is_not_published(
    agents: Agents,
    repository: Path,
    remote: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    options: tuple[str, ...],
) -> None:
    commit(repository, "wip.txt")
    plan = agents(*REPLACE, "--review").id
    objects = git(remote, "count-objects", "-v")

    def end() -> None:
        with connect() as client:
            getattr(client.plans, action)(plan)

    def answered(_question: str, **_: Any) -> str:
        end()
        return "y"

    if options:  # no question: the plan ends after the commit is made
        made = PlanApply.commit_apart

        def ended_meanwhile(self: PlanApply, *given: Any) -> str:
            end()
            return made(self, *given)

        monkeypatch.setattr(PlanApply, "commit_apart", ended_meanwhile)
    monkeypatch.setattr(click, "prompt", answered)
    ended = agents("plan", "publish", plan, "--no-pull-request", *options, typed="")
    assert ended.code != 0, ended.err
    assert git(remote, "branch", "--format=%(refname:short)").split() == ["main"]
    assert git(remote, "count-objects", "-v") == objects


@pytest.mark.parametrize("change", ["apply", "discard", "review"])
@pytest.mark.parametrize("before", [(), ("Before",)])
def test_a_plan_that_changes_during_the_push_does_not_wait_and_is_not_published(
    agents: Agents, remote: Path, tmp_path: Path, change: str, before: tuple[str, ...]
) -> None:
    plan = agents(*REPLACE, "--review").id
    branches = {"main": git(remote, "rev-parse", "main")}
    with connect() as client, ThreadPoolExecutor(1) as pool:
        for message in before:
            client.plans.publish(plan, message=message)
            branches[f"agents/{plan}"] = git(remote, "rev-parse", f"agents/{plan}")
        with held_push(remote, tmp_path):
            pushing = pool.submit(client.plans.publish, plan)
            (tmp_path / "begun").read_text()
            reject = {"reject": ["README.md"]} if change == "review" else {}
            getattr(client.plans, change)(plan, **reject)
        with pytest.raises(ResultChanged if change == "review" else StalePlan):
            pushing.result()
    names = git(remote, "branch", "--format=%(refname:short)").split()
    assert {name: git(remote, "rev-parse", name) for name in names} == branches


def test_a_branch_that_cannot_be_restored_is_named(agents: Agents, remote: Path, tmp_path: Path) -> None:
    git(remote, "config", "receive.denyDeletes", "true")
    plan = agents(*REPLACE, "--review").id
    with connect() as client, ThreadPoolExecutor(1) as pool:
        with held_push(remote, tmp_path):
            pushing = pool.submit(client.plans.publish, plan)
            (tmp_path / "begun").read_text()
            client.plans.discard(plan)
        kept = f"the branch agents/{plan} of origin keeps its earlier result: cannot publish: git push failed"
        with pytest.raises(PlanError, match=kept):
            pushing.result()
    assert git(remote, "branch", "--format=%(refname:short)").split() == [f"agents/{plan}", "main"]


@contextmanager
def held_push(remote: Path, tmp_path: Path) -> Iterator[None]:
    """Hold the next push to the remote until the end of the block. The pipe `begun` tells when it began."""
    begun, go, once = tmp_path / "begun", tmp_path / "go", tmp_path / "once"
    os.mkfifo(begun)
    os.mkfifo(go)
    hook = remote / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nmkdir {once} 2>/dev/null || exit 0\necho > {begun}\ncat {go}\n")
    hook.chmod(0o755)
    try:
        yield
    finally:
        go.write_text("")


def commit(repository: Path, name: str) -> None:
    (repository / name).write_text("Mine.\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", f"Add {name}")


def test_without_the_program_or_after_its_failure_the_page_is_printed(
    agents: Agents, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = agents(*REPLACE, "--review").id
    stub(tmp_path / "bin", "gh", "echo not logged in >&2; exit 4", monkeypatch)
    ended = agents("plan", "publish", plan)
    assert ended.code == 0
    assert "gh failed: not logged in\n" in ended.err
    assert f"https://github.com/team/shop/compare/main...agents/{plan}?expand=1" in ended.err


def test_a_repository_without_a_usable_remote_is_refused(
    agents: Agents, repository: Path, tmp_path: Path
) -> None:
    plan = agents(*REPLACE, "--review").id
    assert "the repository has no remote; run `git remote add" in agents("plan", "publish", plan).err
    git(tmp_path, "init", "-q", "--bare", str(tmp_path / "empty.git"))
    git(repository, "remote", "add", "origin", str(tmp_path / "empty.git"))
    assert "has no default branch: its HEAD names no existing branch" in agents("plan", "publish", plan).err
    assert (
        "has no remote 'nope'; run `git remote add nope URL`"
        in agents("plan", "publish", plan, "--remote", "nope").err
    )
    git(repository, "remote", "set-url", "origin", f"ext::sh -c touch% {tmp_path}/run")
    refused = agents("plan", "publish", plan)
    assert (refused.code, "git ls-remote failed" in refused.err) == (2, True), refused.err
    assert not (tmp_path / "run").exists()


def test_a_result_that_failed_its_check_or_depends_on_uncommitted_work_is_refused(
    agents: Agents, repository: Path, remote: Path
) -> None:
    agents(*REPLACE, "--review", "--check", "false")
    refused = agents("plan", "publish")
    assert (refused.code != 0, "did not pass" in refused.err) == (True, True)
    agents("plan", "discard")
    (repository / "README.md").write_text("A new colour.\nAnd more.\n")
    plan = agents(*REPLACE, "--review").id
    refused = agents("plan", "publish", plan)
    assert refused.code != 0
    assert "uncommitted changes (README.md)" in refused.err
    assert git(remote, "branch", "--format=%(refname:short)") == "main\n"


def test_a_merged_result_that_no_check_has_seen_is_not_published(
    agents: Agents, repository: Path, remote: Path
) -> None:
    plan = agents(*REPLACE, "--review", "--check", "test ! -e blocker").id
    (repository / "notes.txt").write_text("Uncommitted, and not published.\n")
    assert agents("plan", "publish", plan, "--no-pull-request").code == 0
    (repository / "blocker").write_text("")
    git(repository, "add", "blocker")
    git(repository, "commit", "-qm", "Block")
    git(repository, "push", "-q", "origin", "main")
    refused = agents("plan", "publish", plan, "--branch", "later", "--no-pull-request")
    assert refused.code == 2, refused.err
    assert "the repository has changed since the checks passed" in refused.err
    assert f"agents plan rebase {plan}" in refused.err
    assert "later" not in git(remote, "branch")
    git(repository, "rm", "-q", "blocker")
    (repository / "other").write_text("")
    git(repository, "add", "other")
    git(repository, "commit", "-qm", "Unblock")
    git(repository, "push", "-q", "origin", "main")
    assert agents("plan", "rebase", plan).code in (0, 3)
    later = ("plan", "publish", plan, "--branch", "later", "--no-pull-request")
    asked = agents(*later, typed="y\n")  # the rebase has brought the uncommitted notes
    assert (asked.code, "Push the result nevertheless?" in asked.err) == (0, True), asked.err


def test_a_publish_that_was_pushed_but_not_recorded_can_be_repeated(
    agents: Agents, repository: Path, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a time limit, or the death of the process, between the push and the record of it."""
    plan = agents(*REPLACE, "--review").id
    with monkeypatch.context() as patch:
        fails = 'case " $* " in *" push "*) exit 1;; esac'
        stub(tmp_path / "bin", "git", f'{shutil.which("git")} "$@" || exit; {fails}', patch)
        assert "git push failed" in agents("plan", "publish", plan, "--no-pull-request").err
    pushed = git(remote, "rev-parse", f"agents/{plan}")
    again = agents("plan", "publish", plan, "--no-pull-request")
    assert (again.code, "already has this result" in again.err) == (0, True), again.err
    assert git(remote, "rev-parse", f"agents/{plan}") == pushed
    changed = agents("plan", "publish", plan, "--message", "In my words", "--no-pull-request")
    assert changed.code == 0, changed.err


def test_commits_that_only_the_fetched_repository_has_are_not_pushed_to_another_one(
    agents: Agents, repository: Path, remote: Path, tmp_path: Path
) -> None:
    fork = tmp_path / "fork.git"
    git(tmp_path, "clone", "-q", "--bare", str(remote), str(fork))
    git(repository, "commit", "-q", "--allow-empty", "-m", "Private")
    git(repository, "push", "-q", "origin", "main")
    git(repository, "remote", "set-url", "--push", "origin", str(fork))
    plan = agents(*REPLACE, "--review").id
    refused = agents("plan", "publish", plan, "--no-pull-request")
    assert refused.code == 3, refused.err
    assert "origin does not have 1 commit of yours (" in refused.err
    assert git(fork, "branch", "--format=%(refname:short)") == "main\n"
    assert agents("plan", "publish", plan, "--no-pull-request", "--with-commits").code == 0
    assert "Private" in git(fork, "log", "--format=%s", f"agents/{plan}")


def test_a_result_whose_checks_need_uncommitted_files_is_not_published(
    agents: Agents, repository: Path, remote: Path
) -> None:
    (repository / "helper.py").write_text("needed by the check\n")
    plan = agents(*REPLACE, "--review", "--check", "test -e helper.py").id
    refused = agents("plan", "publish", plan, "--no-pull-request")
    assert refused.code == 3, refused.err
    assert "commit your changes, then publish again" in refused.err
    assert git(remote, "branch", "--format=%(refname:short)") == "main\n"
    git(repository, "add", "helper.py")
    git(repository, "commit", "-qm", "Help")
    published = agents("plan", "publish", plan, "--no-pull-request", "--with-commits")
    assert published.code == 0, published.err
    assert git(remote, "show", f"agents/{plan}:helper.py") == "needed by the check\n"


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("git@github.com:o/r.git", "https://github.com/o/r/compare/main...a/b?expand=1"),
        ("ssh://git@codeberg.org:22/o/r", "https://codeberg.org/o/r/compare/main...a/b"),
        (
            "https://gitlab.example/g/s/r.git",
            "https://gitlab.example/g/s/r/-/merge_requests/new?merge_request%5Bsource_branch%5D=a%2Fb",
        ),
        ("/srv/shop.git", None),
        ("file:///srv/shop.git", None),
    ],
)
def test_the_page_of_a_pull_request_is_known_for_forges(url: str, page: str | None) -> None:
    assert web_address(url, "main", "a/b") == page


@pytest.mark.parametrize(
    ("remote", "in_repository", "command"),
    [
        ("https://github.com/team/shop.git", True, "gh pr create --head"),
        ("git@github.com:team/shop.git", False, "gh pr create --repo github.com/team/shop --head"),
        (
            "https://gitlab.example/a/b",
            False,
            "glab mr create --repo https://gitlab.example/a/b --source-branch",
        ),
        ("https://codeberg.org/a/b", True, "tea pulls create --head"),
        ("https://codeberg.org/a/b", False, None),
        ("/srv/shop.git", True, None),
    ],
)
def test_outside_its_directory_the_repository_is_named_to_the_program(
    remote: str, in_repository: bool, command: str | None
) -> None:
    found = _command(published_at(remote), in_repository=in_repository)
    assert (found is None) if command is None else " ".join(found or []).startswith(command)


def published_at(remote: str) -> PublishView:
    return PublishView(
        plan="01A",
        remote=remote,
        base="main",
        branch="agents/01A",
        commit="9f2b",
        title="Add it",
        body="",
        url=web_address(remote, "main", "agents/01A"),
    )


@pytest.mark.parametrize(
    ("remote", "terminal", "answer", "calls", "asked"),
    [
        ("https://github.com/a/b", True, True, ["pr secret"], ["github.com/a/b with gh"]),
        ("https://github.com/a/b", True, False, [], ["github.com/a/b with gh"]),
        ("https://github.com/a/b", False, True, [], []),
        ("https://gitlab.com/a/b", True, True, ["mr secret"], ["gitlab.com/a/b with glab"]),
        ("https://gitlab.work/a/b", True, True, ["auth ", "mr "], ["gitlab.work/a/b with glab"]),
        ("https://gitlab.evil/a/b", True, True, ["auth "], []),
        ("https://github.com.evil/a/b", True, True, ["auth "], []),
        ("https://github.com/a/b c", True, True, [], []),
    ],
)
def test_a_server_does_not_choose_where_the_login_of_the_user_is_used(
    remote: str,
    terminal: bool,
    answer: bool,
    calls: list[str],
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stub of each program is logged in to `.work` only, and records the token that it received."""
    said = tmp_path / "said"
    said.touch()
    for name, variable in {"gh": "GH_TOKEN", "glab": "GITLAB_TOKEN"}.items():
        monkeypatch.setenv(variable, "secret")
        script = f'echo "$1 ${variable}" >> {said}\ncase "$3" in *.evil) exit 1;; esac\necho https://x/1'
        stub(tmp_path / "bin", name, script, monkeypatch)
    questions: list[str] = []

    def confirm(question: str) -> bool:
        questions.append(question)
        return answer

    monkeypatch.setattr("cleveragents.cli.plan.work.interactive", lambda: terminal)
    monkeypatch.setattr("cleveragents.cli.plan.publish.confirmed", confirm)
    assert _opened(published_at(remote), None) == (
        "https://x/1" if calls and not calls[-1].startswith("auth") else None
    )
    assert said.read_text().splitlines() == calls
    assert questions == [f"Open a pull request in {one}?" for one in asked]


def test_a_token_of_another_gitlab_is_not_sent_to_gitlab_com(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITLAB_TOKEN", "secret")
    monkeypatch.setenv("GITLAB_HOST", "gitlab.work")
    assert "GITLAB_TOKEN" not in _environment("gitlab.com")
    monkeypatch.delenv("GITLAB_HOST")
    assert _environment("gitlab.com")["GITLAB_TOKEN"] == "secret"
