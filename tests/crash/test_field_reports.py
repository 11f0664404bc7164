"""Failures that users of other agent tools have reported, tried here end to end: they must be impossible.

Every test names its reports. `docs/explanation/field-reports.md` describes them, and links to these tests and
to the tests of single parts. Processes are real, repositories are real, and so is `kill -9`.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.demo.story import demo_settings
from cleveragents.models.script_document import read_script
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.sub_plan import PAUSED
from cleveragents.storage.actor_tables import model_calls
from cleveragents.testing.scripted_server import ScriptedServer
from tests.actor_plan_bench import answer, call, rule, says
from tests.command_trees import alive
from tests.conditions import wait_until
from tests.fork_server import Forked
from tests.plan_bench import plan_bench, write
from tests.sandbox_resources import fingerprint, git, make_repository
from tests.sandbox_resources import write as write_files
from tests.unisolated import ALLOW_UNISOLATED

ROOT = Path(__file__).parents[2]
AT_ONCE = [sys.executable, "-m", "tests.crash.programs.agents_at_once"]
STATE_WRITER = [sys.executable, "-m", "tests.crash.programs.state_writer"]
IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
}
NEEDS_HUMAN = 3
REFUSED = 2
TRY_AGAIN = 75
# The five seconds of the reported timeouts, and the start of ten processes.
HELD_SECONDS = 8.0
PIN = "refs/cleveragents/base/"
LINES = [f"line {number}" for number in range(70)]
isolates = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and its output."""

    code: int
    out: str
    err: str

    @property
    def id(self) -> str:
        """The plan of a run."""
        return self.err.split()[1].rstrip(":")


@dataclass
class Agents:
    """The command line, in any number of concurrent processes, on one state directory and one repository."""

    process: subprocess.Popen[str]
    home: Path
    repository: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLEVERAGENTS_STATE_DIRECTORY": str(self.home / "state"),
            **ALLOW_UNISOLATED,
            **IDENTITY,
            **self.more,
        }

    def at_once(self, *lines: tuple[str, ...], directory: Path | None = None) -> list[Ended]:
        orders = [
            {
                "directory": str(directory or self.repository),
                "environment": self.environment,
                "arguments": line,
            }
            for line in lines
        ]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(orders) + "\n")
        self.process.stdin.flush()
        ended = [Ended(**answer) for answer in json.loads(self.process.stdout.readline())]
        assert not [one for one in ended if "Traceback" in one.err], ended
        return ended

    def __call__(self, *line: str, directory: Path | None = None) -> Ended:
        [ended] = self.at_once(line, directory=directory)
        return ended

    def container(self) -> Container:
        return Container(load_configuration(self.environment, self.repository).settings)

    def sandbox(self, plan_id: str) -> Path:
        return self.home / "state" / "sandboxes" / plan_id / "tree"


def shell(script: str, *options: str) -> tuple[str, ...]:
    return ("run", "--action", "builtin/command", *options, "--", "sh", "-c", script)


