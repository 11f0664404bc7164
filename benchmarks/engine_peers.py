"""Jobs per second with 1, 2, 4 and 8 processes: the embedded engine, procrastinate and DBOS, in one run.

    python -m benchmarks.engine_peers [--seconds 5] [--jobs 3000] [--processes 1 2 4 8] [--engines NAME …]

The job is the same for all: it appends its number to a file. `--jobs` of them are queued before the clock
starts. The clock runs from the moment when every process is connected until all are done, or the time is
over. CPU time is reported as well, for machines that are not idle. Then the workers are stopped in order, and
the results are checked: no number is written twice, each number that the engine reports as done is written,
and none has disappeared from its table.

All engines on PostgreSQL use one server, that of the tests (neither fsync nor synchronous commits, for all of
them). Each engine keeps its own guarantees. Ours claims each job for a thread that waits for it, under a
lease and a fence, several in one transaction if several threads wait, and stores an event for each transition
in a verifiable log. procrastinate claims each job individually, under the heartbeat of its worker. DBOS
claims a batch at a time. The settings are the best ones found for each engine, as far as a busy machine could
tell:

- ours: the behaviour of `agents worker`, with four threads (the default).
- procrastinate: an async task, `concurrency=8` and a pool of eight connections; 1 (the default), 4 and 32
  differed less than two runs with the same setting.
- DBOS: a queue without limits (the default) that polls every 0.1 s (1 s is the default, and slower with
  several processes; 0.02 s with a limit of 100 was similar); ten connections per process instead of
  twenty, because the server has 100 of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from tests.postgres import PostgresServer

__all__ = ["ENGINES", "PROCESSES", "Engine", "Measured", "Place", "Stand", "books", "main"]

PROCESSES = (1, 2, 4, 8)
_WIDTH = 7
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_QUEUE = "bench"

Write = Callable[[int], None]


@dataclass(frozen=True)
class Place:
    """A database and its directory."""

    url: str
    home: Path


@dataclass(frozen=True)
class Engine:
    """An engine under test.

    `fill` queues numbers in an empty database; `work` runs jobs until the stop event is set; `done` returns
    the numbers reported as done and the number of known jobs.
    """

    name: str
    on_postgres: bool
    fill: Callable[[Place, int], None]
    work: Callable[[Place, Write, Any, Any], None]
    done: Callable[[Place], tuple[list[int], int]]


@dataclass(frozen=True)
class Measured:
    """One run of one engine.

    CPU time includes its processes, from the moment when they are connected, and PostgreSQL. `wrong` lists
    inconsistencies.
    """

    engine: str
    processes: int
    jobs: int
    finished: int
    seconds: float
    per_second: float
    cpu_milliseconds_per_job: float
    wrong: Sequence[str]


def books(written: Iterable[int], done: Iterable[int], known: int, jobs: int) -> list[str]:
    """Return the inconsistencies between the written, finished and queued numbers."""
    counted = Counter(written)
    twice = [number for number, times in counted.items() if times > 1]
    unwritten = [number for number in set(done) if number not in counted]
    strange = [number for number in counted if not 0 <= number < jobs]
    wrong = [f"job {number} ran {counted[number]} times" for number in sorted(twice)]
    wrong += [f"job {number} is reported as done but never ran" for number in sorted(unwritten)]
    wrong += [f"job {number} was never queued" for number in sorted(strange)]
    if known != jobs:
        wrong.append(f"{jobs} jobs were queued, but {known} are known")
    return wrong


class Stand:
    """Databases with queued jobs, filled once per engine and copied for each run."""

    def __init__(self, directory: Path, server: PostgresServer, jobs: int) -> None:
        self._directory = directory
        self._server = server
        self._jobs = jobs
        self._filled: dict[str, Place] = {}
        self._runs = 0

    def measure(self, engine: Engine, processes: int, seconds: float) -> Measured:
        """Run once with `processes` processes."""
        self._runs += 1
        place = self._fresh(engine)
        out = self._directory / f"run-{self._runs}"
        out.mkdir()
        spawn = multiprocessing.get_context("spawn")
        ready, go, stop, used = spawn.Semaphore(0), spawn.Event(), spawn.Event(), spawn.SimpleQueue()
        running = [
            spawn.Process(
                target=_process, args=(engine.name, place, str(out / str(n)), ready, go, stop, used)
            )
            for n in range(processes)
        ]
        for process in running:
            process.start()
        for _ in running:
            assert ready.acquire(timeout=_START_SECONDS), f"a process of {engine.name} did not start"
        server_before = _server_cpu(self._server)
        began = time.monotonic()
        go.set()
        finished = self._watch(out, began + seconds)
        took = time.monotonic() - began
        stop.set()
        wrong = _ended(running)
        cpu = _server_cpu(self._server) - server_before
        while not used.empty():
            cpu += used.get()
        written = [int(line) for path in out.iterdir() for line in path.read_text().split()]
        done, known = engine.done(place)
        wrong += books(written, done, known, self._jobs)
        if finished == self._jobs and len(done) != self._jobs:
            wrong.append(f"all ran, but only {len(done)} of {self._jobs} are reported as done")
        self._drop(engine, place)
        each = 1000 * cpu / max(1, len(written))
        return Measured(engine.name, processes, self._jobs, finished, took, finished / took, each, wrong)

    def _watch(self, out: Path, deadline: float) -> int:
        while True:
            finished = sum(path.stat().st_size for path in out.iterdir()) // _WIDTH
            if finished >= self._jobs or time.monotonic() >= deadline:
                return finished
            time.sleep(_LOOK_SECONDS)

    def _fresh(self, engine: Engine) -> Place:
        if engine.name not in self._filled:
            home = self._directory / f"filled-{len(self._filled)}"
            home.mkdir()
            url = self._server.url() if engine.on_postgres else f"sqlite:///{home}/jobs.db"
            self._filled[engine.name] = Place(url, home)
            engine.fill(self._filled[engine.name], self._jobs)
            if engine.on_postgres:
                _analyse(url)
        filled = self._filled[engine.name]
        home = self._directory / f"home-{self._runs}"
        shutil.copytree(filled.home, home)
        if engine.on_postgres:
            return Place(_copied(self._server, filled.url, self._runs), home)
        return Place(f"sqlite:///{home}/jobs.db", home)

    def _drop(self, engine: Engine, place: Place) -> None:
        shutil.rmtree(place.home)
        if engine.on_postgres:
            self._server.drop(place.url)


def _copied(server: PostgresServer, filled: str, number: int) -> str:
    import psycopg

    template, name = filled.split("@/")[1].split("?")[0], f"run_{number}"
    server.disconnect(filled)
    connecting = {"host": str(server.socket), "user": "postgres", "dbname": "postgres", "autocommit": True}
    with psycopg.connect(**connecting) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return f"postgresql://postgres@/{name}?host={server.socket}"


def _analyse(url: str) -> None:
    """Analyse the tables: autovacuum is off, and the planner needs statistics about the queued jobs."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _server_cpu(server: PostgresServer) -> float:
    """Return the CPU seconds of all its processes, including ended ones."""
    import psutil

    pid = int((server.socket / "data" / "postmaster.pid").read_text().split()[0])
    main = psutil.Process(pid)
    total = 0.0
    for process in (main, *main.children()):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            if process == main:
                total += times.children_user + times.children_system
    return total


