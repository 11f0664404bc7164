"""While a process swaps a directory of a sandbox for a link, no operation reads or writes outside of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.actors.model.actor import AcpNode, Actor, AgentNode, CommandNode, StateKey
from cleveragents.core.actions.model import Setup
from cleveragents.core.errors import CleverAgentsError
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.sandboxes.lock import marked
from cleveragents.storage.files.paths import remove_all
from tests.acp_bench import PROGRAMS
from tests.agent_bench import AgentBench, agent_bench
from tests.cli_bench import COMMAND, Agents, command_line, use_home
from tests.hostile_tree import CANARY, swapping, watching_opens
from tests.merge_stand import MergeStand
from tests.plan_bench import check, command
from tests.sandbox_resources import fingerprint, make_repository, write

FILES = {"a.txt": "a\n", ".gitignore": "*.log\nbuild*\n", "AGENTS.md": "Be brief.\n"}
FILES |= {f"d/f{number}": f"{number}\n" for number in range(10)}
EDITS = {"d/f1": "edited\n", "d/new": "new\n", "d/x.log": "log\n", "build/x": "x\n", "build/y/z": "z\n"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a directory with the names that `d` has in the sandbox."""
    names = (
        "f1",
        "f2",
        "new",
        "x",
        "x.log",
        "y/z",
        "secret",
        ".gitignore",
        "AGENTS.md",
        "SKILL.md",
        ".git/HEAD",
    )
    write(tmp_path / "outside", dict.fromkeys(names, f"{CANARY}\n"))
    return tmp_path / "outside"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository", dict(FILES))


@pytest.fixture
def agents(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, repository.parent / "home", repository.parent / "state")
    monkeypatch.chdir(repository)
    with command_line(monkeypatch, capfd) as run:
        yield run


def kept_below(place: Path) -> bytes:
    """Return the content of all files below."""
    files = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    return b"".join(path.read_bytes() for path in files if path.is_file() and not path.is_symlink())


def operations(plan: str, tree: Path, backup: Path) -> Iterator[tuple[str, ...]]:
    """Return command lines; those that change the most come last."""
    yield ("plan", "show", plan)
    yield ("plan", "diff", plan)
    yield ("context", "--in", str(tree), "what is new in f1")
    yield ("doctor",)
    yield ("backup", str(backup))
    yield ("plan", "rollback", plan, "1", "--yes")
    yield ("plan", "resume", plan)  # repeats the call, and runs the checks
    yield ("plan", "reread", plan)
    yield ("plan", "review", plan, "a.txt", "--accept")
    yield ("plan", "apply", plan)
    yield ("plan", "undo", plan)
    yield ("doctor", "--fix")
    yield ("gc", "--older-than", "0m")
    yield ("plan", "delete", plan, "--yes")


@pytest.mark.parametrize("swapped", ["d", "build"], ids=["tracked", "ignored"])
def test_no_operation_follows_a_swapped_directory(
    tmp_path: Path, outside: Path, agents: Agents, swapped: str
) -> None:
    plan = agents(*COMMAND[:-1], "--review", "--check", "true", "--", "cp", "AGENTS.md", "a.txt").id
    (tree,) = (tmp_path / "state/sandboxes").glob("*/tree")
    write(tree, dict(EDITS))
    assert agents("plan", "reread", plan).code == 0
    before = fingerprint(outside)
    with watching_opens(outside) as opened, swapping(tree / swapped, outside):
        for operation in operations(plan, tree, tmp_path / "backup"):
            ended = agents(*operation)
            assert ended.code in (0, 3) or "error: " in ended.err, (operation, ended)
            assert "usage: " not in ended.err, (operation, ended)
            assert CANARY not in ended.out + ended.err, operation
            assert opened() == set(), operation
    assert fingerprint(outside) == before
    for place in ("state", "backup", "repository"):
        assert CANARY.encode() not in kept_below(tmp_path / place)


