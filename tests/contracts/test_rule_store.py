"""The contract of `SqlRuleStore` and of calls that a rule starts, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from cleveragents.access.store.sql_project_store import SqlProjectStore
from cleveragents.core.command_rule import CommandRule
from cleveragents.core.errors import PlanError, RequestRefused, UnknownPlan, UnknownProject, UnknownRule
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.store import sql_rule_store
from cleveragents.plans.store.sql_rule_store import ApprovalRule, NewRule, RuleScope, SqlRuleStore
from cleveragents.storage.database import Database
from cleveragents.storage.tables import outbox
from tests.contracts.plan_stand import LATER, NOW, PlanStand

PYTEST = CommandRule.parse("pytest *")


class RuleStand(PlanStand):
    """The stores of plans and rules, with a project `shop` beside the default project."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.rules = SqlRuleStore(database, self.identifiers)
        self.projects = SqlProjectStore(database, self.identifiers, "/home")
        self.projects.add("shop", now=NOW)

    def allow(self, scope: RuleScope, command: CommandRule = PYTEST) -> ApprovalRule:
        return self.rules.add(NewRule(scope, command), now=NOW, by="ada")

    def start(self, plan: Plan, *argv: str, **more: Any) -> ToolCall | None:
        words = argv or ("pytest", "-q")
        facts = {"step": "1", "now": LATER, **more}
        return self.calls.start_by_rule(plan.id, "command", {"argv": words}, words, **facts)

    def told(self) -> list[tuple[str, str, dict[str, Any]]]:
        with self.database.read() as connection:
            rows = connection.execute(select(outbox).order_by(outbox.c.number)).all()
        return [(row.event_type, row.subject, json.loads(row.payload)) for row in rows]


@pytest.fixture
def stand(database: Database) -> RuleStand:
    return RuleStand(database)


def test_a_rule_starts_the_calls_that_it_covers(stand: RuleStand) -> None:
    plan = stand.plan()
    rule = stand.allow(RuleScope.of_project("default", "/r"))
    started = stand.start(plan)
    assert started is not None
    assert (started.number, started.state, started.approval) == (1, CallState.STARTED, None)
    assert started.rule == rule.id
    assert stand.calls.of_plan(plan.id) == [started]
    assert stand.start(plan, "rm", "-r", ".") is None
    assert [call.number for call in stand.calls.of_plan(plan.id)] == [1]


