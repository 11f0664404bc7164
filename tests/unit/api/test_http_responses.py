"""A client of a server whose answers are not those of this version, or that goes away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages
from typing import Any

import pytest

from cleveragents import Limits, PlanRequest, api, connect
from cleveragents.access.model.user import Role
from cleveragents.api.client import HttpClient
from cleveragents.api.transport import HttpTransport
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.core.errors import (
    Closed,
    ConfigurationError,
    RequestRefused,
    ServerFailed,
    ServerUnreachable,
    UnknownPlan,
)
from cleveragents.plans.model.comment import CommentState
from tests.scripted_server import (
    SECRET,
    Asked,
    Reply,
    always,
    answering,
    client_of,
)


@pytest.mark.parametrize("token", ["", " \n", f"{SECRET}\n{SECRET}", f"{SECRET}é", f"{SECRET}\0"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        connect("http://localhost:8000", token=token)
    assert caught.value.source == "token"
    assert SECRET not in str(caught.value)


def test_the_space_around_a_token_is_left_out() -> None:
    empty = always(200, {"items": [], "next": None})
    with answering(empty) as server, connect(server.url, token=f" {SECRET}\n") as client:
        assert client.projects.list().items == ()


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "http://[::1", "http://", "http://a:99999", "ftp://a", "http://a b"]
)
def test_an_invalid_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http:// or https://"):
        connect(url)


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        (lambda client: client.projects.list(), 200, b"hello"),
        (lambda client: client.projects.list(), 200, b""),
        (lambda client: client.projects.list(), 200, []),
        (lambda client: client.projects.list(), 200, {"items": 3, "next": None}),
        (lambda client: client.projects.list(), 200, {"items": [{"id": 3}], "next": None}),
        (lambda client: client.projects.list(), 200, {"items": [], "next": "a"}),
        (lambda client: client.projects.list(), 200, DEEP),
        (lambda client: client.projects.list(), 400, DEEP),
        (lambda client: client.plans.get("01A"), 200, {"id": 3}),
        (lambda client: client.plans.decisions("01A"), 200, {"items": [{"kind": "x"}], "next": None}),
        (lambda client: client.plans.output("01A"), 200, {"items": [{}]}),
        (lambda client: client.jobs.get("01J"), 200, {"id": "a", "state": "paused"}),
        (lambda client: client.events.list(), 200, {"items": [{}], "next": None}),
        (lambda client: client.events.list(after=5), 200, {"items": [], "next": 5}),
        (lambda client: client.events.verify(), 200, {}),
        (lambda client: client.models.get("a/b"), 200, {"items": [], "next": None}),
    ],
)
def test_an_answer_of_another_version_is_one_error(
    asked: Callable[[HttpClient], object], status: int, body: Any
) -> None:
    with client_of(always(status, body)) as client, pytest.raises(ServerFailed) as caught:
        asked(client)
    assert caught.value.status == status
    if status == 200:
        assert "the server may have another version" in str(caught.value)


ARGUMENTS: dict[str, Any] = {
    "checkpoint": 1,
    "decision": 1,
    "files": (),
    "limits": Limits(tokens=5),
    "number": 1,
    "plan_id": "01A",
    "request": PlanRequest(goal="x", resource="shop"),
    "role": Role.VIEWER,
    "state": CommentState.RESOLVED,
    "take": Take.OURS,
    "token_id": "01A",
}
NAMED_BY_TWO_WORDS = ("actions", "actors", "models")
NAMES = {
    field.name
    for module in walk_packages(api.__path__, "cleveragents.api.")
    for kind in vars(import_module(module.name)).values()
    if isinstance(kind, type) and is_dataclass(kind)
    for field in fields(kind)
}
FOREIGN: list[Any] = [
    b"hello",
    [],
    {},
    {"items": 3, "next": None},
    {"items": [3], "next": None},
    {"items": [{}], "next": 3},
    dict.fromkeys(NAMES, 3.5),
    {name: [{}] for name in NAMES},
]


def methods() -> list[tuple[str, str]]:
    """Those of every group that ask a server; `follow` reads a stream, and is tested with that."""
    with HttpClient(HttpTransport("http://localhost:1", None)) as client:
        groups = [name for name, value in vars(HttpClient).items() if isinstance(value, property)]
        found = [(name, one) for name in groups for one in dir(getattr(client, name))]
    return [one for one in found if not one[1].startswith("_") and one != ("events", "follow")]


@pytest.mark.parametrize(("group", "name"), methods())
def test_every_method_reports_a_foreign_response_as_one_error(group: str, name: str) -> None:
    body: Any = None
    with client_of(lambda *_: (200, body)) as client:
        method = getattr(getattr(client, group), name)
        needed = [one.name for one in signature(method).parameters.values() if one.default is one.empty]
        text = "team/x" if group in NAMED_BY_TWO_WORDS else "x"
        arguments = {one: ARGUMENTS.get(one, text) for one in needed}
        if group == "context":
            arguments["resource"] = "shop"
        for body in FOREIGN:
            with suppress(ServerFailed):
                answer = method(**arguments)
                answer = next(answer, None) if isinstance(answer, Iterator) else answer
                assert answer is None or isinstance(answer, bytes), (body, answer)


def test_a_request_that_json_cannot_say_is_refused() -> None:
    with client_of(always(200, {})) as client:
        with pytest.raises(RequestRefused):
            client.plans.raise_budget("01A", Limits(usd=float("nan")))
        with pytest.raises(RequestRefused):
            client.plans.answer("01A", "\ud800", question="q")


def test_a_closed_client_says_so() -> None:
    with client_of(always(200, {"items": [], "next": None})) as client:
        client.close()
        client.close()
        with pytest.raises(Closed):
            client.projects.list()
        with pytest.raises(Closed):
            next(iter(client.events.follow()))


def test_closing_ends_the_wait_of_another_thread() -> None:
    asked = threading.Event()

    def busy(*_: object) -> Reply:
        asked.set()
        return 503, {}

    with client_of(busy, seconds=60) as client, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.projects.list)
        assert asked.wait(10)
        client.close()
        with pytest.raises(Closed):
            waiting.result(timeout=10)


def missing_after(first: Reply | None) -> Asked:
    left = [first]
    missing = 404, {"code": "unknown-plan", "facts": {"plan_id": "TYPO"}}
    return lambda *_: left.pop() if left else missing


def test_a_busy_server_deleted_nothing() -> None:
    with client_of(missing_after((503, {}))) as client, pytest.raises((UnknownPlan, ServerFailed)):
        client.plans.delete("TYPO")


@pytest.mark.parametrize("first", [None, (502, {}), (504, {})])
def test_a_broken_connection_may_have_deleted_it(first: Reply | None) -> None:
    with client_of(missing_after(first)) as client:
        client.plans.delete("01A")


def test_the_patience_of_one_thread_is_not_that_of_another() -> None:
    busy: Iterator[Reply] = iter([(503, {}), (503, {}), (200, {})])
    with (
        answering(lambda *_: next(busy)) as server,
        HttpTransport(server.url, None) as http,
        ThreadPoolExecutor(1) as threads,
        http.without_patience(),
    ):
        with pytest.raises(ServerUnreachable):
            http.get("/here")
        assert threads.submit(http.get, "/there").result(timeout=10) == {}
