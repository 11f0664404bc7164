"""Roles: every operation of the API refuses users without the role in its description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from cleveragents.access.model.user import Role
from cleveragents.server.description import operations_of
from tests.docs.api_page import described
from tests.server_bench import ServerBench, server_bench

Operations = list[tuple[str, str, dict[str, Any]]]
CHANGES = {"post", "put", "patch", "delete"}


@pytest.fixture(scope="module")
def operations() -> Operations:
    """Asked for by who runs these tests: every process that collects them took a second for it."""
    return list(operations_of(described()))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server")) as bench:
        yield bench


def ask(client: TestClient, path: str, method: str, operation: dict[str, Any]) -> tuple[int, str]:
    """Status and code of what is answered to the example."""
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["schema"]["examples"][0]))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    answer = client.request(method.upper(), path, json=body)
    return answer.status_code, answer.json()["code"]


def of_a_project(operation: dict[str, Any]) -> bool:
    """Whether the route names an object of a project: one that the user cannot see is not found."""
    return operation["x-role-in"] == "project" or operation["operationId"] == "trustBroughtAlong"


def test_strangers_and_those_whose_role_is_too_small_are_refused(
    operations: Operations, bench: ServerBench
) -> None:
    """Roles in a project, with objects that exist, are those of `test_server_tenants`."""
    closed = [one for one in operations if "x-role" in one[2]]
    assert closed
    for path, method, operation in closed:
        asked = (path, method, operation)
        assert ask(bench.stranger, *asked) == (401, "not-authenticated"), (method, path)
        needed = Role(operation["x-role"])
        for role in Role:
            if not role.may(needed):
                refused = ask(bench.client(role.value), *asked)
                if of_a_project(operation):  # and the object does not exist
                    assert refused[0] == 404, (role, method, path)
                else:
                    assert refused == (403, "not-allowed"), (role, method, path)


def test_a_viewer_changes_nothing_but_their_own(operations: Operations) -> None:
    names = {
        operation["operationId"]
        for _, method, operation in operations
        if method in CHANGES and operation.get("x-role") == "viewer"
    }
    assert names == {"logOut", "issueToken", "revokeToken"}


def test_everything_but_logging_in_is_closed(operations: Operations) -> None:
    names = {
        operation["operationId"]
        for path, _, operation in operations
        if path.startswith("/api/") and "x-role" not in operation
    }
    assert names == {"logIn"}
