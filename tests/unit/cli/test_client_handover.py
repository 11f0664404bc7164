"""`agents run` on the machine of a server hands the plan to it, as long as it lives and works."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import click
import pytest

from cleveragents.api.client import LocalClient
from cleveragents.api.plans import responses
from cleveragents.cli.commands import cli
from cleveragents.cli.output import Output
from cleveragents.cli.plan.follow import StreamPosition, run_until_rest
from cleveragents.plans.jobs.names import home_queue
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.sub_plan import PAUSED
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.server.server_file import announced
from tests.cli_bench import Agents, command_line
from tests.plan_bench import PlanBench, plan_bench, write
from tests.server_plan_bench import PlanServer, plan_server

REPLACE = ("--action", "builtin/replace", "--arg", "pattern=two", "--arg", "replacement=TWO")
URL = "http://127.0.0.1:8420"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("handover")) as made:
        yield made


@pytest.fixture
def agents(
    server: PlanServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    monkeypatch.setenv("HOME", str(server.home))
    monkeypatch.setenv("CLEVERAGENTS_STATE_DIRECTORY", str(server.bench.state))
    monkeypatch.chdir(server.repository)
    with command_line(monkeypatch, capfd) as run:
        yield run


def queue_of(server: PlanServer, plan_id: str) -> object:
    return server.parts.plans.get(plan_id).request.get("queue")


def plan_in(said: str) -> str:
    return next(line.split()[1].rstrip(":") for line in said.splitlines() if line.startswith("plan "))


def test_a_server_that_lives_runs_the_plan_and_the_command_watches(
    server: PlanServer, agents: Agents
) -> None:
    with announced(server.bench.state, URL, "now"):
        ended = agents("run", "--review", *REPLACE, "--format", "json")
    assert ended.code == 0, ended.err
    assert f"the server at {URL} runs the plan; use --here to run it in this terminal" in ended.err
    assert "step 1 of 1: replace" in ended.err
    account = json.loads(ended.out)
    assert (account["state"], bool(account["request"]["queue"])) == ("complete", True)


def test_questions_are_answered_here_and_the_server_continues(server: PlanServer, agents: Agents) -> None:
    with announced(server.bench.state, URL, "now"):
        ended = agents("run", "--profile", "manual", *REPLACE, typed="y\nr\ny\n")
        background = agents("run", "--background", "--review", *REPLACE, "--format", "json")
    assert (ended.code, "status  discarded" in ended.out) == (0, True), ended.err
    assert ended.err.count("making a sandbox") == 1
    made = json.loads(background.out)
    assert made["server"] == URL
    assert made["id"] == made["plan"]
    server.rested(made)


def test_a_dead_server_and_one_that_does_not_work_get_nothing(server: PlanServer, agents: Agents) -> None:
    (server.bench.state / "server.json").write_text(json.dumps({"url": URL, "pid": 1, "started": "before"}))
    dead = agents("run", "--review", *REPLACE)
    (server.bench.state / "server.json").unlink()
    nobody = agents("run", "--review", *REPLACE)
    for ended in (dead, nobody):
        assert ended.code == 0, ended.err
        assert queue_of(server, plan_in(ended.err)) is None


@pytest.mark.parametrize("how", ["here", "below", "elsewhere"])
def test_plans_without_a_server_resource_run_here(
    server: PlanServer, agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    more = ["--here"] if how == "here" else []
    if how != "here":
        place = server.repository / "below" if how == "below" else tmp_path
        place.mkdir(exist_ok=True)
        monkeypatch.chdir(place)
    with announced(server.bench.state, URL, "now"):
        ended = agents("run", "--review", *more, *REPLACE)
    assert ended.code == 0, ended.err
    assert queue_of(server, plan_in(ended.err)) is None


def test_a_plan_is_paused_before_the_message_and_a_second_interrupt_is_reported(
    server: PlanServer, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["plan ", "interrupted: pausing"]

    class Impatient(StringIO):
        def write(self, text: str) -> int:
            written = sys.__stderr__.write(text) if sys.__stderr__ is not None else 0
            if words and text.startswith(words[0]):
                words.pop(0)
                raise KeyboardInterrupt
            return written

    with announced(server.bench.state, URL, "now"), monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", Impatient())
        ended = agents("run", "--action", "builtin/command", "--profile", "full-auto", "--", "sleep", "99")
    assert ended.code == 130
    plan_id = plan_in(ended.err)
    heard = f"the server is pausing plan {plan_id}"
    assert f"{heard}; check with `agents plan show {plan_id}`" in ended.err
    assert server.rested({"id": plan_id})["status"] == "paused"


def test_a_plan_that_a_command_left_is_continued_on_the_server(server: PlanServer, agents: Agents) -> None:
    left = agents("run", "--here", "--review", "--profile", "manual", *REPLACE)
    plan_id = plan_in(left.err)
    assert (left.code, queue_of(server, plan_id)) == (3, None)
    shown = server.get(f"/plans/{plan_id}")
    assert ({"approve", "deny"} <= set(shown["can"]), shown["elsewhere"]) == (True, None)
    server.post(f"/plans/{plan_id}/approve", {"call": 1})
    assert server.rested({"id": plan_id})["status"] == "ready"
    assert queue_of(server, plan_id)


def test_a_failed_plan_of_a_command_is_resumed_on_the_server(server: PlanServer, agents: Agents) -> None:
    fails = ("--action", "builtin/command", "--profile", "full-auto", "--", "test", "-e", "nowhere")
    plan_id = plan_in(agents("run", "--here", *fails).err)
    assert server.post(f"/plans/{plan_id}/resume")["status"] in ("queued", "running")
    assert server.rested({"id": plan_id})["status"] == "failed"


def test_a_stricter_file_of_the_repository_keeps_a_plan_in_the_terminal(
    server: PlanServer, agents: Agents
) -> None:
    plan_id = plan_in(agents("run", "--here", "--review", "--profile", "manual", *REPLACE).err)
    file = server.repository / ".cleveragents.toml"
    file.write_text("[plan]\nmax_parallel = 1\n")
    try:
        refused = server.post(f"/plans/{plan_id}/approve", {"call": 1}, status=409)
    finally:
        file.unlink()
    assert "sets stricter values for plan.max_parallel; continue the plan in a terminal" in refused["detail"]
    assert queue_of(server, plan_id) is None


def left_in_terminal(agents: Agents) -> str:
    """Return the id of a plan that waits for approval after a command."""
    return plan_in(agents("run", "--here", "--review", "--profile", "manual", *REPLACE).err)


def test_operators_continue_no_plan_in_a_directory_that_is_no_resource(
    server: PlanServer, agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one two\n")
    monkeypatch.chdir(tmp_path)
    plan_id = left_in_terminal(agents)
    refusal = "the plan's directory is not a resource that you may use; continue the plan in a terminal"
    for action in ("approve", "deny", "resume"):
        refused = server.post(f"/plans/{plan_id}/{action}", status=409)
        assert refusal in refused["detail"]
    shown = server.bench.operator.get(f"/api/plans/{plan_id}").json()
    assert (set(shown["can"]) & {"approve", "deny"}, shown["elsewhere"]) == (set(), refusal)
    assert queue_of(server, plan_id) is None
    admin = server.bench.admin
    assert "approve" in admin.get(f"/api/plans/{plan_id}").json()["can"]
    assert admin.post(f"/api/plans/{plan_id}/approve", json={"call": 1}).status_code == 200
    assert server.rested({"id": plan_id})["status"] == "ready"


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("approve", {"call": 1, "pattern": "zzz"}, 422),
        ("deny", {"call": 7}, 409),
        ("answer", {"text": "yes", "first": True}, 409),
        ("resume", {}, 409),
    ],
)
def test_a_refused_request_leaves_the_plan_to_the_terminal(
    server: PlanServer, agents: Agents, action: str, body: dict[str, object], status: int
) -> None:
    plan_id = left_in_terminal(agents)
    server.post(f"/plans/{plan_id}/{action}", body, status=status)
    assert queue_of(server, plan_id) is None
    ended = agents("plan", "approve", plan_id)
    assert (ended.code, "step 1 of 1" in ended.err) == (0, True), ended.err


@pytest.mark.parametrize("lives", [False, True])
def test_a_terminal_takes_a_plan_back_if_no_worker_is_left(
    server: PlanServer, agents: Agents, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    plan_id = left_in_terminal(agents)
    plan, now = server.parts.plans.get(plan_id), server.bench.container.clock.now()
    server.parts.plans.assign_queue(plan, home_queue(server.parts.home), now=now)
    if not lives:
        monkeypatch.setattr(responses, "has_worker_for", lambda parts, queue: False)
    ended = agents("plan", "approve", plan_id)
    assert bool(queue_of(server, plan_id)) is lives
    assert ("workers of a server run the plan" in ended.err) is lives
    assert server.rested({"id": plan_id})["status"] == "ready"


# ── Without a server: what an interrupt does to a plan, wherever that stands ──────────────────────


class Hitting(StringIO):
    """A stderr: whoever reads there which plan is followed hits Ctrl-C."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.startswith("plan ") and ": a goal" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return written


