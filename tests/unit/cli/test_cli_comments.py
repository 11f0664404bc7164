"""`agents plan comment`, `comments`, `revise`, and hunks in `diff` and `review`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.cli_bench import COMMAND, Agents, command_line, paint_shop, use_home

DONE = says("done")
RULES = [
    executes(
        answer(call("edit", path="a.txt", old="two", new="2")),
        answer(call("answer_comment", comment=1, resolution="resolved", reason="a digit now")),
        answer(call("answer_comment", comment=2, resolution="declined", reason="there is none")),
        DONE,
        when={"first_user": "Changes to your result are requested"},
    ),
    executes(answer(call("write", path="a.txt", content="one\ntwo\n")), DONE),
    strategizes(steps({"title": "make it", "instructions": "make it"})),
    reviews(accept()),
]


@pytest.fixture
def agents(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    monkeypatch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(paint_shop(tmp_path / "repository"))
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.fixture
def plan(agents: Agents, tmp_path: Path) -> str:
    path = tmp_path / "script.yaml"
    path.write_text(json.dumps({"version": 1, "rules": RULES}))
    ended = agents("run", "Count", "--model", f"scripted/{path}", "--profile", "trusted")
    assert ended.code == 3, ended.err
    return ended.id


def test_comments_are_sent_to_the_agent_and_answered(agents: Agents, plan: str) -> None:
    made = agents("plan", "comment", plan, "a.txt:2", "write a digit")
    assert (made.code, "comment 1 on a.txt:2" in made.err) == (0, True), made.err
    assert made.err.endswith("\n  > two\n")
    assert agents("plan", "comment", plan, "and a changelog").code == 0
    shown = agents("plan", "show", plan)
    assert f"agents plan revise {plan}" in shown.out + shown.err
    revised = agents("plan", "revise", plan, "-m", "keep it short")
    assert revised.code == 3, revised.err
    assert "2 comments sent to the agent" in revised.err
    listed = agents("plan", "comments", plan)
    assert "1. resolved, outdated: a.txt:2, by owner" in listed.out
    assert "  > two" in listed.out
    assert "resolved by builtin/executor (call 2): a digit now" in listed.out
    assert "declined by builtin/executor: there is none" in listed.out
    found = json.loads(agents("plan", "comments", plan, "--state", "declined", "--format", "json").out)
    assert [one["number"] for one in found] == [2]
    again = agents("plan", "revise", plan)
    assert (again.code, "no open comment to send" in again.err) == (2, True)


def revised_badly(agents: Agents, path: Path, *turns: dict[str, Any], options: tuple[str, ...] = ()) -> str:
    """Return a plan with a result whose revision ended with these turns."""
    broken = executes(*turns, when={"first_user": "Changes to your result are requested"})
    unfixed = executes(DONE, when={"first_user": "does not pass"})
    path.write_text(json.dumps({"version": 1, "rules": [broken, unfixed, *RULES[1:]]}))
    plan = agents("run", "Count", "--model", f"scripted/{path}", "--profile", "trusted", *options).id
    agents("plan", "comment", plan, "a.txt:2", "write a digit")
    assert agents("plan", "revise", plan, "-m", "use digits").code in (1, 3)
    assert "+2" in agents("plan", "diff", plan).out
    return plan


DIGIT = answer(call("edit", path="a.txt", old="two", new="2"))


def test_the_result_from_before_a_failed_revision_is_applied(agents: Agents, tmp_path: Path) -> None:
    plan = revised_badly(agents, tmp_path / "broken.yaml", DIGIT, answer(fault={"status": 400}))
    shown = agents("plan", "show", plan).out
    assert f"agents plan resume {plan} --model PROVIDER/NAME" in shown
    assert re.search(rf"agents plan rollback {plan} +return to the result from before the revision", shown)
    refused = agents("plan", "apply", plan)
    assert "only a finished result can be applied" in refused.err
    assert f"agents plan rollback {plan}" in refused.err
    mine = Path(json.loads(agents("plan", "show", plan, "--format", "json").out)["sandbox"]) / "mine.txt"
    mine.write_text("by hand\n")
    assert agents("plan", "capture", plan).code == 0
    refused = agents("plan", "rollback", plan)
    assert (refused.code, "since the earlier result: mine.txt" in refused.err) == (3, True), refused.err
    assert refused.err.count(f"Discard the edits: agents plan rollback {plan} --yes") == 1
    assert agents("plan", "rollback", plan, typed="n\n").code == 130
    assert mine.exists()
    back = agents("plan", "rollback", plan, typed="y\n")
    assert (back.code, "returned to the result from before the revision" in back.err) == (0, True), back.err
    view = json.loads(agents("plan", "show", plan, "--format", "json").out)
    assert (view["status"], view["open_comments"]) == ("ready", 1)
    assert agents("plan", "apply", plan).code == 0
    assert Path("a.txt").read_text() == "one\ntwo\n"
    assert "no unfinished revision" in agents("plan", "rollback", plan).err


def test_the_result_from_before_a_revision_with_failed_checks_is_applied(
    agents: Agents, tmp_path: Path
) -> None:
    checks = ("--check", "grep -q two a.txt")
    plan = revised_badly(agents, tmp_path / "broken.yaml", DIGIT, DONE, options=checks)
    shown = agents("plan", "show", plan).out
    assert re.search(rf"agents plan rollback {plan} +return to the result from before the revision", shown)
    assert agents("plan", "apply", plan).code == 3
    assert f"agents plan rollback {plan}" in agents("plan", "show", plan).out
    assert agents("plan", "rollback", plan).code == 0
    assert agents("plan", "apply", plan).code == 0
    assert Path("a.txt").read_text() == "one\ntwo\n"


def test_a_person_answers_comments_too(agents: Agents, plan: str) -> None:
    agents("plan", "comment", plan, "a changelog")
    assert "comment 1: resolved" in agents("plan", "comment", plan, "--resolve", "1", "done by hand").err
    assert "resolved by owner: done by hand" in agents("plan", "comments", plan).out
    assert "no open comments" in agents("plan", "comments", plan, "--state", "open").err
    assert "comment 1: open" in agents("plan", "comment", plan, "--reopen", "1").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing TEXT"),
        (("a.txt:2",), "missing TEXT after a.txt:2"),
        (("not a place", "text"), "is not PATH:LINE"),
        (("a.txt:1", "some", "text"), "put TEXT in quotes"),
        (("b.txt:1", "text"), "did not change 'b.txt'"),
        (("a.txt:9", "text"), "a.txt has 2 lines"),
        (("a.txt:2-1", "text"), "lines 2-1"),
        (("--resolve", "7"), "has no comment 7"),
        (("--resolve", "1", "--reopen", "2"), "exclude each other"),
    ],
)
def test_impossible_comments_name_the_reason(
    agents: Agents, plan: str, words: tuple[str, ...], said: str
) -> None:
    ended = agents("plan", "comment", plan, *words)
    assert ended.code != 0
    assert said in ended.err


def test_a_removed_line_is_commented_on_in_the_file_before_the_change(agents: Agents, tmp_path: Path) -> None:
    file = tmp_path / "repository" / "many.txt"
    file.write_text("one\ntwo\nthree\n")
    change = "sed -i -e /two/d many.txt"
    plan = agents(*COMMAND[:-1], "--profile", "trusted", "--", "sh", "-c", change).id
    made = agents("plan", "comment", plan, "--old", "many.txt:2", "keep it")
    assert (made.code, "comment 1 on many.txt:2 (before the change)" in made.err) == (0, True), made.err
    listed = agents("plan", "comments", plan).out
    assert "1. open: many.txt:2 (before the change), by owner\n  > two\n  keep it\n" in listed
    (shown,) = json.loads(agents("plan", "comments", plan, "--format", "json").out)
    assert (shown["side"], shown["lines"], shown["outdated"]) == ("before", ["two"], False)
    for words, said in (
        (("--old", "many.txt:4", "no such line"), "has 3 lines"),
        (("--old", "only text"), "--old needs PATH:LINE and TEXT"),
        (("many.txt:3", "gone"), "has 2 lines"),
    ):
        refused = agents("plan", "comment", plan, *words)
        assert (refused.code, said in " ".join(refused.err.split())) == (2, True), refused.err


def test_a_comment_quotes_its_first_lines(agents: Agents) -> None:
    plan = agents(*COMMAND[:-1], "--profile", "trusted", "--", "sh", "-c", "seq 9 > made.txt").id
    made = agents("plan", "comment", plan, "made.txt:2-8", "why")
    assert made.err.endswith("  > 2\n  > 3\n  > 4\n  > 5\n  > 6\n  … 2 more lines\n")


def test_a_hunk_is_left_out_and_included_again(agents: Agents, tmp_path: Path) -> None:
    file = tmp_path / "repository" / "many.txt"
    file.write_text("".join(f"{n}\n" for n in range(1, 31)))
    change = "sed -i -e s/^2$/two/ -e s/^28$/last/ many.txt; echo 1 > made.txt"
    ended = agents(*COMMAND[:-1], "--profile", "trusted", "--", "sh", "-c", change)
    assert ended.code == 3, ended.err
    plan = ended.id
    shown = agents("plan", "diff", plan, "--hunks").out
    first, second = re.findall(r"(many\.txt:[12]@[0-9a-f]{6})\n@@", shown)
    left = agents("plan", "review", plan, "--reject-hunk", second)
    assert (left.code, f"left out: hunk {second}" in left.err) == (0, True), left.err
    assert f"{second}: left out" in agents("plan", "diff", plan, "--hunks").out
    assert "+last" not in agents("plan", "diff", plan).out
    files = json.loads(agents("plan", "diff", plan, "--hunks", "many.txt", "--format", "json").out)
    assert [hunk["accepted"] for hunk in files[0]["hunks"]] == [True, False]
    assert f"included: hunk {second}" in agents("plan", "review", plan, "--accept-hunk", second).err
    assert "+last" in agents("plan", "diff", plan).out
    assert "revise" not in agents("plan", "comment", plan, "fixed steps cannot be revised").err
    assert "plan revise" not in agents("plan", "show", plan).out
    for words, said in (
        (("--reject-hunk", "many.txt:9"), "no hunk 'many.txt:9'"),
        (("--reject-hunk", "made.txt:1"), "made.txt:1 is a whole file"),
        (("--reject-hunk", first, "made.txt"), "pass hunks without PATHS"),
        (("--reject-hunk", "many.txt:1"), "many.txt:1 has no version"),
    ):
        refused = agents("plan", "review", plan, *words)
        assert (refused.code, said in " ".join(refused.err.split())) == (2, True), refused.err
    # A number of the diff that was seen must not name another hunk of a later version.
    sandbox = json.loads(agents("plan", "show", plan, "--format", "json").out)["sandbox"]
    edited = Path(sandbox, "many.txt")
    edited.write_text(edited.read_text().replace("15\n", "fifteen\n"))
    assert agents("plan", "capture", plan).code == 0
    stale = agents("plan", "review", plan, "--reject-hunk", second)
    assert (stale.code, f"{second} has changed since" in " ".join(stale.err.split())) == (2, True)
