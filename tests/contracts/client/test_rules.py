"""Approval rules, through every client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.api.client import Client, LocalClient
from cleveragents.api.plans.request import PlanRequest
from cleveragents.api.plans.views import PlanView
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import (
    NotAllowed,
    PlanError,
    RequestRefused,
    UnknownProject,
    UnknownResource,
    UnknownRule,
)
from cleveragents.plans.model.plan import PlanState
from tests.actor_plan_bench import answer, call, executes, says, steps, strategizes
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer


@pytest.fixture(autouse=True)
def no_rules(server: PlanServer) -> Iterator[None]:
    yield
    rules, clock = server.bench.container.plan_parts.rules, server.bench.container.clock
    for rule in rules.list():
        rules.revoke(rule.id, now=clock.now())


def asking(server: PlanServer, client: Client, *commands: list[str]) -> PlanView:
    """Return a plan whose agent requests these commands, and waits for the approval of the first one."""
    model = server.script(
        strategizes(steps({"title": "do it", "instructions": "so", "decisions": [1]})),
        executes(*(answer(call("command", argv=argv)) for argv in commands), says("done")),
    )
    request = PlanRequest(goal="go", resource="shop", model=model, profile="manual", apply="review")
    plan = client.plans.wait(client.plans.create(request).id, timeout=60)
    assert plan.state is PlanState.WAITING, plan.error
    return plan


def test_rules_are_added_listed_and_revoked(server: PlanServer, client: Client) -> None:
    one = client.rules.allow("pytest *", resource="shop")
    two = client.rules.allow("git status *", resource="shop")
    assert client.rules.allow("pytest  *", resource="shop") == one
    assert (one.pattern, one.by, one.plan) == ("pytest *", "operator", None)
    assert list(every(lambda after: client.rules.list(limit=1, after=after))) == [one, two]
    assert client.rules.list(project=one.project).items == (one, two)
    assert client.rules.list(project="nothing").items == ()
    assert as_json(one) == server.get("/rules")["items"][0]
    client.rules.revoke(one.id)
    client.rules.revoke(two.id[-8:].lower())
    assert client.rules.list().items == ()
    for unknown in (one.id, "none", "a/b", ""):
        with pytest.raises(UnknownRule):
            client.rules.revoke(unknown)


def test_a_pattern_that_allows_anything_is_refused(client: Client) -> None:
    for pattern in ("sh *", "python *", "sudo *", "git *", "*"):
        with pytest.raises(RequestRefused, match="cannot allow"):
            client.rules.allow(pattern, resource="shop")
    for place in ({}, {"resource": "shop", "project": "shop"}):
        with pytest.raises(RequestRefused):
            client.rules.allow("pytest *", **place)
    with pytest.raises(UnknownResource):
        client.rules.allow("pytest *", resource="nowhere")


def test_rules_follow_the_roles_of_the_project(client_of: ClientOf, foreign: str) -> None:
    operator, viewer, admin = client_of("operator"), client_of("viewer"), client_of("admin")
    rule = operator.rules.allow("pytest *", resource="shop")
    assert viewer.rules.list().items == (rule,)
    for refused in (
        lambda: viewer.rules.allow("ls *", resource="shop"),
        lambda: viewer.rules.revoke(rule.id),
    ):
        with pytest.raises(NotAllowed):
            refused()
    hidden = admin.rules.allow("make test *", resource=foreign)
    assert (hidden.project, hidden.repository) == ("elsewhere", None)
    assert operator.rules.list().items == (rule,)
    with pytest.raises(UnknownRule):
        operator.rules.revoke(hidden.id)
    with pytest.raises(UnknownResource):
        operator.rules.allow("make test *", resource=foreign)
    with pytest.raises(UnknownProject):
        operator.rules.allow("make test *", project="elsewhere")
    assert admin.rules.allow("make test *", project="elsewhere") == hidden


def test_a_directory_is_named_by_the_owner_of_the_machine_only(
    server: PlanServer, client: Client, tmp_path: Path
) -> None:
    with pytest.raises((NotAllowed, RequestRefused)):
        client.rules.allow("pytest *", resource=tmp_path)
    owner = LocalClient(server.bench.container)
    rule = owner.rules.allow("pytest *", resource=server.repository / "folder")
    assert (rule.project, rule.repository, rule.by) == ("default", str(server.repository), None)
    with pytest.raises(RequestRefused, match="pass the name of the resource"):
        owner.rules.allow("pytest *", project="default")


def test_an_approval_for_the_plan_covers_its_later_commands(server: PlanServer, client: Client) -> None:
    plan = asking(server, client, ["true", "a"], ["true", "b"], ["false", "c"])
    assert plan.approval is not None
    assert (plan.approval.call, plan.approval.pattern, plan.approval.exact) == (1, "true *", "true a")
    assert plan.approval.scopes == ("once", "plan", "project")
    client.plans.approve(plan.id, call=1, scope="plan")
    plan = client.plans.wait(plan.id, timeout=60)
    first, second, third = plan.calls
    (rule,) = client.rules.list().items
    assert (rule.plan, rule.pattern) == (plan.id, "true *")
    assert (first.approval, first.rule) == ("granted", None)
    assert (second.state, second.approval, second.rule) == ("ended", None, rule.id)
    assert (third.state, third.rule) == ("asked", None)
    client.plans.deny(plan.id, call=3, reason="never run false")
    plan = client.plans.wait(plan.id, timeout=60)
    assert plan.calls[2].reason == "never run false"
    assert client.plans.call(plan.id, 3).error == "denied by a person: never run false"
    assert plan.approval is None
    client.plans.delete(plan.id, force=True)
    assert client.rules.list().items == ()


def test_an_approval_for_the_project_covers_later_plans(server: PlanServer, client: Client) -> None:
    plan = asking(server, client, ["true", "a"])
    client.plans.approve(plan.id, call=1, scope="project", pattern="true *")
    assert client.plans.wait(plan.id, timeout=60).state is PlanState.COMPLETE
    (rule,) = client.rules.list().items
    later = asking(server, client, ["true", "b"], ["false"])
    assert [(one.state, one.rule) for one in later.calls] == [("ended", rule.id), ("asked", None)]
    client.rules.revoke(rule.id)
    again = asking(server, client, ["true", "b"])
    assert [one.state for one in again.calls] == ["asked"]


def test_an_impossible_scope_changes_nothing(server: PlanServer, client: Client) -> None:
    plan = asking(server, client, ["sudo", "id"])
    assert plan.approval is not None
    assert (plan.approval.pattern, plan.approval.exact) == (None, "sudo id")
    assert plan.approval.problem
    wrong: tuple[dict[str, str], ...] = (
        {"scope": "project"},
        {"scope": "plan", "pattern": "sudo *"},
        {"scope": "plan", "pattern": "ls *"},
        {"pattern": "sudo id"},
    )
    for body in wrong:
        with pytest.raises(RequestRefused):
            client.plans.approve(plan.id, call=1, **body)
    with pytest.raises(RequestRefused):
        client.plans.deny(plan.id, call=1, reason="x" * 2001)
    with pytest.raises(PlanError):
        client.plans.approve(plan.id, call=2, scope="plan", pattern="sudo id")
    assert client.rules.list().items == ()
    assert client.plans.get(plan.id).calls[0].approval is None
    client.plans.cancel(plan.id)


def test_only_commands_have_a_longer_scope(client: Client) -> None:
    asked = {"pattern": "one", "replacement": "ONE"}
    request = PlanRequest(action="builtin/replace", arguments=asked, resource="shop", profile="manual")
    plan = client.plans.wait(client.plans.create(request).id, timeout=60)
    assert plan.approval is not None
    assert (plan.approval.scopes, plan.approval.pattern) == (("once",), None)
    assert plan.approval.problem == "only commands can be allowed in advance"
    with pytest.raises(RequestRefused, match="only commands"):
        client.plans.approve(plan.id, call=1, scope="plan")
    client.plans.cancel(plan.id)