def _process(name: str, place: Place, out: str, ready: Any, go: Any, stop: Any, used: Any) -> None:
    import logging

    logging.disable(logging.WARNING)
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    before = 0.0

    def started() -> None:
        nonlocal before
        ready.release()
        go.wait(_START_SECONDS)
        before = time.process_time()

    try:
        ENGINES[name].work(place, lambda n: _ignored(os.write(descriptor, b"%06d\n" % n)), started, stop)
        used.put(time.process_time() - before)
    finally:
        os.close(descriptor)


def _ignored(_: int) -> None:
    return None


def _ended(running: Sequence[Any]) -> list[str]:
    """Wait for the processes; report each that did not end properly."""
    wrong = []
    for process in running:
        process.join(_STOP_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            wrong.append("a process did not stop when asked")
        elif process.exitcode:
            wrong.append(f"a process ended with {process.exitcode}")
    return wrong


# Ours.


def _container(place: Place) -> Container:
    import logging

    import structlog

    from cleveragents.app.container import Container
    from cleveragents.config.loader import load_configuration

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    environment = {
        "HOME": str(place.home),
        "CLEVERAGENTS_STATE_DIRECTORY": str(place.home),
        "CLEVERAGENTS_DATABASE_URL": place.url,
    }
    return Container(load_configuration(environment, place.home, []).settings)


def _fill_ours(place: Place, jobs: int) -> None:
    from cleveragents.jobs.model.job import NewJob

    with _container(place) as container:
        for number in range(jobs):
            new = NewJob("noop", {"n": number}, queue=_QUEUE)
            container.jobs.submit(new, now=container.clock.now())


def _work_ours(place: Place, write: Write, started: Any, stop: Any) -> None:
    from cleveragents.jobs.engine import WorkerRequest
    from cleveragents.jobs.ports import JobHandler

    with _container(place) as container:
        container.jobs.list(limit=1)
        engine = container.engine
        assert (
            container.bus
        )  # the event store starts before the clock, as the services of the other engines do
        handlers = {"noop": JobHandler(lambda job: write(int(str(job.payload["n"]))))}
        started()
        engine.run_worker(WorkerRequest(handlers, f"bench-{os.getpid()}", (_QUEUE,), 4))
        stop.wait()
        engine.drain(_STOP_SECONDS)
        engine.close()


def _done_ours(place: Place) -> tuple[list[int], int]:
    from sqlalchemy import create_engine, text

    reading = create_engine(place.url.replace("postgresql://", "postgresql+psycopg://"))
    with reading.connect() as connection:
        rows = connection.execute(text("SELECT state, payload FROM jobs")).all()
    reading.dispose()
    return [_number(payload) for state, payload in rows if state == "succeeded"], len(rows)


def _number(payload: Any) -> int:
    facts = json.loads(payload) if isinstance(payload, str | bytes) else payload
    return int(facts["n"])


# procrastinate.


def _procrastinate(url: str, write: Write | None = None) -> tuple[Any, Any]:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=8, max_size=8))

    @app.task(name="noop", queue=_QUEUE)
    async def noop(n: int) -> None:
        if write is not None:
            write(n)

    return app, noop


