"""Steps that run plans through the command line, on repositories made for one scenario each."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import psutil
from behave import given, then, when

from cleveragents.cli.failure import report
from cleveragents.cli.invocation import invoke

_SECONDS = 300
_REPLACE = ("run", "--action", "builtin/replace", "--arg", "glob=paint.py")
_KEY = "ghp_" + "a1B2" * 9
_MANY_STEPS = """\
name: team/many
execute:
  steps:
    - {tool: write, with: {path: new.txt, content: made}}
    - {tool: command, shell: true, with: {command: "echo x >> paint.py; echo y >> notes.txt"}}
    - {tool: delete, with: {path: old.txt}}
"""
_STUBBORN = """\
trap '' TERM
(setsid sh -c "trap '' TERM; sleep 1000" &)
sh -c "trap '' TERM; sleep 1000" &
sh -c '(sleep 1000 &) &'
echo up > up.txt
echo RUNNING
sleep 1000
"""


# ── The stage ─────────────────────────────────────────────────────────────────────────────────────


@given("a repository with uncommitted work, a stash and a hook")
def a_repository(context: Any) -> None:
    place = tempfile.TemporaryDirectory()
    context.add_cleanup(place.cleanup)
    root = context.repository = Path(place.name) / "repository"
    context.plan_state = Path(place.name) / "state"
    root.mkdir()
    (root / "paint.py").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\ncolour = 1\n")
    (root / "notes.txt").write_text("notes\n")
    (root / "old.txt").write_text("old\n")
    _git(context, "init", "-q", "-b", "main")
    _git(context, "config", "user.name", "me")
    _git(context, "config", "user.email", "me@example.org")
    _git(context, "add", "-A")
    _git(context, "commit", "-qm", "first")
    (root / "notes.txt").write_text("stashed\n")
    _git(context, "stash")
    (root / "notes.txt").write_text("staged\n")
    _git(context, "add", "notes.txt")
    (root / "untracked.txt").write_text("untracked\n")
    (root / ".git/hooks/pre-commit").write_text("#!/bin/sh\nexit 0\n")
    context.before = _everything(context)


@given('a plan that replaced "{old}" by "{new}"')
def a_replacing_plan(context: Any, old: str, new: str) -> None:
    _agents(context, *_REPLACE, "--arg", f"pattern={old}", "--arg", f"replacement={new}", "--review")
    _expect(context, 0)
    context.plan_id = _last_plan(context)


@given("a plan whose command starts processes that ignore SIGTERM, detach and fork twice")
def a_stubborn_plan(context: Any) -> None:
    context.process = _start(context, "run", "--action", "builtin/command", "--", "sh", "-c", _STUBBORN)
    _until_it_says(context.process, "  RUNNING")
    context.plan_id = _last_plan(context)
    context.tree = psutil.Process(context.process.pid).children(recursive=True)
    assert len(context.tree) >= 4, context.tree


@given("a plan whose process is killed in the middle of its command")
def a_killed_plan(context: Any) -> None:
    # However long it takes to kill it: the first is at it until then, the second is done at once.
    stays = "test -e .git/begun || { touch .git/begun; exec sleep 1000; }"
    command = f"echo x >> out.txt; echo RUNNING; {stays}"
    process = _start(context, "run", "--action", "builtin/command", "--", "sh", "-c", command)
    _until_it_says(process, "  RUNNING")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=_SECONDS)
    context.plan_id = _last_plan(context)


@given("3 plans that were applied, rejected and cancelled")
def ended_plans(context: Any) -> None:
    context.ended_plans = []
    for end in ("apply", "reject", "cancel"):
        a_replacing_plan(context, "colour", "color")
        context.ended_plans.append(context.plan_id)
        _agents(context, "plan", end, context.plan_id)
        _expect(context, 0)
        if end == "apply":
            _agents(context, "plan", "undo", context.plan_id)
            _expect(context, 0)


# ── Acts ──────────────────────────────────────────────────────────────────────────────────────────


@when("a plan's command edits files, stashes, commits, forces a branch and sets hooks and configuration")
def a_wild_command(context: Any) -> None:
    script = (
        "echo wild > paint.py; git add -A; git commit -qm wild; echo more > new.txt; git stash -uq;"
        "git stash drop -q;"
        "git branch -f main HEAD~1 || true; git branch -f wild; git tag wild; git config user.name wild;"
        "mkdir -p .git/hooks; echo exit 1 > .git/hooks/pre-commit; git gc -q --prune=now; rm -f old.txt"
    )
    _agents(context, "run", "--action", "builtin/command", "--", "sh", "-c", script)
    context.plan_id = _last_plan(context)


@when("a plan writes a file, runs a command that edits two others, and deletes one")
def a_plan_of_many_steps(context: Any) -> None:
    _agents(context, "action", "create", "-", stdin=_MANY_STEPS)
    _expect(context, 0)
    _agents(context, "run", "--action", "team/many")
    _expect(context, 3)
    context.plan_id = _last_plan(context)


@when("the user edits another line of the same file")
def edits_elsewhere(context: Any) -> None:
    path = context.repository / "paint.py"
    path.write_text(path.read_text().replace("one", "ONE"))


@when("the user edits the same line")
def edits_the_same_line(context: Any) -> None:
    path = context.repository / "paint.py"
    path.write_text(path.read_text().replace("colour = 1", "colour = 2"))
    context.before = _everything(context)


@when("the plan is {done:w}")
def the_plan_is_decided(context: Any, done: str) -> None:
    _agents(context, "plan", {"applied": "apply", "undone": "undo"}[done], context.plan_id)


@when("it is cancelled from elsewhere")
def cancelled_from_elsewhere(context: Any) -> None:
    _agents(context, "plan", "cancel", context.plan_id)
    _expect(context, 0)
    context.process.communicate(timeout=_SECONDS)
    assert context.process.returncode == 130, context.process.returncode


@when("they are deleted")
def deleted(context: Any) -> None:
    for plan_id in context.ended_plans:
        _agents(context, "plan", "delete", plan_id)
        _expect(context, 0)


@when("it is resumed")
def resumed(context: Any) -> None:
    _agents(context, "plan", "resume", context.plan_id)
    _expect(context, 3)


@when("{number:d} processes run a plan each at the same time")
def many_plans(context: Any, number: int) -> None:
    started = [
        _start(
            context,
            *_REPLACE,
            "--arg",
            "pattern=colour",
            "--arg",
            f"replacement=color{n}",
            "--format",
            "json",
        )
        for n in range(number)
    ]
    context.many = [(process, *process.communicate(timeout=_SECONDS)) for process in started]


@when("what can be cleaned up is cleaned up")
def cleaned_up(context: Any) -> None:
    _agents(context, "gc", "--older-than", "0m")
    _expect(context, 0)


@when('a plan with the check "{check}" is to be applied without asking')
def with_a_check(context: Any, check: str) -> None:
    arguments = ("--arg", "pattern=colour", "--arg", "replacement=color", "--check", check, "--yes")
    _agents(context, *_REPLACE, *arguments)


@when("a plan's command prints its environment and a key of known shape")
def prints_secrets(context: Any) -> None:
    context.secret = "correct-horse-battery"
    script = "env; printf 'ghp_'; for n in 1 2 3 4 5 6 7 8 9; do printf a1B2; done; echo"
    os.environ["DEPLOY_TOKEN"] = context.secret
    try:
        _agents(context, "run", "--action", "builtin/command", "--", "sh", "-c", script)
    finally:
        del os.environ["DEPLOY_TOKEN"]
    _expect(context, 0)


# ── Judgements ────────────────────────────────────────────────────────────────────────────────────


@then('the plan is "{standing}"')
def stands(context: Any, standing: str) -> None:
    shown = _shown(context, context.plan_id)
    assert f"{shown['phase']}/{shown['state']}" == standing, shown


@then("nothing of the user's repository has changed")
def nothing_changed(context: Any) -> None:
    assert _everything(context) == context.before, _everything(context)


@then("no file was touched by it")
def no_file_touched(context: Any) -> None:
    assert _everything(context) == context.before


@then("its calls have recorded {first:d}, {second:d} and {third:d} changes, each in a changeset of its own")
def recorded(context: Any, first: int, second: int, third: int) -> None:
    _agents(context, "plan", "log", context.plan_id, "--format", "json")
    calls = json.loads(context.out)
    assert [call["changed"] for call in calls] == [first, second, third], calls
    assert len({call["changeset"] for call in calls}) == 3


@then("what they recorded is what the difference shows")
def the_difference(context: Any) -> None:
    _agents(context, "plan", "diff", context.plan_id, "--name-only")
    assert context.out.split() == ["new.txt", "notes.txt", "old.txt", "paint.py"], context.out
    root = _shown(context, context.plan_id)["sandbox"]
    listed = subprocess.run(
        ["git", "status", "--porcelain", "--no-renames"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    # What the user had staged was there before; the second column is what came since.
    changed = sorted(line[3:] for line in listed.splitlines() if line[1] != " ")
    assert changed == context.out.split(), listed


@then("the file has both changes")
def both_changes(context: Any) -> None:
    _expect(context, 0)
    text = (context.repository / "paint.py").read_text()
    assert text.startswith("ONE\n"), text
    assert text.endswith("color = 1\n"), text


@then("only the user's edit is left")
def only_the_users(context: Any) -> None:
    _expect(context, 0)
    text = (context.repository / "paint.py").read_text()
    assert text.startswith("ONE\n"), text
    assert text.endswith("colour = 1\n"), text


@then("the index, the stash, the branches, the hooks and the configuration are as they were")
def git_is_as_it_was(context: Any) -> None:
    before, now = context.before, _everything(context)
    for part in ("index", "refs", "config", "hooks"):
        assert now[part] == before[part], part


@then('a human is needed, and "{path}" is named with both sides')
def a_conflict(context: Any, path: str) -> None:
    _expect(context, 3)
    for words in (path, "| colour = 2", "| color = 1", "nothing was changed"):
        assert words in context.err, context.err


@then('a human is needed, and the check is told as "{verdict}"')
def a_check_is_told(context: Any, verdict: str) -> None:
    _expect(context, 3)
    assert verdict in context.err, context.err
    context.plan_id = _last_plan(context)
    assert [check["verdict"] for check in _shown(context, context.plan_id)["checks"]] == [verdict]


@then("none of its processes is alive")
def none_alive(context: Any) -> None:
    alive = [p for p in context.tree if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not alive, alive


@then("a second cancel says that it was already cancelled")
def a_second_cancel(context: Any) -> None:
    _agents(context, "plan", "cancel", context.plan_id)
    _expect(context, 0)
    assert "is already cancelled" in context.err, context.err


@then("the repository has the references and worktrees that it had before")
def repository_is_clean(context: Any) -> None:
    assert _everything(context) == context.before
    assert len(_git(context, "worktree", "list").splitlines()) == 1
    _git(context, "fsck", "--strict")


@then("no sandbox is left")
def no_sandbox(context: Any) -> None:
    left = [path for path in (context.plan_state / "sandboxes").glob("*") if path.is_dir()]
    assert not left, left


@then("its result is there once")
def there_once(context: Any) -> None:
    _agents(context, "plan", "diff", context.plan_id)
    assert context.out.count("\n+x\n") == 1, context.out
    assert "@@ -0,0 +1 @@" in context.out, context.out


@then('every one is "{standing}", and nobody was told that something is locked')
def every_one(context: Any, standing: str) -> None:
    for process, out, err in context.many:
        assert process.returncode == 3, err
        assert "locked" not in err.lower(), err
        told = json.loads(out)
        assert f"{told['phase']}/{told['state']}" == standing, told
    assert len({json.loads(out)["id"] for _, out, _ in context.many}) == len(context.many)


@then("every one still has its result")
def every_result(context: Any) -> None:
    for number, (_, out, _) in enumerate(context.many):
        _agents(context, "plan", "diff", json.loads(out)["id"])
        assert f"+color{number} = 1" in context.out, context.out


@then("neither is shown, and neither is in the database")
def not_shown(context: Any) -> None:
    said = context.out + context.err
    _agents(context, "plan", "log", _last_plan(context), "--format", "json")
    said += context.out
    kept = b"".join(path.read_bytes() for path in context.plan_state.glob("state.db*"))
    for secret in (context.secret, _KEY):
        assert secret not in said, said
        assert secret.encode() not in kept


# ── The command line ──────────────────────────────────────────────────────────────────────────────


def _agents(context: Any, *arguments: str, stdin: str = "") -> None:
    """A command line in this process, from end to end; what it printed and its exit code are kept."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with _at_home(context), redirect_stdout(out), redirect_stderr(err):
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        try:
            context.code = invoke([*arguments])
        except SystemExit as ended:
            context.code = ended.code
        except Exception as error:  # as `main.run` would answer it
            context.code = report(error)
        finally:
            sys.stdin = sys.__stdin__
    out.flush()
    context.out, context.err = out.buffer.getvalue().decode(), err.getvalue()
    assert "Traceback" not in context.err, context.err


