"""A server application on the test's own state, with a user of each role and their clients.

No process, no port: requests go straight into the application. The `clients` of a module can share one
server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.user import Role, TokenKind
from cleveragents.app.container import Container
from cleveragents.config.loader import load_configuration
from cleveragents.server.app import create_app
from cleveragents.server.service import Service
from tests.cli_bench import paint_shop
from tests.ready_database import ready_database

__all__ = ["BASE", "ServerBench", "server_bench"]

BASE = "http://127.0.0.1:8420"


@dataclass
class ServerBench:
    """An application, its parts, and a client for each role: `bench.admin.get("/api/users")`."""

    state: Path
    service: Service
    app: FastAPI
    tokens: Mapping[str, str]
    _clients: dict[str, TestClient] = field(default_factory=dict)
    _newcomers: int = 0

    @property
    def container(self) -> Container:
        return self.service.container

    @property
    def admin(self) -> TestClient:
        return self.client("admin")

    @property
    def operator(self) -> TestClient:
        return self.client("operator")

    @property
    def viewer(self) -> TestClient:
        return self.client("viewer")

    @property
    def stranger(self) -> TestClient:
        """A client without a token."""
        return self.client("stranger")

    def newcomer(self) -> TestClient:
        """Return a client without a token, at an address without earlier requests."""
        self._newcomers += 1
        address = (f"192.0.2.{self._newcomers}", 1)
        return TestClient(self.app, BASE, client=address, raise_server_exceptions=False)

    def client(self, name: str) -> TestClient:
        """Return the client of this user, which sends the token with every request."""
        if name not in self._clients:
            token = self.tokens.get(name)
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            self._clients[name] = TestClient(self.app, BASE, headers=headers, raise_server_exceptions=False)
        return self._clients[name]

    def repository(self, name: str = "shop", project: str = "paint") -> Path:
        """Return a git repository with the word `colour` in two files, registered as this resource."""
        root = paint_shop(self.state.parent / name)
        now, projects = self.container.clock.now(), self.container.projects
        if project not in [known.name for known in projects.list()]:
            self.project(project)
        projects.add_resource(name, project, ResourceKind.DIRECTORY, str(root), now=now)
        return root

    def project(self, name: str) -> None:
        """Create a project in which every user of the bench has the role of their name."""
        now = self.container.clock.now()
        self.container.projects.add(name, now=now)
        for role in (Role.VIEWER, Role.OPERATOR):
            self.container.members.set(name, role.value, role, now=now)

    def browser(self, name: str) -> TestClient:
        """Return a new browser with this user logged in; it sends its `csrf` header, which changes need."""
        client = TestClient(self.app, BASE, raise_server_exceptions=False)
        answer = client.post("/api/session", json={"token": self.tokens[name]})
        assert answer.status_code == 201, answer.text
        client.headers["X-CSRF-Token"] = answer.json()["csrf"]
        return client


@contextmanager
def server_bench(directory: Path, **settings: Any) -> Iterator[ServerBench]:
    """Open the bench in this empty directory. Settings use `__` for the dot: `server__body_bytes=9`."""
    state = directory / "state"
    ready_database(state / "state.db")
    overrides = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    environment = {"HOME": str(directory), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}
    loaded = load_configuration(environment, directory, overrides)
    with Container(loaded.settings) as container:
        service = Service(container)
        app = create_app(service)
        yield ServerBench(state, service, app, _users(container))


def _users(container: Container) -> dict[str, str]:
    now = container.clock.now()
    tokens: dict[str, str] = {}
    for role in Role:
        container.users.add(role.value, role, now=now)
        _, tokens[role.value] = container.users.issue(role.value, TokenKind.PROGRAM, "test", now=now)
    return tokens
