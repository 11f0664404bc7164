"""Two machines with one database: a plan on a directory runs where that is, others anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.access import Access, owner_of
from cleveragents.api.client import LocalClient
from cleveragents.api.plans.apply_jobs import apply_later, undo_later
from cleveragents.api.plans.create import PlanSpec
from cleveragents.api.plans.overview import overview_of
from cleveragents.api.plans.request import PlanRequest
from cleveragents.api.resources import add_directory, place_of
from cleveragents.api.server_requests import ServerPlanRequest, shared_plan
from cleveragents.app.container import Container
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.config.settings import Settings
from cleveragents.core.errors import SandboxRefused
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import JobState
from cleveragents.jobs.ports import JobHandler
from cleveragents.plans.jobs.names import SHARED_QUEUE, home_queue, kind_of_plan
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from tests.conditions import wait_until
from tests.plan_bench import new_repository
from tests.postgres import PostgresServer
from tests.remotes import Remote, new_remote

pytestmark = pytest.mark.postgres

APPLIED = (Phase.APPLY, PlanState.APPLIED)


class Homes:
    """`here` has the directory `shop`; `there` is another machine, with the same paths on its disk even."""

    def __init__(self, place: Path, here: Container, there: Container) -> None:
        self.here, self.there = here, there
        self.repository = new_repository(place / "repository")
        self.remote: Remote = new_remote(place)
        self.script = place / "script.yaml"
        self.script.write_text("rules:\n  - reply: {text: hello}\n")
        projects, now = here.projects, here.clock.now()
        projects.add("team", now=now)
        add_directory(projects, "shop", "team", self.repository, now=now)
        address = self.remote.address
        projects.add_resource("far", "team", ResourceKind.REMOTE, address.url, branch=address.branch, now=now)

    def plan(self, resource: str, script: str, *, at: Container | None = None) -> Plan:
        wanted = PlanSpec(
            action="builtin/command",
            words=(),
            pairs=(),
            checks=(),
            profile="full-auto",
            from_head=False,
            include=(),
            goal=None,
            commit=False,
            arguments={"argv": ["sh", "-c", script]},
        )
        return shared_plan(at or self.here, ServerPlanRequest(resource, wanted, "auto"), by="ada")

    def written(self, name: str, **more: str) -> Plan:
        """A plan that makes such a file of the directory, as a command asks for it."""
        script = ["sh", "-c", f"echo x > {name}"]
        request = freeze({"arguments": {"argv": script}, "profile": "full-auto", **more})
        assert isinstance(request, FrozenObject)
        new = PlanDraft("a file", "builtin/command", str(self.repository), request)
        return self.here.plan_parts.lifecycle.create(new)

    def now(self, plan: Plan) -> Plan:
        return self.here.plan_parts.plans.get(plan.id)

    def is_untouched(self, plan: Plan) -> bool:
        job = self.here.jobs.get(str(plan.job_id))
        return (job.state, job.attempt) == (JobState.QUEUED, 0)


@pytest.fixture
def homes(tmp_path: Path, postgres: PostgresServer) -> Iterator[Homes]:
    url = postgres.ready_url()
    with ExitStack() as stack:
        made = []
        for name in ("here", "there"):
            facts = msgspec.to_builtins(demo_settings(tmp_path / name))
            facts["database"] = {"url": url}
            facts["sandbox"] = {"isolation": "off"}
            facts["worker"] = {"poll_seconds": 0.05}
            made.append(stack.enter_context(Container(msgspec.convert(facts, Settings))))
        yield Homes(tmp_path, *made)
    postgres.drop(url)


def queue_of_everybody(home: str | None) -> str:
    """The naive version: one queue, whoever's directory it is."""
    return SHARED_QUEUE


