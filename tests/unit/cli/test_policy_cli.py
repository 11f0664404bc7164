"""`agents policy`, and approvals that last longer than one call, on the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli_bench import Agents, command_line, paint_shop, use_home

pytestmark = [
    pytest.mark.usefixtures("commands_are_forked"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]
LISTS = """
name: team/lists
execute:
  steps:
    - {tool: command, with: {argv: [ls, -a]}}
    - {tool: command, with: {argv: [ls, -l]}}
"""
RUN = ("run", "--action", "team/lists", "--profile", "manual", "--format", "plain")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    root = paint_shop(tmp_path / "repository")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def agents(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Agents]:
    with command_line(monkeypatch, capfd) as run:
        (tmp_path / "lists.yaml").write_text(LISTS)
        assert run("action", "create", str(tmp_path / "lists.yaml")).code == 0
        yield run


def rules(agents: Agents) -> list[Any]:
    found: list[Any] = json.loads(agents("policy", "list", "--format", "json").out)
    return found


def test_rules_are_added_listed_and_revoked(agents: Agents, repository: Path) -> None:
    assert "no rules; add one with `agents policy allow COMMAND`" in agents("policy", "list").err
    allowed = agents("policy", "allow", "ls *")
    assert f"allowed without approval, if isolated: `ls *` in {repository}" in " ".join(allowed.err.split())
    (rule,) = rules(agents)
    assert (rule["pattern"], rule["applies_to"], rule["project"]) == ("ls *", str(repository), "default")
    ran = agents(*RUN)
    assert "needs approval" not in ran.err
    assert agents("policy", "revoke", rule["id"][-6:]).code == 0
    assert rules(agents) == []
    assert agents(*RUN).code == 3
    gone = agents("policy", "revoke", rule["id"])
    assert (gone.code, "agents policy list" in gone.err) == (2, True)


def test_a_rule_that_would_allow_anything_is_refused_with_the_reason(agents: Agents) -> None:
    refused = agents("policy", "allow", "sudo *")
    assert refused.code == 2
    assert "allow the exact command instead" in " ".join(refused.err.split())
    assert agents("policy", "allow", "ls", "--resource", "a", "--project", "b").code == 2
    assert agents("policy", "allow", "ls *", "--project", "nowhere").code == 2
    assert rules(agents) == []


def test_an_approval_for_the_plan_covers_its_next_command(agents: Agents) -> None:
    asking = agents(*RUN)
    assert asking.code == 3
    assert "--for plan" in asking.err
    assert "--for project" in asking.err
    wrong = agents("plan", "approve", asking.id, "--for", "plan", "--pattern", "git status *")
    assert (wrong.code, "does not cover" in " ".join(wrong.err.split())) == (2, True)
    approved = agents("plan", "approve", asking.id, "--for", "plan")
    assert "rule for this plan and its sub-plans: `ls *`" in approved.err
    assert approved.code == 0, approved.err
    assert [rule["plan"] for rule in rules(agents)] == [asking.id]
    assert agents(*RUN).code == 3, "another plan asks again"


def test_a_terminal_offers_longer_approvals_and_a_reason(agents: Agents, repository: Path) -> None:
    denied = agents(*RUN, typed="nuse find\n")
    assert f"in this [p]lan and its sub-plans, [a]lways in repository {repository}, [n]o" in " ".join(
        denied.err.split()
    )
    assert "denied by a person: use find" in " ".join(denied.err.split())
    ended = agents(*RUN, typed="a\n")
    assert ended.code == 0, ended.err
    assert [rule["applies_to"] for rule in rules(agents)] == [str(repository)]


def test_the_walk_through_waiting_plans_offers_longer_approvals(agents: Agents) -> None:
    plan = agents(*RUN).id
    ended = agents("plan", "review", plan, typed="p")
    assert "a rule can approve later commands: `ls *`" in ended.err
    assert "Approve? [y]es, in this [p]lan and its sub-plans" in " ".join(ended.err.split())
    assert [rule["plan"] for rule in rules(agents)] == [plan]
