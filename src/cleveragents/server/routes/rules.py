"""Routes of approval rules: commands that run without asking a person, if they are isolated."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from cleveragents.api.rules import RuleView
from cleveragents.api.views import Page
from cleveragents.server.access import AnyClient, OperatorClient, RuleId, RuleOperator
from cleveragents.server.parameters import NAME, After, Limit, StrictBody

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["rules"])

InProject = Annotated[str | None, Query(max_length=64, description="only this project", examples=["shop"])]


class NewRuleBody(StrictBody):
    """A rule to add: either for the project of a `resource`, or for a `project`."""

    pattern: str = Field(
        min_length=1,
        max_length=4_000,
        description="the command; a final `*` stands for any further arguments",
        examples=["pytest *"],
    )
    resource: str | None = Field(default=None, max_length=64, pattern=NAME, examples=["shop-main"])
    project: str | None = Field(default=None, max_length=64, pattern=NAME, examples=[None])


@router.get("/rules", operation_id="listRules")
def list_rules(
    client: AnyClient, project: InProject = None, limit: Limit = 100, after: After = None
) -> Page[RuleView]:
    """List the approval rules of your projects, oldest first, or those of one project."""
    return client.rules.list(project=project, limit=limit, after=after)


@router.post("/rules", status_code=201, operation_id="addRule")
def add_rule(body: NewRuleBody, client: OperatorClient) -> RuleView:
    """Allow a command in a project without asking, if it runs isolated.

    In the project `default`, the rule applies to the named resource only. An equal rule is returned
    unchanged. A pattern that would allow anything, such as `sh *`, is refused.
    """
    return client.rules.allow(body.pattern, resource=body.resource, project=body.project)


@router.delete("/rules/{rule_id}", status_code=204, operation_id="revokeRule")
def revoke_rule(rule_id: RuleId, client: RuleOperator) -> None:
    """Revoke an approval rule: from the next call on, a person is asked again."""
    client.rules.revoke(rule_id)