def _fill_procrastinate(place: Place, jobs: int) -> None:
    async def fill() -> None:
        app, noop = _procrastinate(place.url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            await noop.batch_defer_async(*({"n": number} for number in range(jobs)))

    asyncio.run(fill())


def _work_procrastinate(place: Place, write: Write, started: Any, stop: Any) -> None:
    async def work() -> None:
        app, _ = _procrastinate(place.url, write)
        async with app.open_async():
            await asyncio.to_thread(started)
            worker = asyncio.create_task(
                app.run_worker_async(queues=[_QUEUE], concurrency=8, install_signal_handlers=False)
            )
            await asyncio.to_thread(stop.wait)
            worker.cancel()
            await asyncio.wait([worker])

    asyncio.run(work())


def _done_procrastinate(place: Place) -> tuple[list[int], int]:
    rows = _rows(place.url, "SELECT status::text, args FROM procrastinate_jobs")
    return [_number(args) for status, args in rows if status == "succeeded"], len(rows)


# DBOS.


def _dbos(url: str, write: Write | None = None) -> Any:
    from dbos import DBOS

    made = DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "sys_db_pool_size": 10,
            "application_version": "1",
            "executor_id": str(os.getpid()),
            "log_level": "ERROR",
        }
    )

    @DBOS.workflow(name="noop")
    def noop(n: int) -> None:
        if write is not None:
            write(n)

    return made


def _fill_dbos(place: Place, jobs: int) -> None:
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_fill_dbos_here, args=(place, jobs))  # only one instance per process
    process.start()
    process.join()
    assert process.exitcode == 0, "DBOS did not queue its jobs"


def _fill_dbos_here(place: Place, jobs: int) -> None:
    from dbos import DBOS, DBOSClient
    from sqlalchemy import create_engine

    _dbos(place.url)
    DBOS.launch()
    DBOS.destroy()
    client = DBOSClient(system_database_url=place.url, application_name="bench")
    writing = create_engine(place.url.replace("postgresql://", "postgresql+psycopg://"))
    options: Any = {"queue_name": _QUEUE, "workflow_name": "noop", "app_version": "1"}
    with writing.begin() as connection:
        for number in range(jobs):
            client.enqueue_in_transaction(connection, {**options, "workflow_id": f"{number:06d}"}, number)
    writing.dispose()
    client.destroy()


def _work_dbos(place: Place, write: Write, started: Any, stop: Any) -> None:
    from dbos import DBOS

    _dbos(place.url, write)
    DBOS.launch()
    started()
    DBOS.register_queue(_QUEUE, polling_interval_sec=0.1)
    stop.wait()
    DBOS.destroy(workflow_completion_timeout_sec=30)


def _done_dbos(place: Place) -> tuple[list[int], int]:
    rows = _rows(place.url, "SELECT status, workflow_uuid FROM dbos.workflow_status")
    return [int(number) for status, number in rows if status == "SUCCESS"], len(rows)


def _rows(url: str, query: str) -> Sequence[Any]:
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("ours, SQLite", False, _fill_ours, _work_ours, _done_ours),
        Engine("ours, PostgreSQL", True, _fill_ours, _work_ours, _done_ours),
        Engine("procrastinate", True, _fill_procrastinate, _work_procrastinate, _done_procrastinate),
        Engine("DBOS", True, _fill_dbos, _work_dbos, _done_dbos),
    )
}


def main(arguments: Sequence[str]) -> int:
    """Print a row for each run, and all of them as JSON; the exit code is 1 if a run is inconsistent."""
    from tests.postgres import postgres_server

    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_peers")
    parser.add_argument("--seconds", type=float, default=5.0, help="maximum duration of one run")
    parser.add_argument("--jobs", type=int, default=3000, help="number of jobs queued for each run")
    parser.add_argument("--processes", type=int, nargs="+", default=list(PROCESSES))
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    asked = parser.parse_args(arguments)
    results: list[Measured] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="engines-")))
        server = stack.enter_context(postgres_server())
        stand = Stand(directory, server, asked.jobs)
        for processes in asked.processes:
            for name in asked.engines:
                one = stand.measure(ENGINES[name], processes, asked.seconds)
                results.append(one)
                print(
                    f"{processes} processes, {name}: {one.per_second:,.0f} jobs/s "
                    f"({one.finished} of {one.jobs} in {one.seconds:.1f} s), "
                    f"{one.cpu_milliseconds_per_job:.2f} ms of CPU each",
                    *one.wrong,
                    flush=True,
                )
    print(json.dumps([asdict(one) for one in results]))
    return 1 if any(one.wrong for one in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