SCOPES: dict[str, tuple[Callable[[Plan], RuleScope], set[str]]] = {
    "repository": (lambda root: RuleScope.of_project("default", "/r"), {"root", "same"}),
    "project": (lambda root: RuleScope.of_project("shop", "/r"), {"shop"}),
    "plan": (RuleScope.of_tree, {"root"}),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_rule_applies_in_its_scope_only(stand: RuleStand, scope: str) -> None:
    root = stand.processing()
    others = {
        "root": root,
        "same": stand.plan(),
        "elsewhere": stand.plan(resource="/other"),
        "shop": stand.plan(project="shop", resource="/other"),
    }
    made, covered = SCOPES[scope]
    stand.allow(made(root))
    found = {name for name, plan in others.items() if stand.start(plan) is not None}
    assert found == covered


def test_without_project_rules_only_those_of_the_plan_count(stand: RuleStand) -> None:
    plan = stand.plan()
    stand.allow(RuleScope.of_project("default", "/r"))
    assert stand.start(plan, project_rules=False) is None
    rule = stand.allow(RuleScope.of_tree(plan))
    started = stand.start(plan, project_rules=False)
    assert started is not None
    assert started.rule == rule.id


def test_a_revoked_rule_starts_no_more_calls(stand: RuleStand) -> None:
    plan, rule = stand.plan(), stand.allow(RuleScope.of_project("default", "/r"))
    assert stand.start(plan) is not None
    stand.rules.revoke(rule.id, now=LATER, by="bob")
    assert stand.start(plan) is None
    assert stand.rules.list() == []
    for unknown in (rule.id, "no", "no\0rule", "\udcff"):
        with pytest.raises(UnknownRule):
            stand.rules.revoke(unknown, now=LATER)


def test_events_name_the_rule(stand: RuleStand) -> None:
    plan, rule = stand.plan(), stand.allow(RuleScope.of_project("default", "/r"))
    before = len(stand.told())
    stand.start(plan)
    stand.rules.revoke(rule.id, now=LATER, by="bob")
    added = {"rule": rule.id, "pattern": "pytest *", "by": "ada"}
    assert ("rule.added", "default", added) in stand.told()
    given, started, revoked = stand.told()[before:]
    assert given[:2] == ("approval.given", plan.id)
    assert given[2] == {
        "number": 1, "tool": "command", "state": "started", "approval": "granted", "rule": rule.id,
    }  # fmt: skip
    assert started[0] == "tool_call.started"
    assert revoked == ("rule.revoked", "default", {**added, "by": "bob"})


def test_an_equal_rule_is_kept_once(stand: RuleStand) -> None:
    rule = stand.allow(RuleScope.of_project("default", "/r"))
    assert stand.allow(RuleScope.of_project("default", "/r")) == rule
    other = stand.allow(RuleScope.of_project("default", "/other"))
    assert stand.rules.list() == [rule, other]
    assert stand.rules.list("shop") == stand.rules.list("no\0project") == []


def test_rules_of_a_plan_end_with_the_plan(stand: RuleStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_rule_store, "_MOST_RULES", 2)
    plan = stand.processing()
    stand.allow(RuleScope.of_tree(plan))
    kept = stand.allow(RuleScope.of_project("default", "/r"))
    with pytest.raises(RequestRefused, match="the project has 2 rules; revoke some first"):
        stand.allow(RuleScope.of_project("default", "/other"))
    stand.plans.move(plan, (Phase.EXECUTE, PlanState.CANCELLED), now=LATER)
    assert stand.rules.list() == stand.rules.list("default") == [kept]
    other = stand.allow(RuleScope.of_project("default", "/other"))
    assert stand.rules.list() == [kept, other]


def test_unsafe_and_secret_rules_are_not_kept(stand: RuleStand) -> None:
    scope = RuleScope.of_project("default", "/r")
    with pytest.raises(RequestRefused, match="runs any code"):
        stand.allow(scope, CommandRule(("sh",), more=True))
    secrets = KnownSecrets()
    secrets.add("correct-horse-battery")
    try:
        with pytest.raises(RequestRefused, match="known secret"):
            stand.allow(scope, CommandRule.parse("login correct-horse-battery"))
    finally:
        secrets.forget()
    with pytest.raises(UnknownProject):
        stand.allow(RuleScope("ghost"))
    assert stand.rules.list() == []


def test_an_answer_keeps_its_rule_or_changes_nothing(stand: RuleStand) -> None:
    plan = stand.plan()
    stand.call(plan, CallState.ASKED)
    unsafe = NewRule(RuleScope.of_tree(plan), CommandRule(("sudo",), more=True))
    with pytest.raises(RequestRefused):
        stand.calls.answer(plan.id, 1, "granted", now=LATER, rule=unsafe)
    new = NewRule(RuleScope.of_tree(plan), PYTEST)
    answered = stand.calls.answer(plan.id, 1, "granted", now=LATER, rule=new)
    assert (answered.approval, answered.rule) == ("granted", None)
    (rule,) = stand.rules.list()
    assert (rule.scope, rule.command) == (new.scope, new.command)
    with pytest.raises(PlanError):
        stand.calls.answer(plan.id, 1, "granted", now=LATER, rule=NewRule(new.scope, CommandRule(("ls",))))
    assert stand.rules.list() == [rule]


def test_a_denial_keeps_its_reason_masked(stand: RuleStand) -> None:
    plan = stand.plan()
    stand.call(plan, CallState.ASKED)
    reason = "use https://ada:hunter2-hunter2@example.com instead \0"
    answered = stand.calls.answer(plan.id, 1, "denied", now=LATER, reason=reason)
    assert stand.calls.of_plan(plan.id) == [answered]
    assert answered.reason is not None
    assert "hunter2" not in answered.reason
    assert answered.reason.startswith("use https://")


def test_a_deleted_plan_or_project_leaves_no_rule(stand: RuleStand) -> None:
    plan = stand.plan()
    stand.allow(RuleScope.of_tree(plan))
    stand.allow(RuleScope("shop"))
    stand.plans.delete(plan, now=NOW)
    stand.projects.remove("shop", now=NOW)
    assert stand.rules.list() == []
    with pytest.raises(UnknownPlan):
        stand.start(plan)
