"""Approval rules in a database: command lines that people allowed in advance.

Rules are not stored in repositories, so no file of a repository can add or widen a rule. One transaction
reads a rule and starts its call, and a revoked rule is deleted. So each call either started before the
revocation or asks a person.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, RowMapping, Select, delete, exists, or_, select

from cleveragents.access.model.project import DEFAULT_PROJECT
from cleveragents.access.store.sql_project_store import hold_project
from cleveragents.core.command_rule import CommandRule
from cleveragents.core.errors import RequestRefused, UnknownRule
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_known_text
from cleveragents.plans.model.plan import Plan, PlanState
from cleveragents.plans.store.plan_rows import decoded, encoded
from cleveragents.storage.columns import ensure_storable, is_storable, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.tables import approval_rules, plans

__all__ = ["ApprovalRule", "NewRule", "RuleScope", "SqlRuleStore", "keep_rule", "rule_for"]

_MOST_RULES = 1_000
_ENDED_PLAN = exists().where(
    plans.c.id == approval_rules.c.root_id,
    plans.c.state.in_([state.value for state in PlanState if state.ended]),
)
_IN_EFFECT = select(approval_rules).where(~_ENDED_PLAN)
"""A query for all rules except those of plans that have ended."""


class RuleScope(Struct, frozen=True):
    """The plans that a rule applies to: those of a project, of one repository in it (`resource`), or of one
    tree (`root_id`).
    """

    project: str
    resource: str | None = None
    root_id: str | None = None

    @staticmethod
    def of_project(project: str, resource: str) -> RuleScope:
        """Return the scope of a rule for a project. In the default project, which may contain all
        repositories of a machine, the scope is only this repository.
        """
        return RuleScope(project, resource if project == DEFAULT_PROJECT else None)

    @staticmethod
    def of_tree(plan: Plan) -> RuleScope:
        """Return the scope of an approval for the plan: the whole tree that it belongs to."""
        return RuleScope(plan.project, None, plan.root)


class NewRule(Struct, frozen=True):
    """A rule to add, and where it applies."""

    scope: RuleScope
    command: CommandRule


class ApprovalRule(Struct, frozen=True):
    """A stored rule. `created_by` is the user of a server; None for the owner of this machine."""

    id: str
    scope: RuleScope
    command: CommandRule
    created_at: datetime
    created_by: str | None = None


class SqlRuleStore:
    """The approval rules of all projects. Every method is one transaction with its event. Stateless except
    for the database, so any thread may share it.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers

    def add(self, new: NewRule, *, now: datetime, by: str | None = None) -> ApprovalRule:
        """Add the rule and return it; an equal rule in the same scope is returned unchanged.

        Raises `UnknownProject`; `RequestRefused` if the rule is unsafe or the project has too many rules.
        """

        def unit(connection: Connection) -> ApprovalRule:
            hold_project(connection, new.scope.project)
            return keep_rule(connection, self._identifiers, new, now=now, by=by)

        return self._database.write(unit)

    def list(self, project: str | None = None) -> Sequence[ApprovalRule]:
        """Return the rules of a project, or all, oldest first; without rules of plans that have ended."""
        query = _IN_EFFECT.order_by(approval_rules.c.id)
        if project is not None:
            if not is_storable(project):
                return []
            query = query.where(approval_rules.c.project == project)
        with self._database.read() as connection:
            return [_rule_of(row) for row in connection.execute(query).mappings()]

    def revoke(self, rule_id: str, *, now: datetime, by: str | None = None) -> None:
        """Delete the rule: the next call asks a person. Raises `UnknownRule`."""
        event_id = self._identifiers.new()

        def unit(connection: Connection) -> None:
            row = None
            if is_storable(rule_id):
                gone = delete(approval_rules).where(approval_rules.c.id == rule_id).returning(approval_rules)
                row = connection.execute(gone).mappings().first()
            if row is None:
                raise UnknownRule(rule_id)
            append_to_outbox(
                connection, _event(EventType.RULE_REVOKED, _rule_of(row), event_id, now=now, by=by)
            )

        self._database.write(unit)


