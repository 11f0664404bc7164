"""Three workers with their own state directories, one PostgreSQL, one git remote: whichever machine dies, is
disconnected or wakes up again, every plan ends correctly and nothing is applied twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cleveragents.app.container import Container
from cleveragents.core.json_value import FrozenObject
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from tests.conditions import wait_until
from tests.crash.programs.machine_worker import settings_of
from tests.fork_server import Forked
from tests.postgres import PostgresServer, postgres_server
from tests.remotes import Remote, new_remote

# Longer than any wait: a timeout reports all known facts.
pytestmark = [pytest.mark.postgres, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.machine_worker"]
APPLIED = (Phase.APPLY, PlanState.APPLIED)
PATIENCE_SECONDS = 240.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


class Machine:
    """A worker in its own process, and its log."""

    def __init__(self, world: World, name: str, url: str, **told: object) -> None:
        self.log = world.directory / f"{name}.log"
        order = {"directory": str(world.directory / name), "url": url, **told}
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        with self.log.open("ab") as log:
            self.process = Forked(
                [*PROGRAM, json.dumps(order)], cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def said(self, words: str) -> bool:
        return words in self.log.read_text(errors="replace")

    def is_stopped(self) -> bool:
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(240)


class World:
    """The shared parts of all machines, and the server's own state directory."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.remote: Remote = new_remote(directory)
        self.container = Container(settings_of(directory / "server", url))
        self.container.audit.sequence_pending()  # it came first, so it orders the log
        self.machines: list[Machine] = []

    def plan(self, number: int, script: str = "") -> Plan:
        """Return a plan that adds a line to its own file and is applied when it is done."""
        line = f"mkdir -p plans && echo {number} >> plans/{number}.txt; {script}"
        request = {
            "queue": "plans",
            "profile": "full-auto",
            "apply": "auto",
            "arguments": {"argv": ["/bin/sh", "-c", line]},
            "checks": [f"test $(cat plans/{number}.txt) = {number}"],
        }
        new = PlanDraft(f"plan {number}", "builtin/command", self.remote.resource, FrozenObject(request))
        return self.container.plan_parts.lifecycle.create(new)

    def start(self, name: str, *, url: str | None = None, **told: object) -> Machine:
        machine = Machine(self, name, url or self.url, **told)
        self.machines.append(machine)
        return machine

    def now(self, plan: Plan) -> Plan:
        return self.container.plan_parts.plans.get(plan.id)

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        wait_until(holds, what=lambda: f"{what}: {self.told()}", seconds=PATIENCE_SECONDS)

    def wait_applied(self, plans: list[Plan]) -> None:
        self.wait_until(
            "all are applied", lambda: all(self.now(plan).phase_state == APPLIED for plan in plans)
        )

    def assert_right(self, plans: list[Plan]) -> None:
        """Assert that each plan's file has its one line, by one commit, and the log agrees."""
        for number, plan in enumerate(plans):
            assert self.remote.text(f"plans/{number}.txt") == str(number)
            assert len(self.remote.commits_of(plan.id)) == 1, self.told()
        self.container.audit.sequence_pending()
        assert self.container.audit.verify().ok

    def told(self) -> str:
        """Return the facts for a failure message."""
        plans = self.container.plan_parts.plans.list(limit=100)
        states = [f"{plan.id} {plan.phase.value}/{plan.state.value} {plan.error or ''}" for plan in plans]
        logs = [machine.log.read_text(errors="replace")[-3000:] for machine in self.machines]
        return "\n".join([*states, *logs])

    def close(self) -> None:
        for machine in self.machines:
            machine.end()
        self.container.close()


@pytest.fixture
def world(tmp_path: Path, postgres: PostgresServer) -> Iterator[World]:
    url = postgres.ready_url()
    made = World(tmp_path, url)
    yield made
    made.close()
    postgres.drop(url)


