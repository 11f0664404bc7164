"""The API keeps what its description promises: requests of all kinds, made up by schemathesis.

Every operation is asked but the stream of events, which never ends. What is made up is the same every time.
Where the examples name a plan or a job, one is there; nobody works at the plan any more, and no worker takes
jobs, so that an answer depends on what was asked before alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from requests import Request
from schemathesis.checks import not_a_server_error
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from cleveragents.access.model.project import ResourceKind
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.jobs.model.job import NewJob
from cleveragents.models import provider
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.docs.api_page import described
from tests.server_bench import BASE
from tests.server_plan_bench import PlanServer, plan_server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]
ENDLESS = "/api/events/stream"
KEYED = "addProject"
EXAMPLES = ("01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A", "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C")
"""Ids that stand in the description."""

_AT_FIRST = 12
_PARTS = 8
_HOW_MANY = settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _asked() -> dict[str, Any]:
    """What the server says of itself. Keys of requests are one gate's affair, the same for all operations:
    one of them is asked with all kinds of keys, or half of all requests would be about them."""
    document = described()
    for methods in document["paths"].values():
        for operation in methods.values():
            if operation["operationId"] != KEYED:
                parameters = operation.get("parameters", [])
                operation["parameters"] = [one for one in parameters if one["in"] != "header"]
    return document


seen: Counter[str] = Counter()
"""How many requests were made up for an operation."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanServer]:
    directory = tmp_path_factory.mktemp("server")
    terms = {"server__requests_per_minute": 1_000_000, "sandbox__isolation": "off"}
    with (
        pytest.MonkeyPatch.context() as patched,
        plan_server(directory, works=False, **terms) as server,
        server.bench.admin,
    ):
        # A default model is chosen, too.
        patched.setenv("XDG_CONFIG_HOME", str(directory / "config"))
        patched.setattr(provider, "keep_in_keyring", lambda variable, key: False)
        for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
            patched.setenv(variable, "")
        # The client is entered so that there is one loop for all requests, which are many.
        yield server


@pytest.fixture(scope="module")
def ids(server: PlanServer) -> dict[str, str]:
    """Something of each kind, by the names that the examples say."""
    container = server.bench.container
    now = container.clock.now()
    container.projects.add("shop", now=now)
    place = str(server.repository)
    container.projects.add_resource("shop-main", "shop", ResourceKind.DIRECTORY, place, now=now)
    job = container.jobs.submit(NewJob("demo", {}), now=now)
    model = server.script(
        strategizes(steps({"title": "change it", "instructions": "so", "decisions": [1]})),
        executes(answer(call("edit", path="a.txt", old="two", new="2")), says("done")),
        reviews(accept()),
    )
    with WorkerParts(container).start(name="bench", concurrency=1):
        made = server.make(goal="change a.txt", model=model, profile="full-auto", apply="review")
        plan = server.rested(made)
    assert plan["state"] == "complete", plan["error"]
    return {"plans": plan["id"], "jobs": job.id}


@pytest.fixture(autouse=True)
def no_part_leaves_resources(server: PlanServer, ids: dict[str, str]) -> Iterator[None]:
    """A remote that one part adds, or a model that it chooses, cannot be reached when another part asks."""
    projects, models = server.bench.container.projects, server.bench.container.settings.models
    before = {resource.name for resource in projects.resources()}
    yield
    server.bench.container.use_models(models)
    for resource in projects.resources():
        if resource.name not in before:
            projects.remove_resource(resource.name, now=server.bench.container.clock.now())


@pytest.fixture(scope="module")
def schema() -> BaseSchema:
    schema = schemathesis.openapi.from_dict(_asked()).exclude(path=ENDLESS)
    schema.config.generation.update(with_security_parameters=False)
    schema.config.phases.coverage.unexpected_methods = {"TRACE"}
    schema.config.phases.fuzzing.enabled = False
    return schema


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_response_matches_the_openapi_document(
    part: int, schema: BaseSchema, server: PlanServer, ids: dict[str, str]
) -> None:
    labels = [one.ok().label for one in schema.get_all_operations()]
    ours = schema.include(name=labels[part::_PARTS])
    # Made up here, not where tests are collected: each process that collects would make up all of them.
    for made in get_all_tests(schema=ours, test_func=_ask, settings=_HOW_MANY, given_kwargs=None):
        _, ask = made.ok()
        ask(server=server, ids=ids)


def _ask(case: schemathesis.Case, server: PlanServer, ids: dict[str, str]) -> None:
    if not _is_taken(case):
        return
    asked = Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
    headers = {name: str(value).encode("latin-1") for name, value in asked.headers.items()}
    headers["Authorization"] = f"Bearer {server.bench.tokens['admin']}".encode()
    url = _named(str(asked.url), ids) if case.method != "DELETE" else str(asked.url)
    response = server.bench.admin.request(str(asked.method), url, headers=headers, content=asked.body)
    case.validate_response(response, checks=CHECKS)


def _is_taken(case: schemathesis.Case) -> bool:
    """All at first, then every sixth: the later ones differ in little, and there are hundreds."""
    number = seen[case.operation.label]
    seen[case.operation.label] += 1
    return number < _AT_FIRST or number % 6 == 0


def _named(url: str, ids: dict[str, str]) -> str:
    """The address, with something that is there in the place of examples."""
    kind = url.removeprefix(f"{BASE}/api/").partition("/")[0]
    for example in EXAMPLES:
        url = url.replace(example, ids.get(kind, example))
    return url