def keep_rule(
    connection: Connection, identifiers: IdentifierSource, new: NewRule, *, now: datetime, by: str | None
) -> ApprovalRule:
    """Store the rule in this transaction, with its event, as `SqlRuleStore.add` specifies."""
    scope, command = new.scope, new.command
    command.ensure_safe()
    if redact_known_text(str(command)) != str(command):  # guard: all members of the project can read it
        raise RequestRefused("cannot allow this command: it contains a known secret", "pattern")
    rule = ApprovalRule(identifiers.new(), scope, command, now, by)
    ensure_storable("a rule", {"words": str(command), "by": by})
    query = _IN_EFFECT.where(approval_rules.c.project == scope.project)
    known = [_rule_of(row) for row in connection.execute(query).mappings()]
    for one in known:
        if (one.scope, one.command) == (scope, command):
            return one
    if len(known) >= _MOST_RULES:  # guard: each call reads all of them
        raise RequestRefused(f"the project has {_MOST_RULES} rules; revoke some first", "pattern")
    row = {
        "id": rule.id,
        "project": scope.project,
        "resource": None if scope.resource is None else encoded(scope.resource),
        "root_id": scope.root_id,
        "words": encoded(command.words),
        "more": command.more,
        "created_at": microseconds(now),
        "created_by": by,
    }
    connection.execute(approval_rules.insert(), row)
    append_to_outbox(connection, _event(EventType.RULE_ADDED, rule, identifiers.new(), now=now, by=by))
    return rule


def rule_for(
    connection: Connection, plan_id: str, argv: Sequence[str], *, project_rules: bool
) -> ApprovalRule | None:
    """Return the oldest rule that covers the command line in this plan, or None; without `project_rules`,
    only rules of the plan's own tree count. The rules stay locked until the end of the transaction.
    """
    for row in connection.execute(_applicable(connection, plan_id, project_rules)).mappings():
        rule = _rule_of(row)
        if rule.command.matches(argv):
            return rule
    return None


def _applicable(connection: Connection, plan_id: str, project_rules: bool) -> Select[Any]:
    """Return the query for the rules of the plan's tree, repository and project."""
    query = select(plans.c.project, plans.c.resource, plans.c.root_id).where(plans.c.id == plan_id)
    plan = connection.execute(query).one()
    table = approval_rules.c
    places = [table.root_id == (plan.root_id or plan_id)]
    if project_rules:
        here = or_(table.resource.is_(None), table.resource == plan.resource)
        places.append(table.root_id.is_(None) & here)
    found = select(approval_rules).where(table.project == plan.project, or_(*places)).order_by(table.id)
    return found.with_for_update(read=True)  # A revocation comes before the call or after it


def _rule_of(row: RowMapping) -> ApprovalRule:
    words = decoded(row["words"])
    assert isinstance(words, tuple | list)
    resource = None if row["resource"] is None else str(decoded(row["resource"]))
    return ApprovalRule(
        row["id"],
        RuleScope(row["project"], resource, row["root_id"]),
        CommandRule(tuple(map(str, words)), bool(row["more"])),
        moment(row["created_at"]),
        row["created_by"],
    )


def _event(
    kind: EventType, rule: ApprovalRule, event_id: str, *, now: datetime, by: str | None
) -> DomainEvent:
    facts: dict[str, JsonValue] = {"rule": rule.id, "pattern": redact_known_text(str(rule.command))}
    facts |= {} if rule.scope.root_id is None else {"plan": rule.scope.root_id}
    facts |= {} if by is None else {"by": by}
    # Under the project, whose members may read it. The log keeps it for good, so it has no paths.
    return DomainEvent(kind, rule.scope.project, event_id, now, facts)
