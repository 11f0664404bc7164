"""The page on the HTTP API matches the server's description, which is complete."""

from __future__ import annotations

from typing import Any

import pytest

from cleveragents.server.description import operations_of
from cleveragents.server.problems import MEDIA_TYPE
from tests.docs.api_page import PAGE, described, page

DOCUMENT = described()
OPERATIONS = [
    pytest.param(path, method, operation, id=f"{method} {path}")
    for path, method, operation in operations_of(DOCUMENT)
]


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.docs.api_page` updates it."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_operation_is_described_with_its_problems_and_examples(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    assert operation["summary"]
    assert operation["description"].strip().endswith(".")
    assert {tag["name"] for tag in DOCUMENT["tags"]} >= set(operation["tags"]) != set()
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for body in bodies:
        for media_type, content in body.get("content", {}).items():
            assert media_type != "application/json" or "example" in content
    if path.startswith("/api/"):
        problems = {"401", "403", "422", "429", "503"}
        refs = {status: one["$ref"] for status, one in operation["responses"].items() if status >= "400"}
        assert problems <= refs.keys()
        open_to_all = operation["operationId"] == "logIn"
        assert ("security" in operation, "x-role" in operation) == (not open_to_all, not open_to_all)


def test_operations_have_names_of_one_kind_each_once() -> None:
    names = [operation["operationId"] for _, _, operation in operations_of(DOCUMENT)]
    assert len(set(names)) == len(names)
    assert [name for name in names if not name.isalnum() or not name[0].islower()] == []


def test_every_refusal_is_a_problem() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    for said in DOCUMENT["components"]["responses"].values():
        assert list(said["content"]) == [MEDIA_TYPE]
    assert "HTTPValidationError" not in str(DOCUMENT)
