"""The capability that a server needs, and the scope of an approval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from cleveragents.core.errors import CallDenied, NeedsHuman, PolicyDenied, ToolRefused
from cleveragents.core.json_value import thaw
from cleveragents.core.policy import PROFILES, Capability, Policy, Verdict, profile
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.calls.tool_execution import CallRequest, ToolExecution
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.tools.mcp_gate import PlanGate
from cleveragents.processes.bubblewrap import BubblewrapProbe, ProbeResult
from cleveragents.tools.mcp.gate import UserNamedGate
from cleveragents.tools.mcp.server_entry import McpServer
from tests.mcp_bench import place
from tests.plan_bench import PlanBench, command, plan_bench

STDIO = McpServer("near", "mcp.json", True, ("server",))
OPEN = replace(STDIO, name="open", isolated=False)
HTTP = McpServer("far", "mcp.json", True, url="https://there.test")


class Isolating(BubblewrapProbe):
    """A probe with a working bubblewrap."""

    def result(self) -> ProbeResult:
        return ProbeResult("/usr/bin/bwrap")


class NotIsolating(BubblewrapProbe):
    """A probe without bubblewrap."""

    def result(self) -> ProbeResult:
        return ProbeResult(None, "it is not installed")


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[PlanBench]:
    with plan_bench(tmp_path / "home") as made:
        yield made


def gate(
    plans: PlanBench, policy: Policy, *, probe: BubblewrapProbe | None = None, isolation: str = "auto"
) -> PlanGate:
    plan = plans.done(command("true"))
    sandbox = plans.parts.sandboxes.open(plan.id)
    execution = plans.parts._execution(plan, Strategy(()), sandbox, plans.owned_job(plan), None)
    there = replace(place(sandbox.root), isolation=isolation, probe=probe or Isolating())
    return PlanGate(plan, replace(execution, policy=policy), there)


def outcome(made: PlanGate, server: McpServer) -> Verdict:
    try:
        assert made.permit(server).server is server
    except NeedsHuman:
        return Verdict.ASK
    except PolicyDenied:
        return Verdict.DENY
    return Verdict.ALLOW


def strictest(policy: Policy, *needed: Capability) -> Verdict:
    return max((policy.verdict(one) for one in needed), key=lambda one: one.strictness)


@pytest.mark.parametrize("name", PROFILES)
def test_a_server_with_network_access_needs_network_approval(plans: PlanBench, name: str) -> None:
    policy, run, reach = PROFILES[name], Capability.COMMAND, Capability.NETWORK
    isolated = gate(plans, policy)
    assert outcome(isolated, STDIO) is strictest(policy, run)
    assert outcome(isolated, OPEN) is strictest(policy, run, reach)
    assert outcome(isolated, HTTP) is strictest(policy, reach)
    for free in (gate(plans, policy, probe=NotIsolating()), gate(plans, policy, isolation="off")):
        assert outcome(free, STDIO) is strictest(policy, run, reach)


def test_does_not_start_a_server_if_required_isolation_is_missing(plans: PlanBench) -> None:
    made = gate(plans, profile("full-auto"), probe=NotIsolating(), isolation="required")
    with pytest.raises(ToolRefused, match="isolation is required"):
        made.permit(STDIO)


def test_a_request_is_made_once_and_its_answer_holds(plans: PlanBench) -> None:
    made = gate(plans, profile("manual"))
    execution = made._execution
    plan_id, calls = execution.sandbox.plan_id, execution.calls
    for server, answer in ((STDIO, "granted"), (HTTP, "denied")):
        before = len(execution.history.calls(plan_id))
        for _ in range(2):
            with pytest.raises(NeedsHuman, match=f"MCP server {server.name}"):
                made.permit(server)
        assert len(execution.history.calls(plan_id)) == before + 1
        asked = execution.history.calls(plan_id)[-1]
        assert (asked.state, asked.tool) == (CallState.ASKED, "mcp")
        calls.answer(plan_id, asked.number, answer, now=execution.clock.now())
    for _ in range(2):
        assert made.permit(STDIO).server is STDIO
        with pytest.raises(CallDenied, match="a person denied MCP server far"):
            made.permit(HTTP)
    with pytest.raises(NeedsHuman):  # another definition
        made.permit(replace(STDIO, command=("server", "--other")))


def test_threads_that_need_the_same_server_decide_one_after_the_other(
    plans: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, locked = gate(plans, profile("manual")), list[bool]()
    begin = ToolExecution.begin

    def watched(execution: ToolExecution, request: CallRequest) -> ToolCall:
        locked.append(made._lock.locked())
        return begin(execution, request)

    monkeypatch.setattr(ToolExecution, "begin", watched)
    with pytest.raises(NeedsHuman):
        made.permit(STDIO)
    assert locked == [True]


def test_a_request_lists_everything_that_the_server_receives(plans: PlanBench) -> None:
    made = gate(plans, profile("manual"))
    there = replace(made._place, allowed_names=("PASSED",))
    asking = PlanGate(plans.parts.plans.get(made._execution.sandbox.plan_id), made._execution, there)
    near = replace(STDIO, environment={"KEY": "${A}"}, directory="sub", command=("server", "${B:-b}"))
    far = replace(HTTP, headers={"X-T": "Bearer ${C}"})
    for server in (near, far):
        with pytest.raises(NeedsHuman):
            asking.permit(server)
    first, second = (
        thaw(one.arguments) for one in made._execution.history.calls(made._execution.sandbox.plan_id)[-2:]
    )
    assert first == {
        "server": "near",
        "from": "mcp.json",
        "command": "server '${B:-b}'",
        "cwd": "sub",
        "variables": ["B (the command)", "A (env KEY)", "PASSED (plan.pass_environment)"],
        "env": ["KEY"],
        "isolated": True,
    }
    assert second == {
        "server": "far",
        "from": "mcp.json",
        "url": "https://there.test",
        "variables": ["C (header X-T)"],
        "headers": ["X-T"],
    }


# The approved definition, and a value that was not shown.
OTHERWISE: Mapping[str, Mapping[str, object]] = {
    "name": {"name": "nearer"},
    "own": {"own": False},
    "command": {"command": ("server", "--other")},
    "environment": {"environment": {"KEY": "${OTHER}"}},
    "directory": {"directory": "elsewhere"},
    "url": {"url": "https://other.test", "command": ()},
    "headers": {"headers": {"X-T": "${OTHER}"}},
    "isolated": {"isolated": False},
}
# The location of the file differs between machines, and a disabled server needs no approval.
NOT_SHOWN = ("source", "disabled")
OTHER_PLACES: Mapping[str, Mapping[str, object]] = {
    "a name added to pass_environment": {"allowed_names": ("SEEN", "ADDED")},
    "another name in pass_environment": {"allowed_names": ("ADDED",)},
    "isolation switched off": {"isolation": "off"},
    "bubblewrap gone": {"probe": NotIsolating()},
}


def approved(plans: PlanBench) -> PlanGate:
    """Return a gate with an approval for `STDIO` and one variable of the user."""
    made = gate(plans, profile("manual"))
    execution, there = made._execution, replace(made._place, allowed_names=("SEEN",))
    asking = PlanGate(plans.parts.plans.get(execution.sandbox.plan_id), execution, there)
    with pytest.raises(NeedsHuman):
        asking.permit(STDIO)
    asked = execution.history.calls(execution.sandbox.plan_id)[-1]
    execution.calls.answer(asked.plan_id, asked.number, "granted", now=execution.clock.now())
    assert asking.permit(STDIO).server is STDIO
    return asking


def test_an_approval_covers_exactly_the_shown_request(plans: PlanBench) -> None:
    asking = approved(plans)
    assert {*OTHERWISE, *NOT_SHOWN} == {field.name for field in fields(McpServer)}
    for change in OTHERWISE.values():
        with pytest.raises(NeedsHuman):
            asking.permit(replace(STDIO, **change))
    plan = plans.parts.plans.get(asking._execution.sandbox.plan_id)
    for change in OTHER_PLACES.values():
        other = PlanGate(plan, asking._execution, replace(asking._place, **change))
        with pytest.raises(NeedsHuman):
            other.permit(STDIO)
    again = PlanGate(plan, asking._execution, replace(asking._place, allowed_names=("SEEN", "SEEN")))
    assert again.permit(STDIO).server is STDIO


@pytest.mark.parametrize("relation", ["parent_id", "root_id"])
def test_a_sub_plan_uses_the_approval_of_the_plan_above_it(plans: PlanBench, relation: str) -> None:
    above, below = gate(plans, profile("manual")), gate(plans, profile("manual"))
    execution = above._execution
    plan_id = execution.sandbox.plan_id
    plan = plans.parts.plans.get(below._execution.sandbox.plan_id)
    child = PlanGate(changed(plan, **{relation: plan_id}), below._execution, below._place)
    with pytest.raises(NeedsHuman):
        above.permit(STDIO)
    with pytest.raises(NeedsHuman):  # not answered yet
        child.permit(STDIO)
    for call in execution.history.calls(plan_id):
        if call.state is CallState.ASKED:
            execution.calls.answer(plan_id, call.number, "granted", now=execution.clock.now())
    above.permit(STDIO)
    child.permit(STDIO)
    with pytest.raises(PolicyDenied):  # it does not loosen a stricter policy below
        PlanGate(
            changed(plan, **{relation: plan_id}),
            replace(below._execution, policy=profile("ci")),
            below._place,
        ).permit(HTTP)


def test_a_read_only_run_starts_no_repository_server(plans: PlanBench) -> None:
    reading = gate(plans, profile("full-auto")).read_only()
    for server in (STDIO, OPEN, HTTP):
        assert reading.permit(server).server is server
        with pytest.raises(PolicyDenied, match="read-only"):
            reading.permit(replace(server, own=False))


def test_a_command_starts_only_the_named_server() -> None:
    named = UserNamedGate({"near"})
    assert named.permit(STDIO).server is STDIO
    with pytest.raises(ToolRefused, match="does not name this server"):
        named.permit(HTTP)
