"""Isolation as a precondition: refusals, approvals, and where the isolation of a plan is shown."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.api.plans.details import details_of
from cleveragents.api.workers import isolation_of, unisolated_workers
from cleveragents.cli.isolation import ensure_isolated
from cleveragents.config.settings import SandboxSettings
from cleveragents.core.errors import NotIsolated, ToolRefused
from cleveragents.core.policy import PROFILES, Isolation, weaker
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.processes.bubblewrap import BubblewrapProbe, shared_probe
from cleveragents.processes.guarded_runner import GuardedCommandRunner
from cleveragents.processes.ports import NETWORK_NOT_DENIED, Command
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench, answer, call, executes, says
from tests.cli_bench import Agents, command_line, use_home
from tests.plan_bench import PlanBench, check, command, plan_bench
from tests.server_plan_bench import plan_server
from tests.unisolated import ALLOW_UNISOLATED

SOURCES = Path(__file__).parents[3] / "src" / "cleveragents"
ALONE = (None, "builtin/executor", None)
DENY_NETWORK = ("review", "cautious", "ci")
needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)

MISSING = BubblewrapProbe("no-such-bubblewrap")
WORKS = BubblewrapProbe("true")


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[PlanBench]:
    with plan_bench(tmp_path, isolation="off") as bench:
        yield bench


@pytest.fixture
def actors(tmp_path: Path) -> Iterator[ActorPlanBench]:
    """An agent that runs one command; commands are not isolated."""
    with actor_plan_bench(tmp_path) as bench:
        yield bench


# ── Starting ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("isolation", "probe", "told"),
    [
        ("auto", MISSING, "bubblewrap (bwrap) is not installed; install bubblewrap"),
        ("off", WORKS, "sandbox.isolation is off; set sandbox.isolation to auto"),
    ],
)
def test_unisolated_workers_need_explicit_permission(
    isolation: str, probe: BubblewrapProbe, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = SandboxSettings(isolation=isolation)
    with pytest.raises(NotIsolated, match="or pass --allow-unisolated") as refused:
        ensure_isolated(settings, allowed=False, probe=probe)
    assert told in str(refused.value)
    ensure_isolated(settings, allowed=True, probe=probe)
    ensure_isolated(SandboxSettings(isolation=isolation, allow_unisolated=True), allowed=False, probe=probe)
    assert capfd.readouterr().err.count("warning: commands of plans are not isolated") == 2


def test_required_isolation_cannot_be_waived() -> None:
    with pytest.raises(NotIsolated, match=r"set sandbox\.isolation to auto"):
        ensure_isolated(
            SandboxSettings(isolation="required", allow_unisolated=True), allowed=True, probe=MISSING
        )


def test_no_warning_with_isolation(capfd: pytest.CaptureFixture[str]) -> None:
    ensure_isolated(SandboxSettings(), allowed=False, probe=WORKS)
    assert capfd.readouterr().err == ""


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    """Return the command line of a user without permissions."""
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    for name in ALLOW_UNISOLATED:
        monkeypatch.delenv(name)
    with command_line(monkeypatch, capfd) as agents:
        yield agents


@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["worker", "--until-idle"], ["mcp", "serve"]])
def test_no_job_runner_starts_without_isolation(agents: Agents, words: list[str]) -> None:
    ended = agents("--set", "sandbox.isolation=off", *words)
    assert ended.code == 2
    assert "commands of plans would run without isolation: sandbox.isolation is off" in ended.err
    assert "or pass --allow-unisolated" in ended.err


def test_a_permitted_worker_runs_unisolated_with_a_warning(agents: Agents) -> None:
    ended = agents("--set", "sandbox.isolation=off", "worker", "--until-idle", "--allow-unisolated")
    assert ended.code == 0, ended.err
    assert "warning: commands of plans are not isolated: sandbox.isolation is off" in ended.err


def test_every_command_that_starts_a_worker_for_others_ensures_isolation() -> None:
    """A worker takes whatever is queued in the database, by any user."""

    def modules_with(*words: str) -> set[str]:
        return {
            path.relative_to(SOURCES / "interfaces").as_posix()
            for path in (SOURCES / "interfaces").rglob("*.py")
            if any(word in path.read_text() for word in words)
        }

    # One helper connects for `serve` and `worker`; the server starts the worker of `serve`.
    starts = modules_with("WorkerParts(", "wait_until_reachable(") - {"cli/readiness.py", "server/serve.py"}
    assert starts == modules_with("ensure_isolated(container")
    assert modules_with("interfaces.server.serve import") <= starts


# ── Running ───────────────────────────────────────────────────────────────────────────────────────


def asked_to_run(bench: ActorPlanBench, profile: str) -> tuple[str, str]:
    """Return the status of a plan whose agent requests a command, and its messages."""
    model = bench.script(executes(answer(call("command", script="echo x > made.txt")), says("done")))
    plan = bench.work(bench.goal(model, cast=ALONE, profile=profile))
    waits = plan.state is PlanState.WAITING
    calls = bench.calls(plan)
    error = "" if not calls else str(calls[-1].error)
    told = str(bench.waited(plan)["what"]) if waits else str(plan.error or error)
    return plan.state.value, told


@pytest.mark.parametrize("profile", PROFILES)
def test_without_isolation_the_profile_decides_on_an_agents_command(
    actors: ActorPlanBench, profile: str
) -> None:
    state, told = asked_to_run(actors, profile)
    if profile in DENY_NETWORK:
        assert state == "complete"
        assert "denies the network, and without bubblewrap the network cannot be denied" in told
    elif profile in ("manual", "supervised"):
        assert state == "waiting"
        assert "needs approval for command" in told
        assert "without isolation" in told
    else:
        assert (state, told) == ("complete", "None")


@pytest.mark.parametrize("profile", PROFILES)
def test_without_isolation_the_profile_decides_on_a_typed_command(plans: PlanBench, profile: str) -> None:
    typed = replace(command("echo x > made.txt"), granted=True)
    plan = plans.done(typed, profile=profile)
    if profile in DENY_NETWORK:
        assert plan.state is PlanState.ERRORED
        assert "without bubblewrap the network cannot be denied; install bubblewrap" in str(plan.error)
        assert plans.calls(plan) == []
    else:
        assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error


@pytest.mark.parametrize("profile", PROFILES)
def test_without_isolation_a_check_runs_or_the_plan_fails_before_it_spends_anything(
    plans: PlanBench, profile: str
) -> None:
    plan = plans.done(checks=[check("true")], profile=profile)
    if profile in DENY_NETWORK:
        assert plan.phase_state == (Phase.STRATEGIZE, PlanState.ERRORED)
        assert "check 'true' cannot run: profile" in str(plan.error)
    else:
        assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
        assert [run.verdict.value for run in plans.parts.check_runs.of_plan(plan.id)] == ["passed"]


@needs_bubblewrap
@pytest.mark.parametrize("profile", PROFILES)
def test_with_isolation_a_typed_command_and_a_check_run_under_every_profile(
    tmp_path: Path, profile: str
) -> None:
    with plan_bench(tmp_path, isolation="required") as bench:
        typed = replace(command("echo x > made.txt"), granted=True)
        plan = bench.done(typed, checks=[check("test -f made.txt")], profile=profile)
        assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan.error
        assert plan.isolation is Isolation.BUBBLEWRAP


def test_a_runner_that_cannot_isolate_refuses_a_command_whose_network_is_denied(tmp_path: Path) -> None:
    wanted = Command(("true",), tmp_path, tmp_path, network_denied=True)
    for runner in (GuardedCommandRunner(isolation="off"), GuardedCommandRunner(probe=MISSING)):
        with pytest.raises(ToolRefused) as refused:
            runner.run(wanted, CancellationToken())
        assert NETWORK_NOT_DENIED in str(refused.value)


def _imports_command(path: Path) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "cleveragents.processes.ports"
        and "Command" in {alias.name for alias in node.names}
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_every_command_states_whether_its_network_is_denied() -> None:
    """A new place that runs commands must not forget the policy."""
    made = {
        f"{path.relative_to(SOURCES)}:{node.lineno}": [keyword.arg for keyword in node.keywords]
        for path in SOURCES.rglob("*.py")
        if _imports_command(path)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Command"
    }
    assert len(made) >= 4
    assert [where for where, named in made.items() if "network_denied" not in named] == []


# ── Stating ───────────────────────────────────────────────────────────────────────────────────────


def test_the_isolation_of_a_plan_is_recorded_and_the_weakest_run_counts(plans: PlanBench) -> None:
    plan = plans.plan(command("true"))
    assert plan.isolation is None
    assert isolation_of(plans.parts, plan) == "none", "what would be used"
    plan = plans.work(plan)
    assert plan.isolation is Isolation.NONE
    assert details_of(plans.parts, plan)["isolation"] == "none"
    now = plans.container.clock.now()
    facts = PlanFacts(isolation=Isolation.BUBBLEWRAP)
    moved = plans.parts.plans.move(plan, (Phase.EXECUTE, PlanState.QUEUED), facts, now=now)
    assert moved.isolation is Isolation.NONE


@pytest.mark.parametrize("one", [None, *Isolation])
@pytest.mark.parametrize("other", [None, *Isolation])
def test_the_weaker_of_two_isolations_counts(one: Isolation | None, other: Isolation | None) -> None:
    found = weaker(one, other)
    assert found is weaker(other, one)
    assert (found is Isolation.NONE) == (Isolation.NONE in (one, other))
    assert (found is None) == (one is other is None)


def test_plan_show_and_its_json_state_the_isolation(plans: PlanBench, agents: Agents) -> None:
    plan = plans.done(command("true"))
    shown = agents("plan", "show", plan.id, "--format", "plain")
    assert "none: commands run with all rights of the worker's user" in shown.out
    assert json.loads(agents("plan", "show", plan.id, "--format", "json").out)["isolation"] == "none"


def test_the_api_states_the_isolation_of_plans_and_of_workers(tmp_path: Path) -> None:
    with plan_server(tmp_path, sandbox__isolation="off") as server:
        plan = server.rested(server.command("true"))
        assert plan["isolation"] == "none"
        listed = server.get("/plans")["items"]
        assert [one["isolation"] for one in listed] == ["none"]
        assert server.get("/about")["unisolated_workers"] == ["bench"]
        assert [one["isolation"] for one in server.get("/workers")["items"]] == ["none"]
    with plan_server(tmp_path / "idle", works=False) as server:
        assert unisolated_workers(server.bench.container) == []