@pytest.mark.parametrize("naive", [False, True])
def test_a_plan_on_a_directory_is_run_where_that_is_and_one_on_a_remote_anywhere(
    homes: Homes, naive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if naive:
        place = "cleveragents.api.server_requests.home_queue"
        monkeypatch.setattr(place, queue_of_everybody)
    near = homes.plan("shop", "echo near > near.txt")
    far = homes.plan("far", "echo far > far.txt")
    # The other machine takes jobs in their order, so it came by the first when it is done with the second.
    with WorkerParts(homes.there).start(name="there", concurrency=1):
        wait_until(lambda: homes.now(far).phase_state == APPLIED)
    assert homes.remote.text("far.txt").split() == ["far"]
    if naive:
        assert not homes.is_untouched(near)
        return
    assert homes.is_untouched(near)
    again = homes.plan("far", "echo again > far.txt")
    with WorkerParts(homes.here).start(name="here", concurrency=1):
        wait_until(lambda: {homes.now(plan).phase_state for plan in (near, again)} == {APPLIED})
    assert (homes.repository / "near.txt").read_text() == "near\n"
    assert homes.remote.text("far.txt").split() == ["again"]


def steps_of(machine: Container, plan: Plan) -> list[str]:
    """What the plan's page says that can be done next."""
    steps = overview_of(Access(machine, owner_of(machine)), plan)["next_steps"]
    assert isinstance(steps, list)
    return [" ".join(step) for step in steps]


def test_a_plan_without_a_worker_names_the_missing_one(homes: Homes) -> None:
    near, far = homes.plan("shop", "true"), homes.plan("far", "true")
    for plan, where in ((near, f"where {homes.repository} is"), (far, "no worker is running")):
        first, *_, last = steps_of(homes.here, plan)
        assert first.startswith("`worker` runs the plan")
        assert where in first
        assert "cancel" in last
    with WorkerParts(homes.there).start(name="there", queues=("others", home_queue(homes.there.home))):
        assert "`worker`" in steps_of(homes.here, near)[0]
        [other] = homes.there.worker_registry.list()
    ours = replace(other, id="ours", queue=home_queue(homes.here.home))
    for state, seen in (("gone", timedelta()), ("draining", timedelta()), ("working", timedelta(hours=1))):
        homes.here.worker_registry.report(replace(ours, id=state, state=state, seen_at=ours.seen_at - seen))
        assert "`worker`" in steps_of(homes.here, near)[0]
    homes.here.worker_registry.report(ours)
    assert "`worker`" not in steps_of(homes.here, near)[0]
    homes.here.worker_registry.report(replace(ours, state="gone"))
    homes.repository.rename(homes.repository.with_name("elsewhere"))
    assert "`worker`" in steps_of(homes.there, near)[0]


def test_a_server_of_another_machine_refuses_what_it_has_no_files_of(homes: Homes) -> None:
    """Its own directory of the same path is another one."""
    with pytest.raises(SandboxRefused, match="on another machine"):
        homes.plan("shop", "true", at=homes.there)
    with pytest.raises(SandboxRefused, match="on another machine"):
        place_of(homes.there, homes.there.projects.resource("shop"))
    assert place_of(homes.here, homes.here.projects.resource("shop")) == homes.repository


def test_applies_and_undoes_go_where_the_plan_ran(homes: Homes) -> None:
    queue = home_queue(homes.here.home)
    private, shared = homes.written("made1.txt"), homes.written("made2.txt", queue=queue)
    run = JobHandler(homes.here.plan_parts.run())
    command = homes.here.worker({kind_of_plan(private.root): run}, name="command")
    command.start()
    command.run_until_idle(60)
    job = apply_later(homes.here, private.id, message=None, by="ada")
    assert job.queue == queue
    done = (Phase.EXECUTE, PlanState.COMPLETE)
    with WorkerParts(homes.here).start(name="here"):
        wait_until(lambda: homes.now(private).phase_state == APPLIED)
        wait_until(lambda: homes.now(shared).phase_state == done)
        job = apply_later(homes.here, shared.id, message=None, by="ada")
        assert job.queue == queue
        wait_until(lambda: homes.now(shared).phase_state == APPLIED)
        undone = [undo_later(homes.there, plan.id, message=None, by="ada") for plan in (private, shared)]
        assert {job.queue for job in undone} == {queue}
        wait_until(lambda: all(homes.here.jobs.get(job.id).state.ended for job in undone))
    assert not list(homes.repository.glob("made*"))


def test_plans_of_other_agents_run_where_those_are(homes: Homes) -> None:
    model = f"scripted/{homes.script}"
    client = LocalClient(homes.here, owner_of(homes.here, "mcp"))
    made = client.plans.create(PlanRequest(goal="Say hello", model=model, repository=homes.repository))
    assert made.request["by"] == "mcp"
    assert homes.here.jobs.get(str(made.job)).queue == home_queue(homes.here.home)
