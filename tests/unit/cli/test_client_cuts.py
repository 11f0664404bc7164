"""A client whose connection is cut, or whose server is started anew, loses nothing and does nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import IO, Any

import click
import pytest

from cleveragents.api.client import HttpClient
from cleveragents.api.event_stream import Follower
from cleveragents.api.plans.request import PlanRequest
from cleveragents.api.transport import HttpTransport
from cleveragents.cli.commands import cli
from cleveragents.cli.output import Output
from cleveragents.cli.plan.follow import PlansFollower, current_position, run_until_rest
from cleveragents.cli.plan.respond import print_denied
from cleveragents.cli.plan.view import printed_at_end
from cleveragents.cli.plan.work import WorkOptions
from cleveragents.cli.run.server_run import run_together
from cleveragents.cli.servers import keep_token, logins_file
from cleveragents.core.errors import (
    Cancelled,
    CleverAgentsError,
    NotAllowed,
    NotAuthenticated,
    RemoteUnreachable,
    ServerFailed,
    ServerUnreachable,
    UnknownPlan,
    UnknownProject,
)
from cleveragents.plans.model.status import PlanStatus
from tests.client_bench import Cutting, Served, served
from tests.conditions import wait_until

pytestmark = pytest.mark.usefixtures("commands_are_forked")
REPLACE = {"pattern": "colour", "replacement": "color"}
SLEEP = PlanRequest(
    resource="shop", action="builtin/command", arguments={"argv": ["sleep", "99"]}, profile="full-auto"
)
EDIT = PlanRequest(resource="shop", action="builtin/replace", arguments=REPLACE, apply="review")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("cuts")) as made:
        keep_token(logins_file({"HOME": str(made.home)}), made.url, made.token("operator"))
        yield made


@pytest.fixture
def client(bench: Served) -> Iterator[HttpTransport]:
    with HttpTransport(bench.url, bench.token("operator")) as made:
        yield made


@pytest.fixture
def plans(bench: Served) -> Iterator[HttpClient]:
    with HttpClient(HttpTransport(bench.url, bench.token("operator"))) as made:
        yield made


@pytest.fixture
def command() -> Iterator[None]:
    """Within a command of ours, which next steps are said of."""
    with cli.make_context("agents", ["--server", "local", "plan"]):
        yield


class Heard:
    """What a command says on stderr and stdout, read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        self._threads = [threading.Thread(target=self._read, args=(stream,)) for stream in streams]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line.strip())
                    self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: any(text in line for line in self.lines), 60), self.lines

    def end(self) -> None:
        for thread in self._threads:
            thread.join(60)


def test_a_plan_that_is_followed_across_a_restart_shows_each_line_once(bench: Served) -> None:
    """Field report 29: a dropped stream repeats nothing and skips nothing."""
    script = "echo first; sleep 2; echo second"  # before, in or after the restart: it is all the same
    words = ("--action", "builtin/command", "--profile", "full-auto", "--", "sh", "-c", script)
    process = bench.process("--server", bench.url, "run", *words)
    heard = Heard(process)
    try:
        heard.wait_for("first")
        bench.stop()
        bench.start()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
        heard.end()
    assert [line for line in heard.lines if line in ("first", "second")] == ["first", "second"]
    assert sum(line.startswith("step 1 of 1") for line in heard.lines) == 1


def test_events_that_are_followed_across_a_restart_come_once_in_order(
    bench: Served, client: HttpTransport
) -> None:
    """Field report 29: a dropped stream repeats nothing and skips nothing."""
    after = str(client.get("/events", limit=1)["items"][-1]["position"])
    words = ("events", "tail", "--follow", "--after", after, "--format", "stream-json")
    process = bench.process("--server", bench.url, *words)
    heard = Heard(process)
    try:
        body = {"resource": "shop", "action": "builtin/replace", "arguments": REPLACE, "apply": "review"}
        for _ in range(2):
            heard.wait_for(client.post("/plans", body)["id"])
            bench.stop()
            bench.start()
        heard.wait_for(client.post("/plans", body)["id"])
    finally:
        os.kill(process.pid, signal.SIGINT)
        process.wait(60)
        heard.end()
    positions = [json.loads(line)["position"] for line in heard.lines if line.startswith("{")]
    # Positions between them may belong to events that this user does not see.
    known = [event["position"] for event in client.get("/events", after=after, limit=1000)["items"]]
    assert positions == known[: len(positions)]
    assert process.returncode == 130


