"""`python -m tests.docs.api_page`: write docs/reference/api.md from the server's OpenAPI description."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.server.app import create_app
from cleveragents.server.description import operations_of
from cleveragents.server.service import Service

__all__ = ["PAGE", "described", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"

_HEAD = """\
# The HTTP API

`agents serve` serves the API at `/api`.
`/api/openapi.json` is its OpenAPI 3.1 description, and `/docs` shows it as a page.
`python -m tests.docs.api_page` generates this page from it.

```bash
curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8420/api/about
```

**Authentication.**
A program sends a token (`agents user token`) as `Authorization: Bearer …`.
A browser logs in once and gets a cookie.
Requests that change something with a cookie also need the header `X-CSRF-Token`.
Its value is `csrf` in the response of `POST /api/session` or `GET /api/session`.
In a project, a viewer reads, an operator also creates plans and acts on them, an admin also manages members.
Server admins manage users, projects and resources.

**Pagination.**
`?limit=` sets the size of a page.
Pass `next` as `?after=` to get the next page. On the last page `next` is null.

**Idempotency.**
A repeated POST with the same `Idempotency-Key` and body gets the first response and has no further effect.
[Security](../explanation/security.md#idempotency-keys) describes the behaviour after a crash.

**Errors** are problem details ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)).
Compare `code` in programs.
`remedies` lists what a person can do.
`action` names the operation (`plan.resume`), `plan` its plan, and `text` its purpose.
`options` are the fields of its request; null means that the person chooses the value.
"""


def described() -> dict[str, Any]:
    """Return the OpenAPI document, without building any part of the container."""
    with Container(Settings()) as container:
        return create_app(Service(container)).openapi()


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_lines(described())).rstrip("\n") + "\n"


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield _HEAD.rstrip("\n")
    yield ""
    yield from _problems(document)
    operations = list(operations_of(document))
    for tag in document["tags"]:
        yield f"## {tag['name'].capitalize()}"
        yield ""
        yield tag["description"]
        yield ""
        for path, method, operation in operations:
            if tag["name"] == operation["tags"][0]:
                yield from _operation(path, method, operation, document)


def _problems(document: dict[str, Any]) -> Iterator[str]:
    yield "| status | |"
    yield "|---|---|"
    for status, said in document["components"]["responses"].items():
        yield f"| {status} | {said['description']} |"
    yield ""


def _operation(path: str, method: str, operation: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield ""
    yield re.sub(r"(?<=\.) (?=[A-Z])", "\n", " ".join(operation["description"].split()))
    yield ""
    rows = [*_parameters(operation, document), *_fields(operation, document)]
    if rows:
        yield "| | | |"
        yield "|---|---|---|"
        yield from rows
        yield ""
    yield from _examples(operation)


def _parameters(operation: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "header":
            said = parameter.get("description", "")
            where = f"in the {parameter['in']}, {_type(parameter['schema'], document)}"
            yield _row(parameter["name"], where, said, required=parameter["required"])


def _fields(operation: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return
    schema = _resolved(schema, document)
    for name, field in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        yield _row(name, _type(field, document), field.get("description", ""), required=required)


def _row(name: str, kind: str, said: str, *, required: bool) -> str:
    needed = "" if required else ", optional"
    return f"| `{name}` | {kind}{needed} | {' '.join(said.split())} |".replace("|  |", "| |")


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    for one in schema.get("anyOf", ()):
        if "$ref" in one:
            schema = one
    if "$ref" in schema:
        found: dict[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found
    return schema


def _type(schema: dict[str, Any], document: dict[str, Any]) -> str:
    ways = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if ways:
        return " or ".join(dict.fromkeys(_type(one, document) for one in ways))
    whole = _resolved(schema, document)
    if "enum" in whole:
        return " or ".join(f"`{value}`" for value in whole["enum"])
    if whole.get("type") == "array":
        return f"list of {_type(whole['items'], document)}" if "items" in whole else "list"
    return str(whole.get("type", "any"))


def _examples(operation: dict[str, Any]) -> Iterator[str]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "example" in body:
        yield from _json("Body:", body["example"])
    for status, said in operation["responses"].items():
        content = said.get("content", {})
        if "$ref" in said:
            continue
        if "example" in content.get("application/json", {}):
            yield from _json(f"Answer, {status}:", content["application/json"]["example"])
        else:
            kinds = ", ".join(f"`{kind}`" for kind in content)
            yield f"Answer, {status}: {kinds or 'nothing'}."
            yield ""


def _json(title: str, example: object) -> Iterator[str]:
    yield title
    yield ""
    yield "```json"
    yield json.dumps(example, indent=2, ensure_ascii=False)
    yield "```"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
