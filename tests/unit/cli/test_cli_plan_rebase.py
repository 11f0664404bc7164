"""`agents plan rebase`: a result that conflicts with the repository is merged, resolved and applied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cleveragents.cli.plan.conflicts import _tell_blocked
from tests.cli_bench import COMMAND, Agents, command_line, git, use_home

TEXT = "".join(f"line {number}\n" for number in range(1, 10))


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    shop = tmp_path / "shop"
    shop.mkdir()
    git(shop, "init", "-q")
    (shop / "text.txt").write_text(TEXT)
    (shop / "other.txt").write_text("other\n")
    git(shop, "add", "-A")
    git(shop, "commit", "-qm", "first")
    monkeypatch.chdir(shop)
    with command_line(monkeypatch, capfd) as made:
        yield made


def made(agents: Agents, script: str, *options: str) -> str:
    """Return a plan whose result is ready for review."""
    ended = agents(*COMMAND[:-1], *options, "--review", "--", "sh", "-c", script)
    assert ended.code in (0, 3), ended.err  # a check may need the changes of another plan
    return ended.id


def edit(number: int, text: str) -> str:
    return f"sed -i 's/^line {number}$/{text}/' text.txt"


def applied(agents: Agents, plan: str) -> None:
    ended = agents("plan", "apply", plan)
    assert ended.code == 0, ended.err


def test_a_rebase_merges_what_does_not_overlap(agents: Agents) -> None:
    first = made(agents, f"{edit(1, 'first')}; echo new > new.txt")
    second = made(agents, f"{edit(1, 'first')}; {edit(8, 'second')}", "--check", "test -f new.txt")
    applied(agents, first)
    before = json.loads(agents("plan", "show", second, "--format", "json").out)
    assert "rebase" in before["can"]

    rebased = agents("plan", "rebase", second)
    assert rebased.code == 0, rebased.err
    assert "merged with the current files" in rebased.err

    shown = json.loads(agents("plan", "show", second, "--format", "json").out)
    assert (shown["status"], [check["verdict"] for check in shown["checks"]]) == ("ready", ["passed"])
    assert [row["path"] for row in shown["changes"]] == ["text.txt"]
    diff = agents("plan", "diff", second).out
    assert "+second" in diff
    assert "first" not in diff.replace(" first", "")  # only as context
    assert "new.txt" not in diff
    applied(agents, second)
    assert Path("text.txt").read_text() == TEXT.replace("line 1\n", "first\n").replace("line 8", "second")


def test_a_conflict_is_resolved_in_the_sandbox_and_applied(agents: Agents) -> None:
    first = made(agents, edit(1, "by one"))
    second = made(agents, f"{edit(1, 'by two')}; {edit(8, 'two')}", "--check", "true")
    applied(agents, first)
    blocked = agents("plan", "apply", second)
    assert blocked.code == 3
    assert f"agents plan rebase {second}" in blocked.err
    assert "you resolve the conflicts" in blocked.err
    assert "the agent" not in blocked.err, "a plan of fixed steps has no agent"

    listed = agents("plan", "resolve", second)
    assert (listed.code, "by one" in listed.out, "by two" in listed.out) == (0, True, True)
    assert f"agents plan rebase {second}" in listed.err
    assert "the agent" not in listed.err

    rebased = agents("plan", "rebase", second)
    assert rebased.code == 3, rebased.err
    assert Path("text.txt").read_text() == TEXT.replace("line 1\n", "by one\n")
    shown = json.loads(agents("plan", "show", second, "--format", "json").out)
    assert shown["status"] == "waiting"
    (conflict,) = json.loads(agents("plan", "resolve", second, "--format", "json").out)
    assert (conflict["ours"]["name"], conflict["theirs"]["name"]) == ("this plan", "the repository")
    assert "<<<<<<< plan" in Path(conflict["file"]).read_text()
    assert agents("plan", "apply", second).code != 0
    Path(conflict["file"]).write_text(TEXT.replace("line 1\n", "by both\n").replace("line 8", "two"))
    resolved = agents("plan", "resolve", second, "text.txt", "--edited")
    assert resolved.code == 0, resolved.err
    early = agents("plan", "apply", second)
    assert early.code != 0
    assert "all conflicts are resolved, but the plan must continue first" in " ".join(early.err.split())
    assert f"agents plan resume {second}" in early.err
    assert "Resolve each conflict" not in early.err
    assert agents("plan", "resume", second, "--yes").code == 0
    assert Path("text.txt").read_text() == TEXT.replace("line 1\n", "by both\n").replace("line 8", "two")

    undone = agents("plan", "undo", second)
    assert undone.code == 0, undone.err
    assert Path("text.txt").read_text() == TEXT.replace("line 1\n", "by one\n")


@pytest.mark.parametrize(("side", "text"), [("ours", "by two"), ("theirs", "by one")])
def test_a_side_can_be_taken_right_after_a_failed_apply(agents: Agents, side: str, text: str) -> None:
    first = made(agents, edit(1, "by one"))
    second = made(agents, f"{edit(1, 'by two')}; {edit(8, 'two')}")
    applied(agents, first)
    assert agents("plan", "apply", second).code == 3

    resolved = agents("plan", "resolve", second, "text.txt", f"--{side}")
    assert resolved.code == 0, resolved.err
    assert f"agents plan apply {second}" in resolved.err
    shown = agents("plan", "show", second).out
    assert "all conflicts are resolved; can be applied again" in shown
    assert "could not be applied" not in shown
    assert "apply the result to your files" in shown
    applied(agents, second)
    assert Path("text.txt").read_text() == TEXT.replace("line 1\n", f"{text}\n").replace("line 8", "two")


def test_an_unchanged_repository_is_already_up_to_date(agents: Agents) -> None:
    plan = made(agents, edit(1, "one"))
    rebased = agents("plan", "rebase", plan)
    assert (rebased.code, "already up to date" in rebased.err) == (0, True)
    assert "rebase" not in agents("plan", "log", plan).out
    applied(agents, plan)
    again = agents("plan", "rebase", plan)
    assert again.code != 0
    assert "only a result that is not applied can be rebased" in again.err


def test_a_rollback_of_a_rebase_restores_the_earlier_base(agents: Agents) -> None:
    plan = made(agents, edit(1, "one"))
    before = agents("plan", "diff", plan).out
    Path("other.txt").write_text("changed\n")
    Path("text.txt").write_text(TEXT.replace("line 1\n", "zero\nline 1\n").replace("line 9", "nine"))
    assert agents("plan", "rebase", plan).code == 3
    log = json.loads(agents("plan", "log", plan, "--format", "json").out)
    number = next(call["number"] for call in log if call["tool"] == "rebase")
    back = agents("plan", "rollback", plan, str(number))
    assert back.code == 0, back.err
    assert agents("plan", "diff", plan).out == before
    assert json.loads(agents("plan", "show", plan, "--format", "json").out)["conflicts"] == []


def test_a_file_left_out_stays_left_out(agents: Agents) -> None:
    plan = made(agents, f"{edit(1, 'one')}; echo plan > other.txt")
    assert agents("plan", "review", plan, "--reject", "other.txt").code == 0
    Path("other.txt").write_text("mine\n")
    assert agents("plan", "rebase", plan).code == 0
    shown = json.loads(agents("plan", "show", plan, "--format", "json").out)
    assert [row["path"] for row in shown["changes"]] == ["text.txt"]
    applied(agents, plan)
    assert Path("other.txt").read_text() == "mine\n"


def test_a_plan_can_be_rebased_again(agents: Agents) -> None:
    plan = made(agents, edit(1, "one"))
    for text in ("second", "third"):
        Path("other.txt").write_text(f"{text}\n")
        Path("text.txt").write_text(TEXT.replace("line 9", text))
        rebased = agents("plan", "rebase", plan)
        assert rebased.code == 0, rebased.err
    patch = agents("plan", "diff", plan).out
    assert [line for line in patch.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")] == [
        "-line 1",
        "+one",
    ]
    applied(agents, plan)
    assert Path("text.txt").read_text() == TEXT.replace("line 1\n", "one\n").replace("line 9", "third")


def test_a_conflict_that_no_rebase_can_resolve_names_another_way(capsys: pytest.CaptureFixture[str]) -> None:
    """A server of 0.1.0 has no rebase."""
    blocked: Any = SimpleNamespace(details="text.txt: both sides changed the same lines", paths=("text.txt",))
    plan: Any = SimpleNamespace(id="7QX2", in_the_way=blocked, can=("apply", "review"), conflicts=())
    _tell_blocked(plan, "agents")
    said = capsys.readouterr()
    assert "agents plan review 7QX2 PATH" in said.err
    assert "rebase" not in said.err