def test_an_answer_that_is_lost_makes_one_plan(bench: Served) -> None:
    body = {"resource": "shop", "action": "builtin/replace", "arguments": REPLACE, "apply": "review"}
    with Cutting(bench.port, cuts=2) as way, HttpTransport(way.url, bench.token("operator")) as client:
        before = {row["id"] for row in client.get("/plans", limit=1000)["items"]}
        made = client.post("/plans", body)["id"]
        after = {row["id"] for row in client.get("/plans", limit=1000)["items"]}
        assert way.cuts == 0
    assert after - before == {made}


def test_lists_come_in_pieces_and_end(client: HttpTransport) -> None:
    every = client.read_page(itemgetter("position"), "/events", 10_000, "0")
    assert every.next is None
    positions = list(every.items)
    assert list(client.read_page(itemgetter("position"), "/events", 3, "0").items) == positions[:3]
    assert positions == sorted(set(positions)), "each once; what belongs to no project is not shown"
    assert positions


def test_a_server_that_does_not_come_back_is_given_up(bench: Served) -> None:
    token = bench.token("viewer")
    with (
        HttpTransport(bench.url, token, patience_seconds=0.3) as client,
        HttpTransport(bench.url, token, patience_seconds=3600.0) as patient,
    ):
        assert client.get("/session") == patient.get("/session")
        bench.stop()
        try:
            with pytest.raises(ServerUnreachable):
                client.get("/session")
            with pytest.raises(ServerUnreachable):
                next(Follower(client, 0).frames())
            _leave_at_once(patient)
        finally:
            bench.start()
    with HttpTransport("http://127.0.0.1:9", None) as nobody, pytest.raises(ServerUnreachable):
        next(Follower(nobody, 0).frames())


def _leave_at_once(patient: HttpTransport) -> None:
    """Who interrupts a second time waits for no server, and the exit code says that they did."""
    told = printed_at_end(HttpClient(patient), Output("json"), "PLAN")
    with pytest.raises(click.exceptions.Exit) as left, told:
        raise click.exceptions.Exit(130)
    assert left.value.exit_code == 130


class Impatient(HttpTransport):
    """A client whose user presses Ctrl-C: before a plan's pause is sent, or once that is answered."""

    waits = False
    _heard = False

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if path.endswith("/pause") and not self.waits:
            raise KeyboardInterrupt
        answer = super().post(path, body)
        self._heard = path.endswith("/pause")
        return answer

    def get(self, path: str, /, **query: Any) -> Any:
        if self._heard and path.endswith("/output"):
            raise KeyboardInterrupt
        return super().get(path, **query)


class Hasty(HttpTransport):
    """A client whose user presses Ctrl-C `hits` times when the output of a plan is requested."""

    hits = 1

    def get(self, path: str, /, **query: Any) -> Any:
        if self.hits and path.endswith("/output"):
            self.hits -= 1
            raise KeyboardInterrupt
        return super().get(path, **query)


class Late(Hasty):
    """The first plan that it pauses is cancelled by another user just before; or `instead` sends the
    request, if set."""

    instead: HttpTransport | None = None
    _first = True

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if path.endswith("/pause") and self.instead is not None:
            return self.instead.post(path, body)
        if path.endswith("/pause") and self._first:
            self._first = False
            plan = super().post(path.replace("/pause", "/cancel"), {"reason": "not wanted"})["id"]
            wait_until(lambda: bool(self.get(f"/plans/{plan}")["state"] == "cancelled"))
        return super().post(path, body)


