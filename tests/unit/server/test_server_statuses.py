"""Every error that a request can provoke is in the OpenAPI document, for every operation.

Each test provokes one kind of error at all operations of one server, and compares status, media type and body
with the document. `test_server_schema` makes up requests; here every kind of error is certain to occur.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, get_args

import httpx
import pytest
from fastapi import APIRouter
from pydantic import BaseModel, ValidationError
from starlette.testclient import TestClient
from starlette.types import Message

from cleveragents.core.text.field_problems import field_problem
from cleveragents.server.app import ROUTES
from cleveragents.server.description import operations_of
from cleveragents.server.middleware.body import MOST_ATTACHED_CHARACTERS
from cleveragents.server.problems import MEDIA_TYPE, Problem
from tests.docs.api_page import described
from tests.server_bench import BASE, ServerBench, server_bench

DOCUMENT = described()
OPERATIONS = [
    (path, method.upper(), operation)
    for path, method, operation in operations_of(DOCUMENT)
    if path != "/api/events/stream"
]
"""All but the stream of events, which does not end by itself."""
CHANGING = [one for one in OPERATIONS if one[1] != "GET"]
WITH_BODY = [one for one in OPERATIONS if "requestBody" in one[2]]
JSON = {"Content-Type": "application/json"}
BODY_BYTES = 20_000
EXAMPLE = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"

Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    terms = {
        "server__body_bytes": BODY_BYTES,
        "server__body_seconds": 0.5,
        "server__requests_per_minute": 1_000_000,
    }
    with server_bench(tmp_path_factory.mktemp("server"), **terms) as opened, opened.admin:
        yield opened


def ask(
    client: TestClient, operation: Operation, *, content: bytes = b"", **headers: str
) -> tuple[int, httpx.Response]:
    """The response, which is as the document says."""
    path, method, said = operation
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.request(method, address(path), content=content, headers=named)
    ensure_documented(said, response.status_code, response.headers, response.content)
    return response.status_code, response


def address(path: str) -> str:
    return re.sub(r"\{\w+\}", EXAMPLE, path)


def ensure_documented(
    operation: Mapping[str, Any], status: int, headers: Mapping[str, str], body: bytes
) -> None:
    documented = operation["responses"]
    assert str(status) in documented, f"{operation['operationId']}: {status} is not documented: {body!r}"
    said = documented[str(status)]
    if "$ref" in said:
        said = DOCUMENT["components"]["responses"][said["$ref"].rpartition("/")[2]]
    media_type = headers.get("content-type", "").partition(";")[0]
    assert media_type in (said.get("content") or {"": None}), operation["operationId"]
    if status >= 400:
        assert media_type == MEDIA_TYPE
        assert Problem.model_validate_json(body).status == status


def test_an_unknown_token_is_refused_with_401_and_soon_with_429(bench: ServerBench) -> None:
    for operation in OPERATIONS:
        status, _ = ask(bench.newcomer(), operation, Authorization="Bearer unknown")
        assert status == 401
    impatient = bench.newcomer()
    seen = [ask(impatient, operation, Authorization="Bearer unknown")[0] for operation in OPERATIONS]
    assert set(seen[20:]) == {429}


def test_a_request_without_a_token_is_refused(bench: ServerBench) -> None:
    public = {"getHealth", "getReadiness", "logIn"}
    for operation in OPERATIONS:
        status, _ = ask(bench.stranger, operation)
        assert status == 401 or operation[2]["operationId"] in public


def test_a_request_to_another_host_or_from_another_origin_is_refused(bench: ServerBench) -> None:
    for operation in OPERATIONS:
        assert ask(bench.admin, operation, Host="evil.example")[0] == 421
        assert ask(bench.admin, operation, Origin="http://evil.example")[0] == 403


def test_a_body_that_is_too_large_is_refused_wherever_it_is_sent(bench: ServerBench) -> None:
    for operation in OPERATIONS:
        attached = MOST_ATTACHED_CHARACTERS if operation[2]["operationId"] == "sendTurn" else 0
        assert ask(bench.admin, operation, content=b" " * (BODY_BYTES + attached + 1), **JSON)[0] == 413
        assert ask(bench.stranger, operation, content=b" " * (BODY_BYTES + 1), **JSON)[0] == 401


def test_a_body_that_is_not_json_is_refused_wherever_it_is_sent(bench: ServerBench) -> None:
    for operation in CHANGING:
        assert ask(bench.admin, operation, content=b"x=1", Content_Type="text/plain")[0] == 415


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b"null", b'{"no": "such field"}', b"\x00"])
def test_a_body_that_makes_no_sense_is_refused(bench: ServerBench, content: bytes) -> None:
    for operation in WITH_BODY:
        assert 400 <= ask(bench.admin, operation, content=content, **JSON)[0] < 500


def test_a_name_that_nothing_has_is_refused(bench: ServerBench) -> None:
    for operation in OPERATIONS:
        if "{" in operation[0] and operation not in WITH_BODY:
            assert ask(bench.admin, operation)[0] in (200, 404, 409, 422)


def test_a_query_that_makes_no_sense_is_refused(bench: ServerBench) -> None:
    for path, method, said in OPERATIONS:
        names = [one["name"] for one in said.get("parameters", ()) if one["in"] == "query"]
        for value in ("-1", "x" * 2000, "\x00"):
            for name in names:
                response = bench.admin.request(method, address(path), params={name: value})
                ensure_documented(said, response.status_code, response.headers, response.content)
                assert response.status_code < 500


def test_a_body_that_never_ends_is_refused_with_408(bench: ServerBench) -> None:
    headers = {**JSON, "Host": "localhost", "Authorization": f"Bearer {bench.tokens['admin']}"}

    async def ask_all() -> list[list[Message]]:
        return await asyncio.gather(*(_unfinished(bench, one, headers) for one in WITH_BODY))

    for operation, (start, body) in zip(WITH_BODY, asyncio.run(ask_all()), strict=True):
        assert start["status"] == 408
        sent = {name.decode(): value.decode() for name, value in start["headers"]}
        ensure_documented(operation[2], start["status"], sent, body["body"])


async def _unfinished(bench: ServerBench, operation: Operation, headers: Mapping[str, str]) -> list[Message]:
    sent: list[Message] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": operation[1],
        "scheme": "http",
        "path": address(operation[0]),
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("192.0.2.250", 1),
        "server": ("localhost", 80),
    }

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("nothing arrives")

    async def send(message: Message) -> None:
        sent.append(message)

    await bench.app(scope, receive, send)
    return sent


def test_another_method_is_refused_and_all_that_there_are_are_named(bench: ServerBench) -> None:
    paths = {
        path: sorted(method.upper() for method in methods) for path, methods in DOCUMENT["paths"].items()
    }
    for path, methods in paths.items():
        for other in {"OPTIONS", "TRACE", "PUT", "DELETE"}.difference(methods):
            response = bench.admin.request(other, f"{BASE}{address(path)}")
            assert response.status_code == 405, response.text
            assert sorted(response.headers["allow"].split(", ")) == methods, path
            assert response.headers["content-type"] == MEDIA_TYPE


def body_models() -> Iterator[type[BaseModel]]:
    """The models of all request bodies, with those of their fields."""
    for name in ROUTES:
        module = import_module(f"cleveragents.server.routes.{name}")
        for route in getattr(module, "router", APIRouter()).routes:
            for parameter in route.dependant.body_params:
                yield from _models_in(parameter.field_info.annotation)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models_in(field.annotation)
    for inner in get_args(annotation):
        yield from _models_in(inner)


def numbers_in(model: type[BaseModel]) -> list[str]:
    """The fields of the model that are numbers."""
    schemas = model.model_json_schema()["properties"].items()
    return [name for name, said in schemas if re.search(r"'type': '(integer|number)'", str(said))]


NUMBERS = sorted({(model, name) for model in body_models() for name in numbers_in(model)}, key=str)


def test_numbers_of_request_bodies_are_found() -> None:
    assert {("NewLimits", "usd"), ("NewProject", "max_parallel"), ("RollbackBody", "checkpoint")} <= {
        (model.__name__, name) for model, name in NUMBERS
    }


@pytest.mark.parametrize(("model", "name"), NUMBERS, ids=lambda one: getattr(one, "__name__", one))
def test_true_is_no_number(model: type[BaseModel], name: str) -> None:
    for value in (True, False):
        with pytest.raises(ValidationError) as wrong:
            model.model_validate({name: value})
        assert {"should be a valid integer", "should be a valid number"} & {
            field_problem(error) for error in wrong.value.errors() if error["loc"] == (name,)
        }
