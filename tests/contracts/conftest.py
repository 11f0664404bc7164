"""Every adapter of a port, for the suite that all of them must pass.

PostgreSQL runs for the whole of the contracts: started before the first leak check, stopped after the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.storage.database import Database, open_database
from tests.postgres import PostgresServer, postgres_server
from tests.ready_database import ready_database

DATABASES = [pytest.param("sqlite"), pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session", autouse=True)
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server; autouse, because otherwise the leak check of a module would see it start."""
    if not any(item.get_closest_marker("postgres") for item in request.session.items):
        yield PostgresServer(Path("nowhere"))  # it is never used
        return
    with postgres_server() as server:
        yield server


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, for each product; already migrated if `database` opens it."""
    ready = "database" in request.fixturenames
    if request.param == "sqlite":
        file = tmp_path / "store.db"
        yield ready_database(file) if ready else f"sqlite:///{file}"
        return
    url = postgres.ready_url() if ready else postgres.url()
    yield url
    postgres.drop(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open, migrated database, for each product."""
    with open_database(database_url) as opened:
        yield opened