@pytest.mark.usefixtures("command")
def test_a_second_interrupt_prints_whether_the_server_received_the_pause(
    bench: Served, plans: HttpClient, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plans.plans.create(SLEEP)
    resting = plans.plans.create(EDIT)
    following = PlansFollower(plans, [resting], Output("plain"), after=current_position(plans))
    following.to_rest()
    following.close()
    capsys.readouterr()
    hasty = HttpClient(Hasty(bench.url, bench.token("operator")))
    with hasty, pytest.raises(click.exceptions.Exit) as left:
        run_until_rest(hasty, resting, Output("plain"), after=current_position(plans), prefix="agents")
    assert left.value.exit_code == 130
    said = capsys.readouterr().err
    assert f"interrupted; plan {resting.id} is unchanged: ready" in said
    assert f"agents plan apply {resting.id}" in said
    impatient = Impatient(bench.url, bench.token("operator"))
    for waits in (False, True):
        impatient.waits = waits
        after = current_position(plans, plan)
        following = PlansFollower(HttpClient(impatient), [resting, plan], Output("plain"), after=after)
        with pytest.raises(click.exceptions.Exit) as left:
            following.stopped("agents")
        assert left.value.exit_code == 130
        *before, said = capsys.readouterr().err.splitlines()
        # Told before it is said, which may hang.
        assert [line.startswith("interrupted: pausing") for line in before] == [True] * waits
        heard = f"the server is pausing plan {plan.id}"
        perhaps = f"the server may not have received the request to pause plan {plan.id}"
        assert said.startswith(heard if waits else perhaps)
        assert f"`agents plan {'show' if waits else 'pause'} {plan.id}`" in said
    impatient.close()
    following = PlansFollower(plans, [plan], Output("plain"), after=current_position(plans, plan))
    assert [one.status for one in following.to_rest()] == [PlanStatus.PAUSED]
    following.close()


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize("hits", [1, 2])
def test_a_plan_that_the_server_does_not_stop_keeps_no_other_running(
    bench: Served, plans: HttpClient, capsys: pytest.CaptureFixture[str], hits: int
) -> None:
    before = {row.id for row in plans.plans.list().items}
    late = Late(bench.url, bench.token("operator"))
    late.hits = hits
    with HttpClient(late) as client, pytest.raises(click.exceptions.Exit) as left:
        run_together(client, WorkOptions(client, "agents", Output("plain"), parallel=2), [SLEEP] * 2)
    assert left.value.exit_code == 130
    said = capsys.readouterr().err
    first, second = sorted({row.id for row in plans.plans.list().items} - before)
    assert "interrupted: pausing 1 plan …" in said
    assert f"plan {first}: not running (cancelled)" in said
    assert (f"plan {first} is on the server; show it with `agents plan show {first}`" in said) == (hits == 2)
    assert (f"the server is pausing plan {second}" in said) == (hits == 2)
    both = [plans.plans.get(plan_id) for plan_id in (first, second)]
    following = PlansFollower(plans, both, Output("plain"), after=current_position(plans))
    stopped = following.to_rest()
    following.close()
    assert [one.status for one in stopped] == [PlanStatus.CANCELLED, PlanStatus.PAUSED]
    with pytest.raises(Cancelled, match="not wanted"):
        print_denied(WorkOptions(plans, "agents", Output("plain")), stopped[0])
    assert "denied:" not in capsys.readouterr().err


class Older(HttpTransport):
    """A client of a server of 0.1.0, which cannot pause plans."""

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if path.endswith("/pause"):
            raise ServerFailed("no such address", "not-found", 404)
        return super().post(path, body)


@pytest.mark.usefixtures("command")
def test_an_interrupt_leaves_a_plan_to_a_server_that_cannot_pause_and_says_so(
    bench: Served, plans: HttpClient, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plans.plans.create(SLEEP)
    with HttpClient(Older(bench.url, bench.token("operator"))) as client:
        following = PlansFollower(client, [plan], Output("plain"), after=current_position(plans))
        with pytest.raises(click.exceptions.Exit) as left:
            following.stopped("agents")
    assert left.value.exit_code == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"this server cannot pause plans: plan {plan.id} continues; `agents plan cancel {plan.id}` ends it"
    )
    plans.plans.cancel(plan.id)


@pytest.mark.usefixtures("command")
def test_a_plan_that_cannot_be_paused_does_not_keep_others_from_being_paused(
    bench: Served, plans: HttpClient, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = plans.plans.create(SLEEP), plans.plans.create(SLEEP)

    class Lacking(Older):
        def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
            return super().post(path, body) if first.id in path else HttpTransport.post(self, path, body)

    with HttpClient(Lacking(bench.url, bench.token("operator"))) as client:
        following = PlansFollower(client, [first, second], Output("plain"), after=current_position(plans))
        with pytest.raises(click.exceptions.Exit):
            following.stopped("agents")
    said = capsys.readouterr().err
    assert f"this server cannot pause plans: plan {first.id} continues" in said
    assert f"this server cannot pause plans: plan {second.id}" not in said
    assert f"plan {second.id}" in said
    for plan in (first, second):
        with suppress(CleverAgentsError):
            plans.plans.cancel(plan.id)


def test_a_viewer_who_cannot_pause_sees_that_plans_continue(
    bench: Served, plans: HttpClient, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {row.id for row in plans.plans.list().items}
    late = Late(bench.url, bench.token("operator"))
    with (
        HttpClient(late) as client,
        HttpTransport(bench.url, bench.token("viewer")) as viewer,
        pytest.raises(NotAllowed),
    ):
        late.instead = viewer
        run_together(client, WorkOptions(client, "agents", Output("plain")), [SLEEP])
    (plan_id,) = {row.id for row in plans.plans.list().items} - before
    assert (
        f"plan {plan_id} is on the server; show it with `agents plan show {plan_id}`"
        in capsys.readouterr().err
    )
    plans.plans.cancel(plan_id)


def test_an_unknown_user_follows_nothing_and_the_token_is_not_printed(bench: Served) -> None:
    with HttpTransport(bench.url, "agents_sk_wrong") as client:
        with pytest.raises(NotAuthenticated) as unknown:
            client.get("/session")
        with pytest.raises(NotAuthenticated):
            next(Follower(client, 0).frames())
    assert "agents_sk_wrong" not in str(unknown.value)
    with HttpTransport(bench.url, bench.token("viewer")) as client, pytest.raises(NotAllowed) as refused:
        client.post("/plans", {"resource": "shop", "goal": "x"})
    assert refused.value.exit_code == 1


def test_a_git_remote_that_the_server_cannot_reach_is_not_taken_for_the_server(
    bench: Served, client: HttpTransport
) -> None:
    told: list[str] = []
    client.tell = told.append
    with HttpTransport(bench.url, bench.token("admin")) as admin:
        admin.post("/resources", {"name": "far", "project": "team", "remote": "file:///nowhere/far.git"})
        try:
            with pytest.raises(RemoteUnreachable, match="cannot reach") as said:
                client.post("/context", {"question": "what?", "resource": "far"})
        finally:
            admin.delete("/resources/far")
    assert (said.value.exit_code, told) == (75, [])


def test_something_else_than_the_api_is_recognised(bench: Served) -> None:
    with HttpTransport(f"{bench.url}/nowhere", None) as client, pytest.raises(ServerFailed) as said:
        client.get("/session")
    assert (said.value.status, said.value.code, said.value.exit_code) == (404, "not-found", 1)


def test_a_delete_with_a_lost_response_is_done(bench: Served, client: HttpTransport) -> None:
    with pytest.raises(UnknownPlan):
        client.delete("/plans/NOSUCH")
    with HttpTransport(bench.url, bench.token("admin")) as admin:
        admin.post("/projects", {"name": "short"})
        admin.delete("/projects/short")
        with pytest.raises(UnknownProject):
            admin.delete("/projects/short")
