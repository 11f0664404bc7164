"""Calls that an approval rule starts: isolated commands in its scope, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.config.loader import load_configuration
from cleveragents.core.command_rule import CommandRule
from cleveragents.core.errors import CallDenied, ConfigurationError, NeedsHuman, PolicyDenied
from cleveragents.core.policy import Capability, Policy, profile
from cleveragents.core.tool import CallState
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.store.sql_rule_store import ApprovalRule, NewRule, RuleScope
from cleveragents.processes.ports import Command, CommandResult
from tests.acp_bench import SessionBench
from tests.plan_bench import PlanBench, command

TRUE = {"argv": ("true", "-q")}


class Runner:
    """Runs nothing, and claims to isolate or not."""

    def __init__(self, isolates: bool = True) -> None:
        self.isolates = isolates
        self.ran: list[tuple[str, ...]] = []

    def run(self, command: Command, *_: object, **__: object) -> CommandResult:
        self.ran.append(command.argv)
        return CommandResult(exit_code=0, output="", truncated_bytes=0, timed_out=False, seconds=0.1)


@pytest.fixture
def session(plans: PlanBench) -> SessionBench:
    return SessionBench(plans)


@pytest.fixture
def runner() -> Runner:
    return Runner()


def execution(session: SessionBench, runner: Runner, policy: Policy | None = None) -> ToolExecution:
    made: Any = replace(session.sessions("manual").tools.execution, commands=runner)
    return replace(made, policy=policy or profile("manual"))


def allow(session: SessionBench, pattern: str = "true *", scope: RuleScope | None = None) -> ApprovalRule:
    here = scope or RuleScope.of_project(session.plan.project, session.plan.resource)
    rules = session.plans.parts.rules
    return rules.add(NewRule(here, CommandRule.parse(pattern)), now=session.plans.container.clock.now())


def test_a_rule_starts_an_isolated_command_and_its_call_names_the_rule(
    session: SessionBench, runner: Runner
) -> None:
    rule = allow(session)
    done = execution(session, runner).call(CallRequest("9", "command", TRUE))
    assert (done.state, done.rule, done.approval) == (CallState.ENDED, rule.id, None)
    assert runner.ran == [("true", "-q")]


def test_a_plain_script_is_covered_and_a_compound_one_is_not(session: SessionBench, runner: Runner) -> None:
    allow(session)
    here = execution(session, runner)
    assert here.call(CallRequest("9", "command", {"script": "true -q"})).state is CallState.ENDED
    for number, script in enumerate(("true -q; id", "true `id`", "A=b true -q", "true -q\nid")):
        with pytest.raises(NeedsHuman):
            here.call(CallRequest(f"9.{number}", "command", {"script": script}))
    assert len(runner.ran) == 1


def test_without_isolation_the_command_still_asks(session: SessionBench) -> None:
    allow(session)
    runner = Runner(isolates=False)
    with pytest.raises(NeedsHuman, match="without isolation"):
        execution(session, runner).call(CallRequest("9", "command", TRUE))
    assert runner.ran == []


def test_a_rule_covers_no_other_tool_and_no_other_capability(session: SessionBench, runner: Runner) -> None:
    allow(session)
    here = execution(session, runner)
    for request in (
        CallRequest("9.1", "acp", TRUE, capability=Capability.COMMAND),
        CallRequest("9.2", "acp", TRUE, capability=Capability.NETWORK),
    ):
        with pytest.raises(NeedsHuman):
            here.begin(request)
    with pytest.raises(NeedsHuman):
        here.call(CallRequest("9.3", "command", TRUE, capability=Capability.NETWORK))


def test_a_rule_does_not_lift_a_denial(session: SessionBench, runner: Runner) -> None:
    allow(session)
    never = Policy("never", {})
    with pytest.raises(PolicyDenied):
        execution(session, runner, replace(never, never_asks=True)).call(CallRequest("9", "command", TRUE))


def test_project_rules_can_be_turned_off(session: SessionBench, runner: Runner) -> None:
    allow(session)
    off = replace(execution(session, runner), project_rules=False)
    with pytest.raises(NeedsHuman):
        off.call(CallRequest("9", "command", TRUE))
    allow(session, scope=RuleScope.of_tree(session.plan))
    assert off.call(CallRequest("9.1", "command", TRUE)).state is CallState.ENDED


def test_an_interrupted_call_is_decided_again(session: SessionBench, runner: Runner) -> None:
    rule = allow(session)
    here = execution(session, runner)
    request = CallRequest("9", "command", TRUE)
    begun = here.calls.start_by_rule(
        session.plan.id, "command", TRUE, TRUE["argv"], step="9", now=here.clock.now()
    )
    assert begun is not None
    session.plans.parts.rules.revoke(rule.id, now=here.clock.now())
    with pytest.raises(NeedsHuman):
        execution(session, runner).call(request)
    assert runner.ran == []
    assert [call.state for call in session.calls()] == [CallState.FAILED, CallState.ASKED]


def test_an_interrupted_call_continues_while_its_rule_exists(session: SessionBench, runner: Runner) -> None:
    allow(session)
    here = execution(session, runner)
    here.calls.start_by_rule(session.plan.id, "command", TRUE, TRUE["argv"], step="9", now=here.clock.now())
    assert execution(session, runner).call(CallRequest("9", "command", TRUE)).state is CallState.ENDED
    assert len(runner.ran) == 1


def test_the_reason_of_a_denial_reaches_the_agent(session: SessionBench, runner: Runner) -> None:
    here = execution(session, runner)
    request = CallRequest("9", "command", TRUE)
    with pytest.raises(NeedsHuman):
        here.call(request)
    (asked,) = session.calls()
    session.plans.parts.calls.answer(
        session.plan.id, asked.number, "denied", now=here.clock.now(), reason="run `make test` instead"
    )
    with pytest.raises(CallDenied, match="denied by a person: run `make test` instead"):
        here.call(request)
    assert session.calls()[0].error == "denied by a person: run `make test` instead"


def test_a_rule_of_a_plan_covers_no_other_plan(
    session: SessionBench, plans: PlanBench, runner: Runner
) -> None:
    allow(session, scope=RuleScope.of_tree(session.plan))
    other = plans.done(command("true"))
    sandbox = plans.parts.sandboxes.open(other.id)
    job = plans.owned_job(other, session.token)
    made: Any = plans.parts._execution(other, Strategy(()), sandbox, job, None)
    elsewhere = replace(made, commands=runner, policy=profile("manual"))
    with pytest.raises(NeedsHuman):
        elsewhere.call(CallRequest("9", "command", TRUE))
    assert execution(session, runner).call(CallRequest("9", "command", TRUE)).state is CallState.ENDED


@pytest.mark.parametrize(
    ("user", "repository", "counts"), [("allow", "deny", "deny"), ("deny", "allow", "deny")]
)
def test_a_repository_can_only_deny_project_rules(
    tmp_path: Path, user: str, repository: str, counts: str
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".cleveragents.toml").write_text(f'[plan]\nproject_rules = "{repository}"\n')
    (tmp_path / ".config/cleveragents").mkdir(parents=True)
    (tmp_path / ".config/cleveragents/config.toml").write_text(f'[plan]\nproject_rules = "{user}"\n')
    assert load_configuration({"HOME": str(tmp_path)}, tmp_path, ()).settings.plan.project_rules == counts


def test_a_repository_cannot_add_a_rule(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".cleveragents.toml").write_text('[rules]\nallow = ["pytest *"]\n')
    with pytest.raises(ConfigurationError):
        load_configuration({"HOME": str(tmp_path)}, tmp_path, ())
