"""Two projects of one server, with a user of each role in each of them, and visible objects in both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI
from starlette.testclient import TestClient

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.app.container import Container
from cleveragents.conversations.model import Conversation, NewConversation
from cleveragents.core.command_rule import CommandRule
from cleveragents.jobs.model.job import Job
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.plans.store.sql_rule_store import ApprovalRule, NewRule, RuleScope
from tests.server_bench import BASE, ServerBench, server_bench

__all__ = ["MEMBERS", "OTHERS", "OURS", "SECRETS", "THEIRS", "Tenants", "tenants"]

OURS = "alpha"
THEIRS = "beta"
MEMBERS = {role: f"{OURS}-{role.value}" for role in Role}
"""Users of our project, by their role in it."""

OTHERS = (*(f"{THEIRS}-{role.value}" for role in Role), "outsider")
"""Users without a role in our project: of each role in another one, and of none at all."""

SECRETS = ("the-goal-of-alpha", "printed-by-alpha", "alpha-main")
"""Texts that no user of another project may read anywhere."""


@dataclass
class Tenants:
    """The server, and the objects of our project."""

    bench: ServerBench
    tokens: dict[str, str]
    _clients: dict[str, TestClient] = field(default_factory=dict)

    @property
    def container(self) -> Container:
        return self.bench.container

    @property
    def app(self) -> FastAPI:
        return self.bench.app

    def client(self, name: str | None) -> TestClient:
        """Return the client of this user; None: a client without a token."""
        if name is None:
            return self.bench.newcomer()
        if name not in self._clients:
            headers = {"Authorization": f"Bearer {self.tokens[name]}"}
            self._clients[name] = TestClient(self.app, BASE, headers=headers, raise_server_exceptions=False)
        return self._clients[name]

    def plan(self, project: str = OURS, goal: str = SECRETS[0]) -> Plan:
        """Create a queued plan of the project, which no worker takes."""
        lifecycle = self.container.plan_parts.lifecycle
        resource = self.container.projects.resource(f"{project}-main")
        request = {"queue": "plans", "project": project, "resource_name": resource.name}
        new = PlanDraft(goal, "builtin/command", resource.location, request, project)
        plan = lifecycle.create(new)
        SqlPlanOutput(self.container.database).append(
            plan.id, [("output", f"printed-by-{project}")], now=self.container.clock.now()
        )
        return plan

    def job(self, plan: Plan) -> Job:
        """Return the job of the plan."""
        job = self.container.plan_parts.lifecycle.queueing.job_of(plan)
        assert job is not None
        return job

    def rule(self, plan: Plan) -> ApprovalRule:
        """Return an approval rule of the plan's project."""
        new = NewRule(RuleScope(plan.project), CommandRule.parse("pytest *"))
        return self.container.plan_parts.rules.add(new, now=self.container.clock.now())

    def conversation(self, plan: Plan) -> Conversation:
        """Return a conversation of the plan's project."""
        new = NewConversation(plan.project, plan.resource, f"{plan.project}-main")
        return self.container.conversations.store.create(new, now=self.container.clock.now())

    def remove(self, name: str, project: str = OURS) -> None:
        self.container.members.remove(project, name, now=self.container.clock.now())

    def restore(self, name: str, role: Role, project: str = OURS) -> None:
        self.container.members.set(project, name, role, now=self.container.clock.now())


@contextmanager
def tenants(directory: Path) -> Iterator[Tenants]:
    """Run the server in this empty directory."""
    with server_bench(directory, server__requests_per_minute=100_000) as bench:
        container = bench.container
        now, tokens = container.clock.now(), dict(bench.tokens)

        def user(name: str, role: Role, project: str) -> None:
            container.users.add(name, role, now=now, project=project)
            _, tokens[name] = container.users.issue(name, TokenKind.PROGRAM, "test", now=now)

        for project in (OURS, THEIRS):
            container.projects.add(project, now=now)
            for role in Role:
                user(f"{project}-{role.value}", role, project)
            bench.repository(f"{project}-main", project)
        user("outsider", Role.VIEWER, OURS)
        container.members.remove(OURS, "outsider", now=now)
        yield Tenants(bench, tokens)