def test_a_tree_is_removed_without_opening_what_may_be_a_link_or_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "tree", dict(EDITS))
    flags: list[int] = []
    real_open = os.open

    def recorded(path: str, flag: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            flags.append(flag)
        return real_open(path, flag, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", recorded)
    remove_all(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert flags
    assert all(flag & os.O_NOFOLLOW and flag & os.O_DIRECTORY for flag in flags)


def test_no_sub_plan_merge_follows_a_swapped_directory(
    tmp_path: Path, repository: Path, outside: Path
) -> None:
    stand = MergeStand(tmp_path, repository)
    with stand.container:
        parent = stand.parent()
        children = [stand.child(parent, f"part {number}") for number in range(3)]
        for number, child in enumerate(children):
            child.writes({f"d/f{number}": "changed\n", f"d/new{number}": "new\n", "d/f9": f"by {number}\n"})
        before = fingerprint(outside)
        said = ""
        with watching_opens(outside) as opened, swapping(parent.sandbox.root / "d", outside):
            for number, child in enumerate(children, start=1):
                try:
                    said += repr(stand.merge(parent, child, str(number)))
                except CleverAgentsError as error:
                    said += f"{error}"
            assert opened() == set()
        assert CANARY not in said
        assert fingerprint(outside) == before
    assert CANARY.encode() not in kept_below(tmp_path / "state")


PLANTING = """
for made in .git inner/.git; do
  mkdir -p $made/objects/info $made/refs $made/hooks
  echo '[core] fsmonitor = false' > $made/config
  echo x > $made/hooks/post-checkout
done
echo 'ref: refs/heads/main' > inner/.git/HEAD
echo /etc > .git/objects/info/alternates
echo planted > %(trace)s
"""
PLANTED = ("hooks", "config", "objects/info/alternates")


def planted_in(git: Path) -> list[str]:
    found = [git / name for name in PLANTED if (git / name).exists()]
    return [path.name for path in found if path.is_dir() or re.search("fsmonitor|/etc", path.read_text())]


def planting_plan(bench: AgentBench, kind: str, planting: str) -> Plan:
    """Create a plan in which a program of that kind plants code when it is ended."""
    waiting = "trap 'plant; exit' TERM; while :; do sleep 0.05; done"
    late = f"( plant() {{ {planting} }}; {waiting} ) & sleep 0.3"
    if kind == "command":
        return bench.plan(command(late))
    if kind == "setup":
        return bench.plan(command("true"), setup=Setup(late))
    if kind == "check":
        return bench.plan(command("true"), checks=[check(late)])
    if kind == "external agent":
        node: AgentNode = CommandNode(
            name="work", argv=("/bin/sh", "-c", late), prompt="go", output="report", prompt_by="argument"
        )
    else:
        speaking = f"trap : TERM; {sys.executable} {PROGRAMS / 'plain.py'}; {planting}"
        node = AcpNode(
            name="work", argv=("/bin/sh", "-c", speaking), prompt='[["say", "done"]]', output="report"
        )
    return bench.task(Actor(name="tests/planting", entry="work", nodes=(node,), state=(StateKey("report"),)))


@pytest.mark.parametrize("kind", ["command", "setup", "check", "external agent", "ACP agent"])
def test_code_planted_by_a_terminated_program_is_removed(tmp_path: Path, kind: str) -> None:
    with agent_bench(tmp_path / "home") as bench:
        plan = bench.work(planting_plan(bench, kind, PLANTING % {"trace": tmp_path / "planted"}))
        assert plan.state is PlanState.COMPLETE, plan.error
        assert (tmp_path / "planted").exists()
        tree = bench.parts.sandboxes.directory / plan.id / "tree"
        assert [planted_in(tree / ".git"), planted_in(tree / "inner/.git")] == [[], []]


def test_code_planted_under_a_killed_worker_is_removed_on_open(tmp_path: Path) -> None:
    """They end after their worker, without supervision."""
    with agent_bench(tmp_path / "home") as bench:
        plan = bench.done(command("true"))
        sandbox = bench.sandbox(plan)
        script = f"cd {sandbox.root}; {PLANTING % {'trace': tmp_path / 'planted'}}"
        mark = sandbox.root.parent / "engine/occupied"
        with marked(mark), sandbox.occupied():
            subprocess.run(["sh", "-c", script], check=True)
            bench.sandbox(plan)
            assert planted_in(sandbox.root / ".git") != [], "a running program is not disturbed"
        for _ in range(2):
            subprocess.run(["sh", "-c", script], check=True)
            bench.sandbox(plan)
            assert planted_in(sandbox.root / ".git") == []
            assert planted_in(sandbox.root / "inner/.git") == []
        with sandbox.occupied():
            pass
        assert mark.stat().st_size == 0