@pytest.fixture
def plans(tmp_path: Path) -> Iterator[PlanBench]:
    with plan_bench(tmp_path) as bench:
        yield bench


def moved(plans: PlanBench, plan: Plan, *way: str) -> Plan:
    """The plan, taken there by somebody."""
    for step in way:
        phase, state = step.split("/")
        known = PlanFacts(waiting_for={"for": "sub-plans"}) if state == "waiting" else None
        now = plans.container.clock.now()
        plan = plans.parts.plans.move(plan, (Phase(phase), PlanState(state)), known, now=now)
    return plan


def followed(plans: PlanBench, plan: Plan) -> PlanState:
    client = LocalClient(plans.container, in_front=True)
    view = client.plans.get(plan.id)
    with cli.make_context("agents", ["--server", "local", "plan"]):
        return run_until_rest(
            client, view, Output("plain"), after=StreamPosition(0, {}), prefix="agents"
        ).state


def test_a_plan_that_waits_for_its_sub_plans_is_paused(
    plans: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = ("strategize/processing", "strategize/complete", "execute/queued", "execute/processing")
    waits = moved(plans, plans.plan(write("z.txt", "z\n")), *way, "execute/waiting")
    monkeypatch.setattr(sys, "stderr", Hitting())
    with pytest.raises(click.exceptions.Exit) as ended:
        followed(plans, waits)
    assert ended.value.exit_code == 130
    assert plans.now(waits).error == PAUSED


def test_a_plan_that_was_being_applied_is_not_paused(
    plans: PlanBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, stderr = plans.done(write("z.txt", "z\n")), Hitting()
    applied = moved(plans, done, "apply/queued", "apply/processing")
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(click.exceptions.Exit) as ended:
        followed(plans, applied)
    assert ended.value.exit_code == 130
    assert f"interrupted; plan {done.id} is unchanged" in stderr.getvalue()