def codes(ended: list[Ended]) -> list[int]:
    return [one.code for one in ended]


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    process = Forked(AT_ONCE, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate(timeout=240)


@pytest.fixture
def agents(server: subprocess.Popen[str], tmp_path: Path) -> Agents:
    text = "\n".join(LINES) + "\n"
    repository = make_repository(tmp_path / "repository", {"a": text, "b": text, "c": text})
    return Agents(server, tmp_path, repository)


# ── Edits ─────────────────────────────────────────────────────────────────────────────────────────


def test_six_concurrent_plans_on_the_same_files_lose_nothing(agents: Agents) -> None:
    """openai/codex#16195, bdfinst/agentic-dev-team#1571: agents in one tree reverted each other's files.
    Aider-AI/aider#302, plandex-ai/plandex#202: concurrent commits failed, or raced for the index.

    None begins before all have started from the same files, so each result is stale five times over.
    """
    numbers = range(6)
    scripts = [f"sed -i 's/^line {5 + 10 * n}$/plan {n}/' a b c; echo {n} > new-{n}" for n in numbers]
    ran = agents.at_once(*[shell(script, "--review") for script in scripts])
    assert codes(ran) == [0] * 6, ran
    commits = [("--commit", f"plan {n}") if n % 2 else () for n in numbers]
    applied = agents.at_once(*[("plan", "apply", one.id, *commits[n]) for n, one in enumerate(ran)])
    assert codes(applied) == [0] * 6, applied
    wanted = [*LINES]
    for n in numbers:
        wanted[5 + 10 * n] = f"plan {n}"
    for name in "abc":
        assert (agents.repository / name).read_text().splitlines() == wanted
    assert [(agents.repository / f"new-{n}").read_text() for n in numbers] == [f"{n}\n" for n in numbers]
    _check_commits(agents.repository, {f"plan {n}": n for n in numbers if n % 2})


def _check_commits(repository: Path, asked: dict[str, int]) -> None:
    """Check that each commit has only its own plan's lines; the rest is uncommitted."""
    subjects = git(repository, "log", "--format=%s").decode().splitlines()
    assert sorted(subjects) == sorted([*asked, "a commit"])
    for commit in git(repository, "log", "--format=%H", "-3").decode().split():
        n = asked[git(repository, "log", "-1", "--format=%s", commit).decode().strip()]
        shown = git(repository, "show", "--format=", "--unified=0", commit).decode().splitlines()
        added = sorted(line for line in shown if line.startswith("+") and not line.startswith("+++"))
        assert added == [f"+{n}", *[f"+plan {n}"] * 3]
    left = git(repository, "diff", "--unified=0", "HEAD").decode().splitlines()
    added = {line for line in left if line.startswith("+plan")}
    assert added == {f"+plan {n}" for n in range(6) if n not in asked.values()}
    assert git(repository, "diff", "--cached", "HEAD") == b""
    git(repository, "fsck", "--strict")


def test_concurrent_resumes_resume_a_plan_once(agents: Agents) -> None:
    """google/adk-python#4751: a concurrent resume corrupted the history for good."""
    ran = agents(*shell("echo once >> a; test -e .git/allowed"))
    assert ran.code == 1
    (agents.sandbox(ran.id) / ".git/allowed").touch()
    resumed = agents.at_once(*[("plan", "resume", ran.id)] * 4)
    # A resume after the end gets the same result; the checks below show that it happened once.
    assert NEEDS_HUMAN in codes(resumed), resumed
    assert {*codes(resumed)} <= {NEEDS_HUMAN, REFUSED, TRY_AGAIN}, resumed
    with agents.container() as container:
        parts = container.plan_parts
        plan = parts.plans.get(ran.id)
        assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), resumed
        assert parts.history.differences(plan.id) == parts.sandboxes.open(plan.id).scan()
        calls = parts.history.calls(plan.id)
        assert [call.number for call in calls] == list(range(1, len(calls) + 1))
        assert [call.state.value for call in calls if call.step is not None].count("ended") == 1
    assert (agents.sandbox(ran.id) / "a").read_text().count("once") == 1


# ── The user's repository ─────────────────────────────────────────────────────────────────────────


def test_sandboxes_are_created_while_all_locks_of_the_repository_are_held(agents: Agents) -> None:
    """anthropics/claude-code#34645, Intrect-io/OpenSwarm#685: `could not lock config file` when worktrees are
    added concurrently. Here the lock is never free, and sixteen processes create sixteen sandboxes.
    """
    held = [
        agents.repository / ".git" / f"{name}.lock" for name in ("config", "index", "HEAD", "packed-refs")
    ]
    for lock in held:
        lock.touch()
    failing = subprocess.run(
        ["git", "config", "a.b", "c"], cwd=agents.repository, capture_output=True, text=True, check=False
    )
    assert "could not lock config file" in failing.stderr
    before = fingerprint(agents.repository)
    ran = agents.at_once(*[shell(f"echo {n} >> a; git branch b{n}", "--review") for n in range(16)])
    assert codes(ran) == [0] * 16, ran
    with agents.container() as container:
        for n, one in enumerate(ran):
            assert git(agents.sandbox(one.id), "branch", "--list", "b*").decode() == f"  b{n}\n"
            assert set(container.plan_parts.sandboxes.open(one.id).scan()) == {"a"}
    assert without_pins(agents.repository) == before
    pins = git(agents.repository, "for-each-ref", "--format=%(refname)", PIN).decode().split()
    assert sorted(pins) == sorted(f"{PIN}{one.id}" for one in ran)
    for lock in held:
        lock.unlink()
    git(agents.repository, "fsck", "--strict")


