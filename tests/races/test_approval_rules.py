"""A revoked rule starts no call, whichever thread revokes it while another one starts a call."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from sqlalchemy import select

from cleveragents.core.command_rule import CommandRule
from cleveragents.core.json_value import JsonValue
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_records import SqlCallStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.plans.store.sql_rule_store import NewRule, RuleScope, SqlRuleStore, rule_for
from cleveragents.storage.tables import outbox
from cleveragents.testing.clock import CountingIdentifiers
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.one_connection import content_of, in_memory_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ARGV = ("pytest", "-q")
OUTCOMES: frozenset[Hashable] = frozenset({("started", "revoked"), ("revoked",)})


class LookThenStartCallStore(SqlCallStore):
    """Looks for a rule in one transaction, and starts the call in another."""

    def start_by_rule(
        self,
        plan_id: str,
        tool: str,
        arguments: Mapping[str, JsonValue],
        argv: Sequence[str],
        *,
        step: str,
        now: datetime,
        project_rules: bool = True,
    ) -> ToolCall | None:
        with self._database.read() as connection:
            rule = rule_for(connection, plan_id, argv, project_rules=project_rules)
        if rule is None:
            return None
        return self.add(plan_id, tool, arguments, step=step, state=CallState.STARTED, now=now)


@dataclass
class Shared:
    """A plan in whose repository a rule covers the command."""

    store: type[SqlCallStore]
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        content, self.plan, self.rule_id = _beginning()
        self.database = in_memory_database(content)
        identifiers = CountingIdentifiers("new")
        self.calls = self.store(self.database, identifiers)
        self.rules = SqlRuleStore(self.database, identifiers)

    def start(self) -> None:
        self.calls.start_by_rule(self.plan.id, "command", {"argv": ARGV}, ARGV, step="1", now=NOW)

    def revoke(self) -> None:
        self.rules.revoke(self.rule_id, now=NOW)

    def outcome(self) -> Hashable:
        """Return the starts and revocations in the order of the audit log."""
        kinds = {"tool_call.started": "started", "rule.revoked": "revoked"}
        with self.database.read() as connection:
            told = connection.execute(select(outbox.c.event_type).order_by(outbox.c.number)).scalars().all()
        self.database.close()
        return tuple(kinds[kind] for kind in told if kind in kinds)


@cache
def _beginning() -> tuple[bytes, Plan, str]:
    with in_memory_database() as database:
        identifiers = CountingIdentifiers("old")
        plan = SqlPlanStore(database, identifiers).create(PlanDraft("g", "a/b", "/r"), now=NOW)
        new = NewRule(RuleScope.of_project("default", "/r"), CommandRule.parse("pytest *"))
        rule = SqlRuleStore(database, identifiers).add(new, now=NOW)
        return content_of(database), plan, rule.id


def scenario(store: type[SqlCallStore]) -> Scenario[Shared]:
    return Scenario(
        name="a call and a revocation",
        setup=lambda: Shared(store),
        workers=[Shared.start, Shared.revoke],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in OUTCOMES,
        reachable=OUTCOMES,
    )


def test_a_call_starts_before_the_revocation_of_its_rule_or_not_at_all() -> None:
    assert_holds(scenario(SqlCallStore), effort=40)


def test_a_rule_that_is_read_too_early_is_caught() -> None:
    assert_caught(scenario(LookThenStartCallStore), effort=120)
