"""The same client twice: of the services in this process, and of a server over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import TokenKind
from cleveragents.api.client import Client, HttpClient, LocalClient
from cleveragents.api.transport import HttpTransport
from tests.live_server import served
from tests.server_plan_bench import PlanServer, plan_server

ClientOf = Callable[[str], Client]
"""Returns the client of a user: viewer, operator or admin, or `name:token` of any other."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    with plan_server(tmp_path_factory.mktemp("client"), server__requests_per_minute=100_000) as made:
        yield made


@pytest.fixture(scope="module")
def url(server: PlanServer) -> Iterator[str]:
    with served(server.bench) as address:
        yield address


@pytest.fixture(scope="module")
def foreign(server: PlanServer) -> str:
    """A resource of a project in which only server admins see anything."""
    projects, now = server.bench.container.projects, server.bench.container.clock.now()
    projects.add("elsewhere", now=now)
    projects.add_resource("far", "elsewhere", ResourceKind.DIRECTORY, str(server.repository), now=now)
    return "far"


@pytest.fixture(params=["local", "http"])
def client_of(request: pytest.FixtureRequest, server: PlanServer) -> Iterator[ClientOf]:
    opened: list[Client] = []
    container = server.bench.container
    url = request.getfixturevalue("url") if request.param == "http" else None

    def made(name: str) -> Client:
        secret = name.partition(":")[2] or server.bench.tokens[name]
        if url is None:
            found = container.users.known_by(secret, TokenKind.PROGRAM, now=container.clock.now())
            assert found is not None
            client: Client = LocalClient(container, found[0], token=found[1])
        else:
            client = HttpClient(HttpTransport(url, secret))
        opened.append(client)
        return client

    yield made
    for client in opened:
        client.close()


@pytest.fixture
def client(client_of: ClientOf) -> Client:
    return client_of("operator")