def without_pins(repository: Path) -> dict[str, str]:
    """Return the whole repository without the refs that pin the bases of sandboxes."""
    return fingerprint(repository, but=(".git/refs/cleveragents",))


def test_concurrent_plans_have_their_own_stash(agents: Agents) -> None:
    """kent-tokyo/chematic#218, mattpocock/skills#429: agents popped each other's stash, and the user's."""
    repository = agents.repository
    write_files(repository, {"a": "the user's\n"})
    git(repository, "stash", "-q")
    before = fingerprint(repository)
    script = "echo {n} > a; git stash -q; git stash list | wc -l > count; git commit -q --amend -m {n}"
    ran = agents.at_once(*[shell(script.format(n=n), "--review") for n in range(4)])
    assert codes(ran) == [0] * 4, ran
    for n, one in enumerate(ran):
        root = agents.sandbox(one.id)
        assert (root / "count").read_text().strip() == "1"
        assert git(root, "show", "stash@{0}:a") == f"{n}\n".encode()
        assert git(root, "log", "-1", "--format=%s") == f"{n}\n".encode()
    assert without_pins(repository) == before
    assert git(repository, "show", "stash@{0}:a") == b"the user's\n"


def test_fifty_checkpoints_leave_no_object_in_the_users_repository(tmp_path: Path) -> None:
    """openai/codex#29388: 102 GB of objects that only checkpoints needed, and refs that kept them."""
    size = 100_000
    with plan_bench(tmp_path) as bench:
        root = bench.repository
        before = objects_of(root)
        refs = git(root, "for-each-ref")
        chance = random.Random(5)
        plan = bench.done(*[write("large.txt", chance.randbytes(size // 2).hex()) for _ in range(50)])
        assert plan.state is PlanState.COMPLETE
        assert len(bench.calls(plan)) == 50
        bench.parts.sandbox_edits.rollback(plan, 25)
        bench.ensure_consistent(plan)
        assert objects_of(root) == before
        names = git(root, "for-each-ref", "--format=%(refname)").decode().split()
        assert names == [f"{PIN}{plan.id}", "refs/heads/main"]
        # Hexadecimal digits hold half a byte each; stored content is compressed, and stored once.
        assert bench.parts.sandboxes.measure(plan.id) < 50 * size * 0.7
        bench.parts.cleanup.delete(bench.now(plan))
        assert objects_of(root) == before
        assert git(root, "for-each-ref") == refs
        assert list(bench.parts.sandboxes.directory.iterdir()) == []


def objects_of(repository: Path) -> tuple[bytes, bytes]:
    every = git(repository, "cat-file", "--batch-all-objects", "--batch-check", "--unordered")
    return git(repository, "count-objects", "-v"), b"".join(sorted(every.splitlines(keepends=True)))


def test_a_plan_in_a_linked_worktree_is_committed_there_and_nowhere_else(agents: Agents) -> None:
    """BloopAI/vibe-kanban#1897: a merge failed silently, because its branch was checked out elsewhere."""
    linked = agents.repository.parent / "linked"
    git(agents.repository, "worktree", "add", "-q", "-b", "dev", str(linked))
    main = git(agents.repository, "rev-parse", "main")
    status = fingerprint(agents.repository, but=(".git",))
    ran = agents(*shell("echo more >> a", "--yes", "--commit", "Say more"), directory=linked)
    assert ran.code == 0, ran
    assert (linked / "a").read_text().endswith("more\n")
    assert git(linked, "log", "-2", "--format=%s", "dev") == b"Say more\na commit\n"
    assert git(linked, "status", "--porcelain") == b""
    assert git(agents.repository, "rev-parse", "main") == main
    assert fingerprint(agents.repository, but=(".git",)) == status
    assert git(agents.repository, "status", "--porcelain") == b""


# ── Commands that go astray ───────────────────────────────────────────────────────────────────────

DESTROY = "git reset -q --hard; git clean -fdxq; echo spoilt > a; rm -rf untracked .git/refs; echo x > leak"


@isolates
@pytest.mark.parametrize("way", ["cd ..", "cd ../..", "cd $REPOSITORY", "cd /; cd $REPOSITORY; unset PWD"])
def test_a_command_that_leaves_its_directory_does_not_reach_the_users_files(agents: Agents, way: str) -> None:
    """anthropics/claude-code#52958: a directory leaked into the parent's checkout, and untracked files there
    were destroyed. anthropics/claude-code#48927: a clean-up removed `.git` and the whole tree.
    """
    repository = agents.repository
    write_files(repository, {"untracked/thesis": "years of work\n", "a": "not committed\n"})
    before = fingerprint(repository)
    ensure_destructive(shutil.copytree(repository, agents.home / "copy"), before)
    script = f"{way.replace('$REPOSITORY', str(repository))}; {{ {DESTROY}; }} 2>&1; true"
    ran = agents("--set", "sandbox.isolation=required", *shell(script, "--review"))
    assert ran.code == 0, ran
    assert "nothing was changed" in ran.err
    assert without_pins(repository) == before


def ensure_destructive(copy: Path, before: dict[str, str]) -> None:
    """Check that the command does the reported damage if nothing prevents it."""
    subprocess.run(["sh", "-c", DESTROY], cwd=copy, capture_output=True, check=True)
    assert before.keys() - fingerprint(copy).keys() >= {"untracked/thesis", ".git/refs/heads/main"}


@pytest.mark.parametrize("way", ["cd .", "cd ..", "cd ../..", "cd ../../.."])
def test_without_isolation_a_sandbox_is_not_part_of_an_outer_repository(agents: Agents, way: str) -> None:
    """anthropics/claude-code#52958: git commands of an agent worked on the parent's checkout.

    Many users keep their home in git, and our state below it. Neither a sandbox that has lost its own `.git`
    nor a directory between the two belongs to that repository.
    """
    home = make_repository(agents.home / "home", {"profile": "old\n"})
    write_files(home, {"profile": "not committed\n", "untracked": "x\n"})
    agents.more["CLEVERAGENTS_STATE_DIRECTORY"] = str(home / "state")
    before = {name: (home / name).read_text() for name in ("profile", "untracked")}
    destroy = "git reset -q --hard; git clean -fdxq :/"
    script = f"rm -rf .git; {way}; {destroy}; git status > $OLDPWD/status 2>&1; true"
    ran = agents("--set", "sandbox.isolation=off", *shell(script, "--review"))
    assert ran.code == 0, ran
    assert {name: (home / name).read_text() for name in before} == before
    assert "not a git repository" in (home / "state/sandboxes" / ran.id / "tree/status").read_text()


def test_without_isolation_outside_writes_are_not_recorded_for_the_plan(agents: Agents) -> None:
    """anthropics/claude-code#52958, without bubblewrap: a command can then write wherever its user can. That
    is not prevented; but it is neither recorded nor applied as the plan's change, nor overwritten by it.
    """
    repository = agents.repository
    script = f"echo plan > b; echo plan >> c; echo astray > {repository}/a; echo astray > {repository}/b"
    ran = agents("--set", "sandbox.isolation=off", *shell(script, "--review"))
    assert agents("plan", "diff", ran.id, "--name-only").out.split() == ["b", "c"]
    applied = agents("plan", "apply", ran.id)
    assert applied.code == NEEDS_HUMAN
    assert "by you" in applied.err
    assert agents("plan", "review", ran.id, "--reject", "b").code == 0
    assert agents("plan", "apply", ran.id).code == 0
    assert (repository / "c").read_text().endswith("plan\n")
    assert agents("plan", "undo", ran.id).code == 0
    for name, text in {"a": "astray\n", "b": "astray\n", "c": "\n".join(LINES) + "\n"}.items():
        assert (repository / name).read_text() == text


@pytest.mark.parametrize("how", [("plan", "delete", "--yes"), ("gc", "--older-than", "0d")], ids="-".join)
def test_removing_a_sandbox_follows_no_link_out_of_it(agents: Agents, how: tuple[str, ...]) -> None:
    """anthropics/claude-code#48927, #55724: a clean-up deleted too much.
    anthropics/claude-code#63087, #95644: obsolete files were never cleaned up.
    """
    ran = agents(*shell(f"echo x > b; ln -s {agents.repository} out", "--review"))
    other = agents(*shell("echo y > c", "--review"))
    assert agents("plan", "reject", ran.id).code == 0
    root = agents.sandbox(ran.id)
    assert (root / "out").is_symlink()
    shutil.rmtree(root / ".git")
    (root / ".git").symlink_to(agents.repository / ".git")
    before = without_pins(agents.repository)
    removed = agents(*how, *([ran.id] if how[0] == "plan" else []))
    assert removed.code == 0, removed
    assert not root.exists()
    assert without_pins(agents.repository) == before
    # The other one has undecided changes.
    assert (agents.sandbox(other.id) / "c").read_text() == "y\n"


# ── State ─────────────────────────────────────────────────────────────────────────────────────────


def test_ten_sessions_on_one_database_never_see_a_lock_error(agents: Agents) -> None:
    """anomalyco/opencode#21215, #33320, #47566: `database is locked` at ten sessions, because a writer held
    the lock for longer than the five seconds that others waited. aaif-goose/goose#7624,
    UiPath/uipath-langchain-python#222: leaked connections, or one per worker, locked it.

    Here the database is locked for longer than that while all ten start.
    """
    assert agents("plan", "list").code == 0
    database = agents.home / "state" / "state.db"
    with closing(sqlite3.connect(database, check_same_thread=False, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        release = threading.Timer(HELD_SECONDS, holder.rollback)
        release.start()
        began = time.monotonic()
        try:
            ran = agents.at_once(*[shell(f"echo {n} > new-{n}", "--yes") for n in range(10)])
        finally:
            release.join()
    assert codes(ran) == [0] * 10, ran
    assert time.monotonic() - began > HELD_SECONDS - 1
    for n, one in enumerate(ran):
        assert not [word for word in ("locked", "busy", "BUSY", "retry") if word in one.err], one
        assert (agents.repository / f"new-{n}").read_text() == f"{n}\n"
    verified = agents("events", "verify")
    assert verified.code == 0, verified
    check_database(database)


def check_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def check_json(path: Path) -> None:
    assert isinstance(json.loads(path.read_text()), dict)


def check_settings(path: Path) -> None:
    assert 1 <= tomllib.loads(path.read_text())["worker"]["concurrency"] <= 60


def check_key(path: Path) -> None:
    assert len(bytes.fromhex(path.read_text())) == 32


def state_files(home: Path) -> Iterator[tuple[Path, Callable[[Path], None]]]:
    """Return the files that must be complete or absent at every moment, with their checks."""
    yield home / "config.toml", check_settings
    yield home / "state" / "audit.head", check_json
    yield home / "state" / "audit.key", check_key
    for facts in (home / "state" / "sandboxes").glob("*/sandbox.json"):
        yield facts, check_json


def check_state_files(home: Path) -> set[str]:
    """Return the names of the existing state files, after checking that all are complete."""
    seen = set()
    for path, check in state_files(home):
        try:
            check(path)
        except FileNotFoundError:
            continue
        seen.add(path.name)
    return seen


# The call after which the draft of a state file is written, and its name.
POINTS = {
    "config.write.before": ".config.toml.new",
    "sandbox.create.after-checkout": "sandbox.json.new",
    "audit.sequence.after_commit": "audit.new",
}


@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_write_leaves_the_old_state_file_or_none(
    tmp_path: Path, resource: Path, point: str
) -> None:
    """anthropics/claude-code#28922, #29008: settings were written in place, and so read half-written."""
    writer = start_writer(tmp_path, resource, "w", point)
    said, _ = writer.communicate(timeout=240)
    steps = ["config", "sandbox", "log"]
    assert said.split() == steps + steps[: [*POINTS].index(point)]
    # It noticed the incomplete write, or had no time to.
    assert writer.returncode in (-signal.SIGXFSZ, 1)
    assert check_state_files(tmp_path) == {"config.toml", "audit.head", "audit.key", "sandbox.json"}
    [part] = tmp_path.rglob(POINTS[point])
    assert part.stat().st_size == 10
    check_that_all_is_mended(tmp_path, resource)
    check_that_a_part_is_no_whole(tmp_path)


def test_killed_writers_leave_complete_state_files(tmp_path: Path, resource: Path) -> None:
    """anthropics/claude-code#28922, #29008: 281 corrupt files in a day, from several writers at once."""
    chance = random.Random(11)
    writers = [start_writer(tmp_path, resource, f"w{number}") for number in range(3)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(chance.randrange(4, 12)):
                assert writer.stdout.readline() != "", "it ended by itself"
                check_state_files(tmp_path)
            writer.kill()
            writer.wait()
            check_state_files(tmp_path)
            check_database(tmp_path / "state" / "state.db")
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    check_that_all_is_mended(tmp_path, resource)


def check_that_all_is_mended(home: Path, resource: Path) -> None:
    check_database(home / "state" / "state.db")
    with Container(demo_settings(home / "state")) as container:
        assert container.audit.verify().ok
        sandboxes = container.plan_parts.sandboxes
        sandboxes.remove_orphans()
        assert sandboxes.leftovers([resource]) == []


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return make_repository(tmp_path / "resource", {"a": "1\n"})


def start_writer(home: Path, resource: Path, *more: str) -> subprocess.Popen[str]:
    words = [*STATE_WRITER, str(home), str(resource), *more]
    return Forked(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def check_that_a_part_is_no_whole(home: Path) -> None:
    """Check that the checks above detect a file truncated anywhere."""
    for path, check in [*state_files(home)]:
        content = path.read_bytes().rstrip()
        for length in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises((AssertionError, ValueError, KeyError)):
                check(path)


# ── Stopping ──────────────────────────────────────────────────────────────────────────────────────


def test_an_interrupt_stops_only_the_foreground_plan(agents: Agents) -> None:
    """anthropics/claude-code#76807, #78151: stopping one task ended all background agents.
    anthropics/claude-agent-sdk-typescript#352: the foreground task could not be stopped alone.
    strands-agents/harness-sdk#4419, OpenHands/OpenHands#5817: stopped work was reported as done, or
    reportedly stopped work ran on; so did tools in langchain-ai/langgraph#5682, pydantic/pydantic-ai#3960.
    """
    script = "echo begun > b; until test -e .git/go; do sleep 0.02; done; echo done > c; : {token}"
    token = secrets.randbelow(10**9) + 10**9
    front = start_agents(agents, *shell(script.format(token=token), "--review"))
    behind = start_agents(agents, *shell(script.format(token="other"), "--review"))
    try:
        ids = [plan_begun(agents, process) for process in (front, behind)]
        front.send_signal(signal.SIGINT)
        _, said = front.communicate(timeout=240)
        assert front.returncode == 130, said
        assert alive(token) == []
        (agents.sandbox(ids[1]) / ".git/go").touch()
        _, said = behind.communicate(timeout=240)
        assert behind.returncode == 0, said
    finally:
        for process in (front, behind):
            process.kill()
            process.communicate()
    with agents.container() as container:
        states = [container.plan_parts.plans.get(plan_id).state for plan_id in ids]
    assert states == [PlanState.ERRORED, PlanState.COMPLETE], "the first is paused"
    assert (agents.sandbox(ids[1]) / "c").read_text() == "done\n"
    assert (agents.sandbox(ids[0]) / "c").read_text() != "done\n"


def start_agents(agents: Agents, *line: str) -> subprocess.Popen[str]:
    return Forked(
        [sys.executable, "-m", "cleveragents", *line],
        cwd=agents.repository,
        env=agents.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def plan_begun(agents: Agents, process: subprocess.Popen[str]) -> str:
    """Return the plan's id once its command runs."""
    assert process.stderr is not None
    plan_id = process.stderr.readline().split()[1].rstrip(":")
    mark = agents.sandbox(plan_id) / "b"

    def has_begun() -> bool:
        assert process.poll() is None
        return mark.exists() and mark.read_text() == "begun\n"

    wait_until(has_begun)
    return plan_id


# ── Models and what they cost ─────────────────────────────────────────────────────────────────────


def scripted(agents: Agents, *rules: dict[str, Any], **facts: Any) -> tuple[str, str]:
    """Return the option for a model with these answers."""
    path = agents.home / f"script-{secrets.token_hex(4)}.yaml"
    path.write_text(json.dumps({"version": 1, "facts": facts, "rules": list(rules)}))
    return "--model", f"scripted/{path}"


def alone(*more: str) -> tuple[str, ...]:
    """Return a goal for one actor."""
    return ("run", "--actor", "builtin/executor", *more, "a goal")


def test_a_mismatched_edit_is_diagnosed_and_reverts_nothing(agents: Agents) -> None:
    """griffinwork40/agent-afk#2028: an edit from an old view silently reverted an earlier one.
    holon-run/holon#2741: edits failed for a context that was not shown.
    cardstack/boxel#6101: a model that does not learn of a failure repeats it; here it learns, and does not.
    """
    stale = call("edit", path="a", old="line 4\nline 5\nline 6\n", new="line 4\nline 5\nsix\n")
    mended = call("edit", path="a", old="five\nline 6\n", new="five\nsix\n")
    model = scripted(
        agents,
        {
            "when": {"answer": r"(?s)line 5.*five|five.*line 5"},
            "reply": answer(mended, text="I see: line 5 is not what I took it for."),
        },
        rule(
            answer(call("edit", path="a", old="line 5\n", new="five\n")),
            answer(stale),
            says("not told"),
            says("done"),
        ),
    )
    ran = agents(*alone("--review"), *model)
    assert ran.code == 0, ran
    shown = agents("plan", "show", ran.id, "--format", "json")
    assert [made["state"] for made in json.loads(shown.out)["calls"]] == ["ended", "failed", "ended"]
    text = (agents.sandbox(ran.id) / "a").read_text().splitlines()
    assert text[4:7] == ["line 4", "five", "six"]


def test_a_model_that_repeats_a_failing_edit_is_stopped(agents: Agents) -> None:
    """cardstack/boxel#6101: the same block was sent again and again. anthropics/claude-code#94013: nothing
    would have stopped that.
    """
    model = scripted(agents, {"reply": answer(call("edit", path="a", old="nowhere\n", new="x\n"))})
    ran = agents(*alone(), *model)
    assert ran.code == 1, ran
    assert "failed 3 times in the same way" in ran.err
    shown = json.loads(agents("plan", "show", ran.id, "--format", "json").out)
    assert [made["state"] for made in shown["calls"]] == ["failed"] * 3
    assert shown["spending"]["model_calls"] == 3


def test_an_overlong_conversation_continues_without_a_summary(agents: Agents) -> None:
    """anomalyco/opencode#15849, #17340: the request to shorten a conversation was itself too long, and was
    repeated twenty times a minute. obra/lace#374: once it was too long, nothing succeeded any more.
    """
    script = "echo mark {}; for n in $(seq {}); do echo a rather long line of output number $n; done"
    reading = [
        answer(call("command", script=script.format(n, 900 if n == 8 else 20)), text="I think aloud. " * 200)
        for n in range(9)
    ]
    model = scripted(
        agents,
        {"when": {"system": "You summarise"}, "reply": {"text": "on and on ", "repeat": 4_000}},
        {"when": {"tool": "write"}, "reply": says("done")},
        {"when": {"answer": "mark 8"}, "reply": answer(call("write", path="b", content="done\n"))},
        *[{"when": {"answer": f"mark {n - 1}"}, "reply": reading[n]} for n in range(1, 9)],
        {"reply": reading[0]},
        context_tokens=16_000,
        output_tokens=1_000,
    )
    ran = agents(*alone("--review", "--max-steps", "40"), *model)
    assert ran.code == 0, ran
    assert (agents.sandbox(ran.id) / "b").read_text() == "done\n"
    with agents.container() as container, container.database.read() as connection:
        keys = list(connection.execute(select(model_calls.c.key)).scalars())
    summaries = [key for key in keys if key.endswith("-summary")]
    # It was tried at most once per call; content that cannot be summarised is left out.
    assert 0 < len(summaries) < len(reading)
    assert len(set(keys)) == len(keys)
    assert len(keys) - len(summaries) == len(reading) + 2


def test_a_plan_without_budget_pauses_and_resumes_with_more(agents: Agents) -> None:
    """anthropics/claude-code#94013: a task had no limit at all. microsoft/agent-framework#6934: a limit ends
    it properly, and is named. nbramia/LifeOS#1176: a token limit counts repeated context; a money limit knows
    its lower price, and should pause and ask.
    """
    cheap = {"input": 4_000, "cached": 3_900, "output": 10}
    turns = [answer(call("command", script=f"echo {n} >> b"), usage=cheap) for n in range(6)]
    prices = {"input_price": 10.0, "cached_price": 0.1, "output_price": 10.0, "output_tokens": 1_000}
    model = scripted(agents, rule(*turns, says("done", usage=cheap)), **prices)
    # Each call may cost more than seven cents, but costs a fifth of one.
    ran = agents(*alone("--review", "--max-usd", "0.08", "--format", "json"), *model)
    assert ran.code == NEEDS_HUMAN, ran
    paused = json.loads(ran.out)
    assert paused["state"] == "waiting"
    assert paused["waiting_for"]["for"] == "budget"
    assert "limits.usd" in paused["waiting_for"]["remedies"][0]["options"]
    done = (agents.sandbox(paused["id"]) / "b").read_text().splitlines()[len(LINES) :]
    # If the context counted every time it was sent, the budget would allow only one call.
    assert len(done) >= 2
    assert paused["spending"]["usd"] <= 0.08
    resumed = agents("plan", "resume", paused["id"], "--max-usd", "1", "--format", "json")
    assert resumed.code == 0, resumed
    assert json.loads(resumed.out)["state"] == "complete"
    lines = (agents.sandbox(paused["id"]) / "b").read_text().splitlines()[len(LINES) :]
    assert lines == [str(n) for n in range(6)]


def test_a_recursive_actor_is_refused_and_an_endless_one_is_limited(agents: Agents) -> None:
    """anthropics/claude-code#72732, #69395, #68619: agents started agents, fifty levels deep."""
    looking = {"reply": answer(call("read", path="a"))}
    ran = agents(*alone("--max-steps", "5", "--format", "json"), *scripted(agents, looking))
    assert ran.code == NEEDS_HUMAN, ran
    paused = json.loads(ran.out)
    assert paused["spending"]["model_calls"] == 5
    assert paused["waiting_for"]["for"] == "budget"
    folder = agents.home / ".config" / "cleveragents" / "actors"
    for name, other in (("one", "two"), ("two", "one")):
        write_files(folder, {f"{name}.yaml": SELF_RUNNING.format(name=name, other=other)})
    refused = agents("run", "--actor", "mine/one", *scripted(agents, looking), "a goal")
    assert refused.code in (1, REFUSED), refused
    assert "mine/one" in refused.err
    assert "mine/two" in refused.err


SELF_RUNNING = """
name: mine/{name}
type: graph
entry: below
nodes:
  below: {{type: subgraph, actor: mine/{other}, next: end}}
"""


def test_an_interrupt_cancels_a_streaming_model_call(agents: Agents) -> None:
    """langchain-ai/langgraph#5682, pydantic/pydantic-ai#3960: cancelled work continued to call its model.
    strands-agents/harness-sdk#4419: cancelled work was reported as completed.
    """
    rules = [{"reply": {"text": "word " * 500, "piece_seconds": 0.5}}]
    script = read_script(json.dumps({"version": 1, "rules": rules}), "a script")
    with ScriptedServer(script) as model:
        line = ("--set", f"models.base_url={model.base_url}", *alone("--model", "openai/scripted"))
        front = start_agents(agents, *line)
        try:
            model.wait_until(lambda seen: seen.requests == 1, 240)
            front.send_signal(signal.SIGINT)
            _, said = front.communicate(timeout=240)
        finally:
            front.kill()
            front.communicate()
        assert front.returncode == 130, said
        seen = model.wait_until(lambda seen: seen.open == 0, 240)
        assert (seen.requests, seen.abandoned) == (1, 1)
    with agents.container() as container:
        [plan] = container.plan_parts.plans.list()
        assert (plan.state, plan.error) == (PlanState.ERRORED, PAUSED)
        assert container.plan_parts.actor_parts.budgets.view(plan.id).reserved.tokens == 0
