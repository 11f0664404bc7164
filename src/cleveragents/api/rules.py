"""Approval rules: commands that run without asking a person, if they are isolated; and the pending approval
of a plan, which can add a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from cleveragents.access.model.project import DEFAULT_PROJECT, ResourceKind, remote_of, resource_of
from cleveragents.access.model.user import Role
from cleveragents.api.access import OWNER
from cleveragents.api.format import timestamp
from cleveragents.api.plans.views import ApprovalView
from cleveragents.api.resources import directory_of
from cleveragents.api.views import Page, page_of, shown, view, view_of
from cleveragents.api.workers import isolation_of
from cleveragents.core.command_rule import CommandRule, RuleSuggestion, suggest_rule
from cleveragents.core.errors import RequestRefused, UnknownRule
from cleveragents.core.policy import Isolation
from cleveragents.core.text.redaction import redact_known_text
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.store.sql_rule_store import NewRule, RuleScope
from cleveragents.sandboxes.resources import find_resource

if TYPE_CHECKING:
    from cleveragents.api.access import Access
    from cleveragents.api.plans.client import ApprovalScope
    from cleveragents.api.transport import HttpTransport
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.core.json_value import JsonValue
    from cleveragents.core.tool import ToolCall
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.store.sql_rule_store import ApprovalRule

__all__ = ["CallAnswer", "HttpRules", "LocalRules", "RuleView", "Rules", "approval_of", "requested_rule"]

_COMMAND = "command"
_REASON_CHARACTERS = 2_000
_OFF = "rules for a project are denied by the setting plan.project_rules"


@view
class RuleView:
    """An approval rule."""

    id: str = shown(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"])
    pattern: str = shown("the command; a final `*` stands for any further arguments", examples=["pytest *"])
    project: str = shown(examples=["shop"])
    repository: str | None = shown("the only repository that the rule applies to; null: all of the project")
    plan: str | None = shown("the only plan that the rule applies to, with its sub-plans; null: all plans")
    created: datetime = shown(examples=["2026-11-15T12:00:00Z"])
    by: str | None = shown("the user who added it; null for the owner of the machine", examples=["ada"])


class Rules(Protocol):
    """Approval rules of the projects that the acting user can see."""

    def list(
        self, *, project: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[RuleView]:
        """Return one page of rules, oldest first, of one project or of all."""

    def allow(
        self, pattern: str, *, resource: str | Path | None = None, project: str | None = None
    ) -> RuleView:
        """Add a rule for the project of a resource, or for a named project. In the project `default`, the
        rule applies to that resource only. A `Path` is a repository of this machine. An equal rule is
        returned unchanged.

        Raises `RequestRefused` for a pattern that would allow anything; `NotAllowed` unless the user is an
        operator of the project.
        """

    def revoke(self, rule_id: str) -> None:
        """Delete a rule, by its id or an unambiguous beginning or end of it: the next call asks again.

        Raises `UnknownRule`; `NotAllowed` unless the user is an operator of its project.
        """


class LocalRules:
    """Approval rules in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._parts = access.container.plan_parts
        self._clock = access.container.clock

    def list(
        self, *, project: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[RuleView]:
        return page_of([_view_of(one) for one in self._seen(project)], lambda rule: rule.id, limit, after)

    def allow(
        self, pattern: str, *, resource: str | Path | None = None, project: str | None = None
    ) -> RuleView:
        scope = self._scope(resource, project)
        if not self._parts.project_rules:  # guard: the operator of the server decides
            raise RequestRefused(_OFF)
        new = NewRule(scope, CommandRule.parse(pattern))
        return _view_of(self._parts.rules.add(new, now=self._clock.now(), by=self._by))

    def revoke(self, rule_id: str) -> None:
        rule = self._access.rule(rule_id, Role.OPERATOR)
        self._parts.rules.revoke(rule.id, now=self._clock.now(), by=self._by)

    @property
    def _by(self) -> str | None:
        name = self._access.user.name
        return None if name == OWNER and self._access.is_owner else name

    def _seen(self, project: str | None = None) -> Sequence[ApprovalRule]:
        return [one for one in self._parts.rules.list(project) if self._access.sees(one.scope.project)]

    def _scope(self, resource: str | Path | None, project: str | None) -> RuleScope:
        """Return the scope of the rule. Raises `NotAllowed` unless the user is an operator of its project."""
        if (resource is None) == (project is None):
            raise RequestRefused("name either a resource or a project")
        if isinstance(resource, Path):
            self._access.ensure_server_admin()  # guard: users of a server name no directory of its machine
            return RuleScope.of_project(DEFAULT_PROJECT, str(find_resource(resource.absolute())[0]))
        if resource is not None:
            found = self._access.resource(resource, Role.OPERATOR)
            if found.project != DEFAULT_PROJECT:
                return RuleScope(found.project)
            if found.kind is ResourceKind.REMOTE:
                return RuleScope.of_project(found.project, resource_of(found))
            place, _ = find_resource(directory_of(self._access.container, found))
            return RuleScope.of_project(found.project, str(place))
        name = self._access.project(str(project), Role.OPERATOR).name
        if name == DEFAULT_PROJECT:  # guard: it may contain unrelated repositories
            raise RequestRefused(
                "in the project default, a rule applies to one resource; pass the name of the resource",
                "resource",
            )
        return RuleScope(name)


class HttpRules:
    """Approval rules of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self, *, project: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[RuleView]:
        return self._http.page(RuleView, "/rules", limit, after, project=project)

    def allow(
        self, pattern: str, *, resource: str | Path | None = None, project: str | None = None
    ) -> RuleView:
        if isinstance(resource, Path):  # guard: the server's files are not this machine's
            raise RequestRefused(
                f"a server cannot read {resource} on this machine; pass the name of a resource"
            )
        body = {"pattern": pattern, "resource": resource, "project": project}
        return view_of(RuleView, self._http.post("/rules", body))

    def revoke(self, rule_id: str) -> None:
        if not rule_id.isalnum() or not rule_id.isascii():  # guard: not the address of something else
            raise UnknownRule(rule_id)
        self._http.delete(f"/rules/{rule_id}")


def _view_of(rule: ApprovalRule) -> RuleView:
    resource = rule.scope.resource
    fields: dict[str, JsonValue] = {
        "id": rule.id,
        "pattern": redact_known_text(str(rule.command)),
        "project": rule.scope.project,
        "repository": None if resource is None else _repository_label(resource),
        "plan": rule.scope.root_id,
        "created": timestamp(rule.created_at),
        "by": rule.created_by,
    }
    return view_of(RuleView, fields)


class CallAnswer(Struct, frozen=True):
    """A person's answer to the pending call with this `number`; if None, to any pending call."""

    granted: bool
    number: int | None = None
    by: str | None = None
    scope: str = "once"
    pattern: str | None = None
    reason: str | None = None

    def kept_reason(self) -> str | None:
        """Return the reason of a denial; None for a blank one. Raises `RequestRefused` if it is too long."""
        text = (self.reason or "").strip()
        if len(text) > _REASON_CHARACTERS:
            raise RequestRefused(f"the reason has more than {_REASON_CHARACTERS} characters", "reason")
        return text or None


def approval_of(parts: PlanParts, plan: Plan) -> ApprovalView | None:
    """Return the pending approval, or None if no call is pending."""
    call = parts.lifecycle.asking(plan) if plan.state is PlanState.WAITING else None
    if call is None:
        return None
    found = _suggestion(parts, plan, call)
    longer: tuple[ApprovalScope, ...] = ()
    if found.exact is not None:
        longer = ("plan", "project") if parts.project_rules else ("plan",)
    off = found.exact is not None and not parts.project_rules
    return ApprovalView(
        call=call.number,
        scopes=("once", *longer),
        pattern=None if found.rule is None else str(found.rule),
        exact=None if found.exact is None else str(found.exact),
        plan_scope=_plan_scope(plan),
        project_scope=_project_scope(plan),
        problem=found.problem or (_OFF if off else None),
    )


def requested_rule(
    parts: PlanParts, plan: Plan, call: ToolCall, scope: str, pattern: str | None
) -> NewRule | None:
    """Return the rule that an approval of the call adds; None for the scope `once`.

    Raises `RequestRefused` if the call cannot be allowed in advance, or the pattern does not cover it.
    """
    if scope == "once":
        if pattern is not None:
            raise RequestRefused("a pattern needs the scope `plan` or `project`", "pattern")
        return None
    if scope == "project" and not parts.project_rules:  # guard: the operator of the server decides
        raise RequestRefused(_OFF, "scope")
    found = _suggestion(parts, plan, call)
    if found.exact is None:
        raise RequestRefused(f"this call can only be approved once: {found.problem}", "scope")
    if pattern is None and found.rule is None:
        raise RequestRefused(f"{found.problem}; as `pattern`, pass {str(found.exact)!r}", "pattern")
    command = found.rule if pattern is None else CommandRule.parse(pattern)
    assert command is not None
    if not command.matches(found.exact.words):  # guard: a person saw this call, not others
        raise RequestRefused(f"`{command}` does not cover the pending command `{found.exact}`", "pattern")
    if scope == "plan":
        return NewRule(RuleScope.of_tree(plan), command)
    return NewRule(RuleScope.of_project(plan.project, plan.resource), command)


def _plan_scope(plan: Plan) -> str:
    """Return the name of the scope `plan`: the whole tree that the plan belongs to."""
    top = "this plan" if plan.parent_id is None else f"plan {plan.root}"
    return f"{top} and its sub-plans"


def _project_scope(plan: Plan) -> str:
    """Return the name of the scope `project` of a plan: its project, or its repository in the default
    project.
    """
    if plan.project != DEFAULT_PROJECT:
        return f"project {plan.project}"
    return f"repository {_repository_label(plan.resource)}"


def _repository_label(resource: str) -> str:
    """Return the repository of a plan for people; for a remote, without its credentials."""
    remote = remote_of(resource)
    return resource if remote is None else f"{remote.shown}#{remote.branch}"


def _suggestion(parts: PlanParts, plan: Plan, call: ToolCall) -> RuleSuggestion:
    if call.tool != _COMMAND:
        return RuleSuggestion(problem="only commands can be allowed in advance")
    if isolation_of(parts, plan) != Isolation.BUBBLEWRAP.value:
        problem = "rules apply to isolated commands only, and the commands of this plan are not isolated"
        return RuleSuggestion(problem=problem)
    return suggest_rule(call.arguments)
