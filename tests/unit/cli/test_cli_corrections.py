"""`agents plan correct`, what `plan tree` and `explain` tell of corrections, and `plan diff --between`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, strategizes
from tests.cli_bench import COMMAND, Agents, Ended, command_line, paint_shop, use_home

DONE = says("done")


def _decided(question: str, choice: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "choice": choice, "rationale": "it fits", **more}


def _writes(words: str, path: str) -> dict[str, Any]:
    turn = answer(call("write", path=path, content=f"{path}\n"))
    return executes(turn, DONE, when={"first_user": words})


RULES = [
    strategizes(
        says(
            {
                "summary": "s",
                "decisions": [_decided("Which format?", "YAML [a.yaml]", parent=1)],
                "steps": [{"title": "YAML", "instructions": "do it as YAML", "decisions": [4]}],
            }
        ),
        when={"first_user": "This was planned before"},
    ),
    strategizes(
        says(
            {
                "summary": "s",
                "decisions": [
                    _decided("Where?", "in a file"),
                    _decided("Which format?", "JSON", confidence=0.5),
                    _decided("How deep?", "flat", parent=2),
                ],
                "steps": [
                    {"title": "notes", "instructions": "do the notes", "decisions": [1]},
                    {"title": "JSON", "instructions": "do it as JSON", "decisions": [2, 3], "decision": 2},
                ],
            }
        )
    ),
    _writes("do the notes", "notes.txt"),
    _writes("do it as JSON", "a.json"),
    _writes("do it as YAML", "a.yaml"),
    _writes("mention it", "mention.txt"),
    reviews(accept()),
]


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "script.yaml"
    path.write_text(json.dumps({"version": 1, "rules": RULES}))
    return f"scripted/{path}"


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


def goal(agents: Agents, model: str) -> str:
    """A plan that is done and not applied."""
    ended = agents("run", "Keep settings", "--model", model, "--profile", "trusted")
    assert ended.code == 3, ended.err
    assert "unknown keys in a step, ignored: decision" in ended.err
    return ended.id


def shown(ended: Ended) -> Any:
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_a_decision_is_corrected_and_every_branch_stays(agents: Agents, model: str) -> None:
    plan = goal(agents, model)
    explained = agents("plan", "explain", plan, "2")
    assert "carried out by  JSON" in explained.out
    assert f"agents plan correct {plan} 2 --guidance" in explained.err

    tried = agents("plan", "correct", plan, "2", "--dry-run")
    assert tried.code == 0, tried.err
    assert tried.out.splitlines() == [
        "superseded:",
        "  2. Which format? → JSON",
        "  3. How deep? → flat",
        "undone: 1 call, from checkpoint 2 on",
        "  step: JSON",
        "  file: a.json",
    ]
    assert "pass --guidance instead of --dry-run to correct the decision" in tried.err
    guided = agents("plan", "correct", plan, "2", "--dry-run", "--guidance", "people want comments")
    assert (
        guided.out,
        "nothing was changed; repeat without --dry-run to correct the decision" in guided.err,
    ) == (tried.out, True)
    facts = shown(agents("plan", "correct", f"{plan}.2", "--dry-run", "--format", "json"))
    assert [one["number"] for one in facts["superseded"]] == [2, 3]
    assert (facts["checkpoint"], facts["calls"], facts["files"], facts["steps"]) == (
        2,
        1,
        ["a.json"],
        ["JSON"],
    )
    assert facts["sub_plans"] == []

    corrected = agents("plan", "correct", f"{plan}.2", "--guidance", "people want comments")
    assert corrected.code == 3, corrected.err
    told = "decision 2 is superseded, with 1 that follows from it; rolled back to checkpoint 2"
    assert told in corrected.err
    assert "kept: 1. notes" in corrected.err
    assert sorted(agents("plan", "diff", plan, "--name-only").out.split()) == ["a.yaml", "notes.txt"]

    tree = agents("plan", "tree", plan)
    assert "JSON" not in tree.out
    assert "4. Which format? → YAML [a.yaml]" in tree.out
    assert "superseded: 2 decisions; show them with --all" in tree.err
    every = agents("plan", "tree", plan, "--all").out
    assert "2. Which format? → JSON (50%) [superseded by correction 1: people want comments]" in every
    assert "3. How deep? → flat [superseded by correction 1]" in every
    rows = shown(agents("plan", "tree", plan, "--all", "--format", "json"))
    assert [row["state"] for row in rows] == ["active", "superseded", "superseded", "active"]
    assert rows[2]["superseded_by"]["correction"] == 1
    assert rows[3]["superseded_by"] is None
    explained = agents("plan", "explain", plan, "3")
    assert "superseded by  correction 1: people want comments" in explained.out
    assert "correct it with" not in explained.err
    assert shown(agents("plan", "explain", plan, "4", "--format", "json"))["steps"] == ["YAML"]

    between = agents("plan", "diff", "--between", f"{plan}@1", plan, "--name-only")
    assert between.out.split() == ["a.json", "a.yaml"]
    assert "a.yaml" not in agents("plan", "diff", "--between", f"{plan}@1", plan, "a.json", "--stat").out
    files = shown(agents("plan", "diff", "--between", f"{plan}@1", plan, "--format", "json"))
    assert [(file["path"], file["change"], file["added"]) for file in files] == [
        ("a.json", "deleted", 0),
        ("a.yaml", "created", 1),
    ]
    same = agents("plan", "diff", "--between", plan, plan)
    assert (same.out, same.err.strip()) == ("", "no differences")


def test_guidance_is_added_from_stdin_without_undoing_anything(agents: Agents, model: str) -> None:
    plan = goal(agents, model)
    ended = agents("plan", "correct", plan, "--append", "--guidance", "-", "--yes", typed="mention it\n")
    assert ended.code == 0, ended.err
    assert "applies from now on; nothing is undone" in ended.err
    assert {path.name for path in Path.cwd().iterdir()} >= {"notes.txt", "a.json", "mention.txt"}


def test_two_plans_are_compared_though_each_has_a_sandbox_of_its_own(agents: Agents, model: str) -> None:
    one, other = goal(agents, model), goal(agents, model)
    assert agents("plan", "correct", other, "2", "--guidance", "no JSON", "--model", model).code == 3
    ended = agents("plan", "diff", "--between", f"{other}@2", one)
    assert "no correction 2; the plan has 1" in ended.err
    between = agents("plan", "diff", "--between", one, other)
    assert "-a.json" in between.out
    assert "+a.yaml" in between.out


def test_plans_of_different_repositories_are_compared_with_a_word_on_that(
    agents: Agents, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = goal(agents, model)
    assert "different repositories" not in agents("plan", "diff", "--between", one, one).err
    monkeypatch.chdir(paint_shop(tmp_path / "elsewhere"))
    between = agents("plan", "diff", "--between", one, goal(agents, model))
    assert "the plans are of different repositories" in between.err
    assert str(tmp_path / "elsewhere") in between.err.replace("\n", "")
    assert "different" not in between.out


def test_edits_by_hand_that_a_correction_undoes_or_keeps_are_named(agents: Agents, model: str) -> None:
    plan = goal(agents, model)
    root = Path(shown(agents("plan", "show", plan, "--format", "json"))["sandbox"])
    (root / "a.json").write_text("by hand\n")
    (root / "mine.txt").write_text("mine\n")
    assert agents("plan", "reread", plan).code == 0
    tried = agents("plan", "correct", plan, "2", "--dry-run").out
    assert "  file: a.json (edited by hand)" in tried
    assert "kept: mine.txt (edited by hand)" in tried
    assert "file: mine.txt" not in tried
    corrected = agents("plan", "correct", plan, "2", "--guidance", "people want comments")
    assert "edits by hand that are undone as well: 1 file (a.json)" in corrected.err
    assert "manual edits kept: 1 file (mine.txt)" in corrected.err
    assert "manual edits undone: 1 file (a.json)" in corrected.err
    assert sorted(agents("plan", "diff", plan, "--name-only").out.split()) == [
        "a.yaml",
        "mine.txt",
        "notes.txt",
    ]


def test_impossible_corrections_and_comparisons_name_the_reason(agents: Agents, model: str) -> None:
    plan = goal(agents, model)
    wrong: dict[tuple[str, ...], str] = {
        ("correct", plan, "9", "--guidance", "x"): "has no decision 9; it has 3",
        ("correct", plan, "1", "--guidance", " "): "the guidance is empty",
        ("correct", plan, "1"): "missing --guidance",
        ("correct", plan, "--guidance", "x"): "missing DECISION",
        ("correct", f"{plan}.x", "--guidance", "x"): "is not PLAN.DECISION",
        ("correct", f"{plan}.1", "2", "--guidance", "x"): "is not PLAN.DECISION",
        ("correct", plan, "1", "--append", "--guidance", "x"): "omit DECISION",
        ("diff", "--between", f"{plan}@1", plan): "no correction 1; the plan was never corrected",
        ("diff", "--between", f"{plan}@", plan): "is not PLAN or PLAN@NUMBER",
        ("diff", "--between", plan, plan, "--stat", "--name-only"): "exclude each other",
    }
    for words, why in wrong.items():
        ended = agents("plan", *words)
        assert ended.code == 2 or ended.code == 1, (words, ended)
        assert why in " ".join(ended.err.split()), (words, ended.err)
    assert agents("plan", "reject", plan).code == 0
    ended = agents("plan", "correct", plan, "1", "--guidance", "x")
    assert "already discarded, which is final; start a new plan" in ended.err


def test_a_plan_without_actors_has_no_decisions(agents: Agents) -> None:
    plan = agents(*COMMAND, "true").id
    ended = agents("plan", "correct", plan, "1", "--guidance", "x")
    assert "a plan of fixed steps has no decisions" in ended.err
    assert "no decisions" in agents("plan", "tree", plan).err


def test_sub_plans_are_shown_below_the_decisions(agents: Agents, tmp_path: Path) -> None:
    goals = tmp_path / "goals.yaml"
    goals.write_text(
        "goals:\n"
        "  - {name: one, action: builtin/command, arguments: {argv: [touch, one.txt]}}\n"
        "  - {name: two, action: builtin/command, arguments: {argv: [touch, two.txt]}}\n"
    )
    ran = agents("run", "-f", str(goals), "--profile", "trusted")
    plan = next(row for row in shown(agents("plan", "list", "--format", "json")) if row["parent"] is None)[
        "id"
    ]
    tree = agents("plan", "tree", plan)
    assert tree.out.count("sub-plan ") == 2, (ran, tree)
    assert tree.out.count("(merged)") == 2
    rows = shown(agents("plan", "tree", plan, "--format", "json"))
    assert [(row["kind"], row["key"], row["state"]) for row in rows] == [
        ("sub-plan", "1", "complete"),
        ("sub-plan", "2", "complete"),
    ]


def test_a_removed_result_cannot_be_compared(agents: Agents, model: str, tmp_path: Path) -> None:
    plan = goal(agents, model)
    assert "has no decision 9; it has 3" in agents("plan", "explain", plan, "9").err
    assert agents("plan", "cancel", plan, "--remove-sandbox").code == 0
    assert "the sandbox was removed" in agents("plan", "diff", "--between", plan, plan).err


def test_a_dry_run_names_a_few_files_and_says_when_nothing_was_done(agents: Agents, tmp_path: Path) -> None:
    made = answer(call("command", script="for i in $(seq 30); do echo > f$i.txt; done"))
    path = tmp_path / "many.yaml"
    first, *_ = (rule for rule in RULES[1:] if "first_user" not in rule["when"])
    rules = [first, executes(made, DONE, when={"first_user": "do the notes"}), reviews(accept())]
    path.write_text(json.dumps({"version": 1, "rules": rules}))
    ended = agents("run", "Keep settings", "--model", f"scripted/{path}", "--profile", "trusted")
    assert ended.code == 1  # nobody does the second step
    tried = agents("plan", "correct", ended.id, "1", "--dry-run")
    assert "  … and 10 more files" in tried.out
    later = agents("plan", "correct", ended.id, "2", "--dry-run")
    assert "undone: nothing; no work was done yet" in later.out
