"""`agents worker` and a database that does not answer yet, or no longer."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from cleveragents.core.errors import DatabaseUnreachable
from cleveragents.plans.model.plan import Phase, PlanState
from tests.conditions import wait_until
from tests.postgres import PostgresServer
from tests.unit.cli.test_cli_worker import Home, ended


@pytest.mark.postgres
def test_started_before_the_database_answers_it_waits_and_works_through_a_restart_of_it(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.ready_url()
    home = Home(tmp_path, CLEVERAGENTS_DATABASE_URL=url)
    flag = tmp_path / "go"
    plan = home.plan(f"while [ ! -e {flag} ]; do sleep 0.05; done; echo x > x.txt")
    socket = tmp_path / "socket"
    home.environment["CLEVERAGENTS_DATABASE_URL"] = url.replace(str(postgres.socket), str(socket))
    waits, worker = home.worker(), home.worker("--until-idle")
    for process in (waits, worker):
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("cannot reach" in line for line in lines)  # behind the warning about isolation
        assert "retrying every few seconds" in process.stderr.readline()
    waits.send_signal(signal.SIGINT)
    assert "takes jobs" not in ended(waits)
    assert waits.returncode == 130
    socket.symlink_to(postgres.socket)
    wait_until(lambda: home.now(plan).phase is Phase.EXECUTE)
    postgres.disconnect(url)
    flag.touch()
    said = ended(worker)
    assert worker.returncode == 0, said
    assert "worker one has ended after " in said  # once, or again where the cut cost it its lease
    with suppress(DatabaseUnreachable):  # our own connection was cut, too
        home.now(plan)
    assert home.now(plan).phase_state == (Phase.APPLY, PlanState.APPLIED)
    home.close()
    postgres.drop(url)
