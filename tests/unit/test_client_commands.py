"""Commands through a server do, say and exit as the same commands do where none is between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli_bench import Ended, command_line, git
from tests.client_bench import Served, interrupt, served
from tests.remotes import new_remote
from tests.server_plan_bench import until

REPLACE = ("--action", "builtin/replace", "--arg", "pattern=colour", "--arg", "replacement=color")
SLOW = ("sh", "-c", "echo begun; sleep 99")
Ask = Callable[..., Ended]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("client")) as made:
        yield made


@pytest.fixture(autouse=True)
def as_committed(bench: Served) -> None:
    git(bench.repository, "checkout", "-fq", ".")


@pytest.fixture
def agents(
    bench: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Ask]:
    """A command line of somebody elsewhere, or at the server itself: `on_server`."""
    monkeypatch.chdir(bench.repository)
    with command_line(monkeypatch, capfd) as run:

        def ask(*arguments: str, on_server: bool = False, typed: str | None = None) -> Ended:
            for name, value in bench.environment(on_server=on_server).items():
                monkeypatch.setenv(name, value)
            return run(*arguments, typed=typed)

        yield ask


@pytest.fixture
def asked(bench: Served, agents: Ask, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """A command of an admin through the server."""
    log_in(bench, agents, monkeypatch, "admin")
    return lambda *arguments, typed=None: agents("--server", bench.url, *arguments, typed=typed)


def log_in(bench: Served, agents: Ask, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    from cleveragents.interfaces.cli.client.logins import keep_token, logins_file

    keep_token(logins_file({"HOME": str(bench.home)}), bench.url, bench.token(user))


def written(bench: Served) -> str:
    return (bench.repository / "README.md").read_text()


def made(asked: Ask, *more: str) -> dict[str, Any]:
    ended = asked("run", *REPLACE, "--review", "--format", "json", *more)
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out))


def test_every_reading_command_gives_the_same_json(bench: Served, agents: Ask, asked: Ask) -> None:
    plan = made(asked)["id"]
    commands = [
        ("plan", "list"),
        ("plan", "list", "--all", "--limit", "1"),
        ("plan", "list", "--state", "complete"),
        ("plan", "list", "--after", "0"),
        ("plan", "show", plan),
        ("plan", "log", plan),
        ("plan", "log", plan, "1"),
        ("plan", "tree", plan, "--all"),
        ("plan", "diff", plan),
        ("plan", "diff", plan, "src"),
        ("plan", "watch", plan),
        ("jobs", "list"),
        ("jobs", "list", "--limit", "1"),
        ("events", "tail", "--limit", "5"),
        ("events", "tail", "--after", "2", "--limit", "3", "--type", "plan.moved"),
        ("events", "verify"),
        ("project", "list"),
        ("resource", "list"),
        ("action", "show", "builtin/replace"),
        ("user", "list"),
    ]
    for words in commands:
        here = agents(*words, "--format", "json", on_server=True)
        there = asked(*words, "--format", "json")
        assert (there.code, json.loads(there.out)) == (here.code, json.loads(here.out)), words
    job = json.loads(asked("jobs", "list", "--format", "json").out)[0]["id"]
    for words in [("jobs", "show", job)]:
        assert asked(*words, "--format", "json").out == agents(*words, "--format", "json", on_server=True).out
    for name, key in (("actor", "name"), ("action", "name"), ("model", "model")):
        lists = [
            json.loads(agents(*where, name, "list", "--format", "json", on_server=bool(not where)).out)
            for where in ((), ("--server", bench.url))
        ]
        assert sorted(one[key] for one in lists[0]) == sorted(one[key] for one in lists[1])


def test_every_reading_command_is_readable_by_people(asked: Ask) -> None:
    plan = made(asked)["id"]
    for words, said in [
        (("plan", "list"), plan),
        (("plan", "show", plan), "what it changed"),
        (("plan", "log", plan), "replace"),
        (("plan", "log", plan, "1"), "state"),
        (("plan", "diff", plan), "+The color"),
        (("plan", "diff", plan, "--stat"), "README.md"),
        (("plan", "diff", plan, "--name-only"), "README.md\n"),
        (("jobs", "list"), "succeeded"),
        (("events", "tail"), "plan.moved"),
        (("events", "verify"), "verified"),
        (("actor", "list"), "builtin/executor"),
        (("actor", "show", "builtin/executor"), "nodes"),
        (("actor", "show", "builtin/executor", "--yaml"), "name: mine/executor"),
        (("action", "list"), "builtin/replace"),
        (("action", "show", "builtin/replace"), "pattern"),
        (("model", "list"), "anthropic/"),
        (("context", "where is the colour?"), "colour"),
        (("context", "--files", "--explain", "where is the colour?"), "strategies"),
    ]:
        ended = asked(*words)
        assert ended.code == 0, ended.err
        assert said in ended.out, words
    assert "no decision 7" in asked("plan", "explain", plan, "7").err


def test_a_plan_is_made_followed_reviewed_applied_and_undone(bench: Served, asked: Ask) -> None:
    ended = asked("run", *REPLACE)
    assert ended.code == 3
    assert "step 1 of 1: replace" in ended.err
    assert "it is not applied: that is for you to decide" in ended.err
    plan = ended.id
    assert f"agents --server {bench.url} plan apply {plan}" in ended.err
    left_out = asked("plan", "review", plan, "src")
    assert "left out: src" in left_out.err
    applied = asked("plan", "apply", plan)
    assert (applied.code, written(bench)) == (0, "The color of it.\n"), applied.err
    assert "applied to 1 file" in applied.err
    undone = asked("plan", "undo", plan)
    assert (undone.code, written(bench)) == (0, "The colour of it.\n"), undone.err
    assert asked("plan", "undo", plan).code == 2
    assert asked("plan", "delete", plan, "--yes").code == 0
    assert asked("plan", "show", plan).code == 2


def test_yes_applies_and_background_returns_at_once(bench: Served, asked: Ask) -> None:
    ended = asked("run", *REPLACE, "--yes", "--format", "json")
    assert (ended.code, json.loads(ended.out)["state"]) == (0, "applied")
    assert asked("plan", "undo", ended.id).code == 0
    begun = asked("run", *REPLACE, "--background", "--yes", "--format", "json")
    assert json.loads(begun.out)["server"] == bench.url
    plan = json.loads(begun.out)["plan"]
    watched = asked("plan", "watch", plan, "--format", "json")
    assert (watched.code, json.loads(watched.out)["state"]) == (0, "applied")
    assert asked("plan", "undo", plan).code == 0


def test_somebody_at_a_terminal_is_asked_for_leave_and_about_the_result(bench: Served, asked: Ask) -> None:
    ended = asked("run", *REPLACE, "--profile", "manual", typed="y\nd\ny\n")
    assert (ended.code, written(bench)) == (0, "The color of it.\n"), ended.err
    assert "Allow it?" in ended.err
    assert "+The color of it." in ended.out
    assert asked("plan", "undo", ended.id).code == 0
    rejected = asked("run", *REPLACE, typed="r\n")
    assert (rejected.code, "apply/rejected" in rejected.out) == (0, True)
    later = asked("run", *REPLACE, typed="n\n")
    assert (later.code, "plan apply" in later.err) == (0, True)


def test_leave_is_given_or_refused_later(asked: Ask) -> None:
    waiting = asked("run", *REPLACE, "--profile", "manual")
    assert waiting.code == 3
    assert "plan approve" in waiting.err
    approved = asked("plan", "approve", waiting.id, "1")
    assert (approved.code, "2 lines added" in approved.err) == (3, True)
    back = asked("plan", "rollback", waiting.id, "1")
    assert (back.code, "back at checkpoint 1" in back.err) == (0, True)
    assert asked("plan", "resume", waiting.id).code == 3
    assert asked("plan", "cancel", waiting.id).code == 0
    waiting = asked("run", *REPLACE, "--profile", "manual")
    denied = asked("plan", "deny", waiting.id)
    assert (denied.code, "denied:" in denied.err) == (0, True)
    again = asked("plan", "approve", waiting.id)
    assert again.code != 0
    assert "Traceback" not in again.err


def test_a_failed_check_and_a_failed_plan_end_as_here(bench: Served, asked: Ask) -> None:
    unchecked = asked("run", *REPLACE, "--check", "false", "--yes")
    assert (unchecked.code, "check false: failed" in unchecked.err) == (3, True)
    assert written(bench) == "The colour of it.\n"
    failed = asked("run", "--action", "builtin/command", "--profile", "full-auto", "--", "false")
    assert (failed.code, "error: plan" in failed.err) == (1, True)


def test_an_interrupted_run_stops_the_plan(bench: Served, asked: Ask) -> None:
    words = (
        "--action",
        "builtin/command",
        "--profile",
        "full-auto",
        "--",
        "sh",
        "-c",
        "echo begun; sleep 99",
    )
    with bench.begun("--server", bench.url, "run", *words) as process:
        assert process.stderr is not None
        plan = process.stderr.readline().split()[1].rstrip(":")
        while "begun" not in process.stderr.readline().split():
            assert process.poll() is None
        interrupt(process)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, "cancelled" in out) == (130, True)
    assert asked("plan", "cancel", plan).err.startswith(f"plan {plan} was cancelled already")


def test_a_running_plan_is_cancelled(bench: Served, asked: Ask) -> None:
    words = ("--action", "builtin/command", "--profile", "full-auto", "--", "sleep", "99")
    plan = json.loads(asked("run", "--background", "--format", "json", *words).out)["plan"]
    until(lambda: plan in asked("plan", "list", "--state", "processing").out)
    assert "diff" not in asked("plan", "diff", plan).out
    ended = asked("plan", "cancel", plan, "--reason", "wrong branch")
    assert (ended.code, "none of its processes is left" in ended.err) == (0, True)
    job = json.loads(asked("plan", "show", plan, "--format", "json").out)["job"]
    assert asked("jobs", "cancel", job).err.startswith(f"job {job} was cancelled already")


def test_projects_resources_and_users_are_kept(asked: Ask) -> None:
    assert asked("project", "add", "far", "--max-parallel", "2").code == 0
    added = asked(
        "resource", "add", "far-main", "--project", "far", "--remote", "https://git.example/far.git"
    )
    assert (added.code, "https://git.example/far.git" in added.out) == (0, True)
    assert asked("resource", "add", "x", "--project", "far").code == 2
    assert asked("project", "remove", "far").code == 1
    assert asked("resource", "remove", "far-main").code == 0
    assert asked("project", "remove", "far").code == 0
    assert asked("user", "add", "ada").code == 0
    assert asked("user", "role", "ada", "operator").code == 0
    token = asked("user", "token", "ada", "--label", "laptop", "--format", "json")
    known = json.loads(token.out)
    assert known["token"]
    assert known["id"] in asked("user", "token", "ada", "--list").out
    assert asked("user", "token", "ada", "--revoke", known["id"]).code == 0
    assert asked("user", "remove", "ada").code == 0


def test_a_result_is_pushed_to_a_new_branch_of_a_remote_and_never_over_another(
    asked: Ask, tmp_path: Path
) -> None:
    remote = new_remote(tmp_path, {"README.md": "colour\n"})
    tip, away = remote.tip(), ("--resource", "away")
    assert asked("project", "add", "away").code == 0
    assert asked("resource", "add", "away", "--project", "away", "--remote", remote.address.url).code == 0
    told = asked("run", *REPLACE, "--yes", *away, "--to-branch", "agents/{plan}", "--format", "json")
    plan = json.loads(told.out)
    own = f"agents/{plan['id']}"
    assert (told.code, plan["state"], plan["branch"]) == (0, "applied", own)
    assert f"applied to 1 file of branch {own} of {remote.address.url}" in told.err
    assert (remote.text("README.md", own), remote.tip()) == ("color", tip)
    assert f"pushed to  {own}" in asked("plan", "show", plan["id"]).out
    second = made(asked, *away)["id"]
    refused = asked("plan", "apply", second, "--to-branch", own)
    assert (refused.code, "has a branch" in refused.err, "--to-branch NAME" in refused.err) == (3, True, True)
    assert remote.said("rev-parse", f"{own}^") == tip
    assert asked("plan", "apply", second, "--to-branch", "-x").code == 2
    assert asked("plan", "apply", second, "--to-branch", "mine").code == 0
    undone = asked("plan", "undo", second)
    assert f"of branch mine of {remote.address.url}, by one more commit" in undone.err
    assert (remote.text("README.md", "mine"), remote.tip()) == ("colour", tip)
    here = asked("run", *REPLACE, "--yes", "--to-branch", "mine")
    assert (here.code, "only results of plans on git remotes" in here.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("plan", "show", "NOSUCH"), 2, "NOSUCH"),
        (("plan", "apply", "a/../b"), 2, ""),
        (("run",), 2, "say what is wanted"),
        (("run", "--yes", "--review", "goal"), 2, "say one of them"),
        (("run", "--action", "builtin/replace", "--arg", "patern=x"), 2, "pattern"),
        (("run", "--action", "no/such"), 2, "no/such"),
        (("run", "goal", "--resource", "nowhere"), 2, "nowhere"),
        (("run", "goal", "--arg", "x=y"), 2, "--arg is for an --action"),
        (("plan", "reread", "X"), 2, "the plan's sandbox is on the machine of the server; say it there"),
        (("events", "adopt"), 2, "agents events adopt cannot go through a server"),
        (("actor", "run", "builtin/executor"), 2, "agents --server local actor run"),
        (("model", "test"), 2, "agents --server local model test"),
        (("context", "--at", "HEAD", "x"), 2, "--at cannot go through a server"),
        (("context", "--in", ".", "x"), 2, "say --resource NAME"),
        (("doctor",), 2, "agents doctor works on this machine only; leave --server out"),
        (("plan", "resolve", "X", "--ours"), 2, "name PATHS"),
        (("plan", "correct", "X"), 2, "which DECISION?"),
        (("events", "tail", "--type", "no.such"), 2, "no.such"),
        (("actor", "show", "nonsense"), 2, "NAMESPACE/NAME"),
        (("actor", "validate", "no-such.yaml"), 2, "no-such.yaml"),
        (("run", "goal", "--model", " "), 2, "--model: is not written as such a thing is"),
        (("context",), 2, "say what you want to know"),
    ],
)
def test_a_wrong_request_is_told_and_exits_with_two(
    asked: Ask, words: tuple[str, ...], code: int, said: str
) -> None:
    ended = asked(*words)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("error: ")
    assert said in ended.err


def test_who_may_not_and_who_is_not_known_is_told(
    bench: Served, agents: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(bench, agents, monkeypatch, "viewer")
    seen = agents("--server", bench.url, "plan", "list")
    refused = agents("--server", bench.url, "run", *REPLACE)
    assert (seen.code, refused.code) == (0, 1)
    assert "needs the role operator" in refused.err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert agents("logout", bench.url).code == 0
    stranger = agents("--server", bench.url, "plan", "list")
    assert (stranger.code, f"agents login {bench.url}" in stranger.err) == (1, True)
    assert "no token" in agents("logout", bench.url).err


def test_a_setting_selects_the_server_and_local_does_not(bench: Served, agents: Ask, asked: Ask) -> None:
    plan = made(asked)["id"]
    through = agents("--set", f"server.address={bench.url}", "plan", "list")
    assert plan in through.out
    for said in ("local", ""):
        here = agents("--set", f"server.address={bench.url}", "--server", said, "plan", "list")
        assert (here.code, plan in here.out) == (0, False)
    assert agents("--set", f"server.address={bench.url}", "config", "get", "server.port").code == 0
    assert agents("--server", "nonsense", "plan", "list").code == 2
    assert agents("--server", "http://me:pw@host", "plan", "list").code == 2


def test_where_no_server_is_that_is_said_at_once(agents: Ask) -> None:
    ended = agents("--server", "http://127.0.0.1:9", "plan", "list")
    assert (ended.code, ended.out) == (75, "")
    assert "no server answers at http://127.0.0.1:9" in ended.err


def test_the_resource_is_named_where_the_repository_is_none(
    asked: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    lost = asked("run", *REPLACE)
    assert (lost.code, "say --resource NAME (there: shop" in lost.err) == (2, True)
    assert asked("run", *REPLACE, "--resource", "shop", "--review").code == 0