def test_plans_end_correctly_wherever_their_machines_die(world: World) -> None:
    plans = [world.plan(number) for number in range(3)]
    first = world.start("m0", crash_at="tool.ending.after")
    world.wait_until("it is dead", lambda: first.process.poll() is not None)
    points = ("apply.push.after", "apply.push.before")
    more = [world.start(f"m{n}", crash_at=point) for n, point in enumerate(points, start=1)]
    world.wait_until("they are dead", lambda: all(one.process.poll() is not None for one in more))
    world.start("m3")
    world.wait_applied(plans)
    world.assert_right(plans)


def test_plans_end_correctly_when_machines_are_killed_at_any_moment(world: World) -> None:
    chance = random.Random(20240707)
    plans = [world.plan(number, "sleep 0.2") for number in range(4)]
    machines = {name: world.start(name) for name in ("m0", "m1", "m2")}
    for _ in range(2):
        done = chance.randrange(len(plans) - 1)
        reached = chance.random()

        def some_are_done(done: int = done) -> bool:
            return sum(world.now(plan).phase_state == APPLIED for plan in plans) >= done

        world.wait_until("some are done", some_are_done)
        time.sleep(reached * 0.5)  # a random moment
        name = chance.choice(sorted(machines))
        machines[name].process.kill()
        machines[name].process.wait(240)
        machines[name] = world.start(name)
    world.wait_applied(plans)
    world.assert_right(plans)


def test_a_resumed_and_a_disconnected_machine_are_refused(world: World) -> None:
    stopped = world.plan(0)
    zombie = world.start("m0", stop_at="apply.push.before")
    world.wait_until("it is stopped", zombie.is_stopped)
    with Forwarder(world) as forwarder:
        cut = world.start("m1", url=forwarder.url)
        begun, go_on = world.directory / "begun", world.directory / "go-on"
        held = world.plan(1, f"touch {begun}; until test -e {go_on}; do sleep 0.1; done")
        world.wait_until("it is at work", begun.exists)
        forwarder.cut()
        go_on.touch()
        world.start("m2")
        world.wait_applied([stopped, held])
        tip = world.remote.tip()
        zombie.process.send_signal(signal.SIGCONT)
        forwarder.mend()
        for one in (zombie, cut):
            world.wait_until("it says so", lambda one=one: one.said("job.lease_lost"))
        more = world.plan(2)
        world.wait_applied([more])  # the returned machines work with the others again
        assert world.remote.said("rev-parse", "main^") == tip
        world.assert_right([stopped, held, more])
        cut.end()


class Forwarder:
    """Forwards between one machine and the database; `cut` acts like a network failure.

    Thread safety:
        Owner: the test that made it.
        Lock: `_lock` guards the open connections and whether it is cut; held for arithmetic only.
        Guarantee: after `cut`, nothing is forwarded until `mend`.
    Cancel safety: leaving the block ends all of its threads.
    """

    def __init__(self, world: World) -> None:
        host = world.url.split("host=")[1]
        name = world.url.split("@/")[1].split("?")[0]
        self._target = f"{host}/.s.PGSQL.5432"
        # Short: the path of a socket has at most a hundred characters.
        self._directory = Path(host) / f"cut-{os.getpid()}"
        self.url = f"postgresql://postgres@/{name}?host={self._directory}"
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._cut = False

    def __enter__(self) -> Forwarder:
        self._directory.mkdir()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._directory / ".s.PGSQL.5432"))
        self._listening.listen()
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(20)

    def cut(self) -> None:
        with self._lock:
            self._cut = True
            found, self._open = self._open, []
        for one in found:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._cut = False

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            with self._lock:
                refused = self._cut
                if not refused:
                    self._open += [here, there]
            if refused:
                here.close()
                there.close()
                continue
            there.connect(self._target)
            self._start(lambda one=here, other=there: self._pass_on(one, other))
            self._start(lambda one=there, other=here: self._pass_on(one, other))

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()