@contextmanager
def _at_home(context: Any) -> Any:
    place, handler = Path.cwd(), signal.getsignal(signal.SIGTERM)
    os.environ["CLEVERAGENTS_STATE_DIRECTORY"] = str(context.plan_state)
    os.chdir(context.repository)
    try:
        yield
    finally:
        os.chdir(place)
        del os.environ["CLEVERAGENTS_STATE_DIRECTORY"]
        signal.signal(signal.SIGTERM, handler)


def _start(context: Any, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "cleveragents", *arguments],
        cwd=context.repository,
        env={**os.environ, "CLEVERAGENTS_STATE_DIRECTORY": str(context.plan_state)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _until_it_says(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    said = ""
    give_up = time.monotonic() + _SECONDS
    while f"\n{words}" not in said and time.monotonic() < give_up:
        line = process.stderr.readline()
        assert line, said
        said += line


def _expect(context: Any, code: int) -> None:
    assert context.code == code, f"{context.code}\n{context.out}\n{context.err}"


def _shown(context: Any, plan_id: str) -> dict[str, Any]:
    kept = context.code, context.out, context.err
    _agents(context, "plan", "show", plan_id, "--format", "json")
    shown: dict[str, Any] = json.loads(context.out)
    context.code, context.out, context.err = kept
    return shown


def _last_plan(context: Any) -> str:
    kept = getattr(context, "code", 0), getattr(context, "out", ""), getattr(context, "err", "")
    _agents(context, "plan", "list", "--format", "json")
    plan_id: str = json.loads(context.out)[-1]["id"]
    context.code, context.out, context.err = kept
    return plan_id


# ── The repository ────────────────────────────────────────────────────────────────────────────────


def _git(context: Any, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=context.repository, capture_output=True, text=True, check=True
    ).stdout


def _everything(context: Any) -> dict[str, Any]:
    """All that a user would miss: files, index, references with the stash, configuration, hooks."""
    root: Path = context.repository
    return {
        "files": {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(root).parts
        },
        "index": _git(context, "ls-files", "--stage"),
        "refs": [line for line in _git(context, "show-ref").splitlines() if "refs/cleveragents/" not in line],
        "stash": _git(context, "stash", "list"),
        "config": (root / ".git/config").read_bytes(),
        "hooks": {path.name: path.read_bytes() for path in sorted((root / ".git/hooks").iterdir())},
    }
