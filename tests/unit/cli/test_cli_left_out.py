"""Parts that were cancelled or merged, from the command line: what is said of them, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli_bench import Agents, Ended, paint_shop, use_home

THREE = """\
goals:
  - {name: one, action: builtin/command, arguments: {argv: [sh, -c, "exit 4"]}}
  - {name: two, action: builtin/command, arguments: {argv: [touch, two]}}
  - {name: three, needs: [one], action: builtin/command, arguments: {argv: [touch, three]}}
"""
TWO = """\
goals:
  - {name: one, action: builtin/command, arguments: {argv: [touch, one]}}
  - {name: two, action: builtin/command, arguments: {argv: [touch, two]}}
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    monkeypatch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
    root = paint_shop(tmp_path / "shop")
    monkeypatch.chdir(root)
    return root


def run(agents: Agents, text: str, *options: str) -> Ended:
    file = Path.cwd().parent / "goals.yaml"
    file.write_text(text)
    return agents("run", "-f", str(file), *options)


def shown(agents: Agents, plan_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(agents("plan", "show", plan_id, "--format", "json").out)
    return found


def parts_of(agents: Agents, plan_id: str) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in shown(agents, plan_id)["sub_plans"]}


def test_a_result_that_lacks_parts_says_so_and_is_applied_by_a_person(
    agents: Agents, repository: Path
) -> None:
    ran = run(agents, THREE)
    assert ran.code == 1, ran.err
    assert agents("plan", "cancel", parts_of(agents, ran.id)["one"]["id"]).code == 0
    # It failed for another reason, and never said that it would go on without it.
    again = agents("plan", "resume", ran.id, "--yes")
    assert again.code == 1, again.err
    assert "(one) was cancelled" in again.err
    resumed = agents("plan", "resume", ran.id, "--yes")
    said = "left out: one (cancelled), three (needs one)"
    assert resumed.code == 3, resumed.err
    assert f"{said}; not applied automatically" in resumed.err
    assert f"ready: the result is ready for review; {said}" in resumed.out
    assert not (repository / "two").exists()

    account = shown(agents, ran.id)
    assert [(part["name"], part["state"], part["why"]) for part in account["sub_plans"]] == [
        ("one", "left out", "cancelled"),
        ("two", "complete", None),
        ("three", "left out", "needs one"),
    ]
    assert account["parts_left_out"] == [
        {"name": "one", "why": "cancelled"},
        {"name": "three", "why": "needs one"},
    ]
    (row,) = json.loads(agents("plan", "list", "--format", "json").out)
    assert row["sub_plans_left_out"] == 2
    applied = agents("plan", "apply", ran.id)
    assert (applied.code, said in applied.err) == (0, True), applied.err
    assert (repository / "two").exists()
    text = agents("plan", "show", ran.id).out
    assert "left out (needs one)" in text
    assert "not started" not in text
    assert f"applied; {said}" in text


def test_a_sub_plan_of_a_cancelled_plan_that_did_not_start_shows_as_not_run(agents: Agents) -> None:
    ran = run(agents, THREE)
    assert "not started" in agents("plan", "show", ran.id).out
    assert agents("plan", "cancel", ran.id).code == 0
    text = agents("plan", "show", ran.id).out
    assert ("not started" in text, "not run" in text) == (False, True)


def test_merged_sub_plans_do_not_change(agents: Agents, repository: Path) -> None:
    ran = run(agents, TWO)
    assert ran.code == 3, ran.err
    one = parts_of(agents, ran.id)["one"]["id"]
    for words in (
        ("reject", one),
        ("cancel", one),
        ("rollback", one, "1", "--yes"),
        ("reread", one),
        ("review", one, "one"),
        ("review", one, "--accept", "one"),
        ("resume", one),
    ):
        refused = agents("plan", *words)
        assert refused.code != 0, words
        assert f"already merged into plan {ran.id}" in refused.err, (words, refused.err)
        assert f"agents plan rollback {ran.id}" in refused.err
    assert agents("plan", "review", ran.id, "one").code == 0
    assert agents("plan", "apply", ran.id).code == 0
    assert [(repository / name).exists() for name in ("one", "two")] == [False, True]


def test_a_failure_is_reported_with_a_pending_request(agents: Agents) -> None:
    text = """\
goals:
  - {name: bad, action: builtin/command, arguments: {argv: [sh, -c, "exit 4"]}}
  - {name: asks, action: builtin/replace, arguments: {pattern: colour, replacement: color}}
"""
    ran = run(agents, text, "--profile", "manual", "--parallel", "1")
    assert ran.code == 3, ran.err
    assert "1 failed: bad (step " in ran.err
    assert "ended with exit code 4)" in ran.err
    assert "1 failed: bad" in agents("plan", "show", ran.id).out


def test_a_response_is_reported_once_accepted(agents: Agents) -> None:
    ran = run(agents, THREE)
    refused = agents("plan", "approve", parts_of(agents, ran.id)["one"]["id"], "1")
    assert refused.code != 0
    assert "no approval is pending" in refused.err
    assert "allowed" not in refused.err
