"""The API keeps what its description promises: requests of all kinds, made up by schemathesis.

Every operation is asked but the stream of events, which never ends. What is made up is the same every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from requests import Request
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from cleveragents.domain.job import NewJob
from cleveragents.domain.project import ResourceKind
from tests.cli_bench import paint_shop
from tests.docs.api_page import described
from tests.server_bench import BASE, ServerBench, server_bench

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    unsupported_method,
]
ENDLESS = "/api/events/stream"

schema = schemathesis.openapi.from_dict(described()).exclude(path=ENDLESS)
schema.config.generation.update(with_security_parameters=False)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    directory = tmp_path_factory.mktemp("server")
    with server_bench(directory, server__requests_per_minute=1_000_000, log__level="error") as bench:
        _furnish(bench, directory)
        with bench.admin:  # one loop for all requests, which are many
            yield bench


def _furnish(bench: ServerBench, directory: Path) -> None:
    """Something of each kind, by the names that the examples say."""
    container = bench.container
    now = container.clock.now()
    container.projects.add("shop", now=now)
    shop = paint_shop(directory / "shop")
    container.projects.add_resource("shop-main", "shop", ResourceKind.DIRECTORY, str(shop), now=now)
    container.jobs.submit(NewJob("demo", {}), now=now)


@schema.parametrize()
@settings(
    max_examples=5,
    derandomize=True,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_whatever_is_asked_the_answer_is_as_described(case: schemathesis.Case, bench: ServerBench) -> None:
    asked = Request(**case.as_transport_kwargs(base_url=BASE)).prepare()
    headers = {name: str(value).encode("latin-1") for name, value in asked.headers.items()}
    headers["Authorization"] = f"Bearer {bench.tokens['admin']}".encode()
    answer = bench.admin.request(asked.method, asked.url, headers=headers, content=asked.body)
    case.validate_response(answer, checks=CHECKS)
